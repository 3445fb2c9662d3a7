package mem

import (
	"bytes"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"sync"
)

// Resident returns the resident size of the process, shared memory included:
// now and at most. Zeros where the system does not tell.
func Resident() Usage {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return Usage{}
	}
	return Usage{Live: statusBytes(status, "VmRSS:"), Peak: statusBytes(status, "VmHWM:")}
}

// statusBytes reads a line such as "VmRSS:	  123 kB".
func statusBytes(status []byte, name string) int64 {
	_, rest, found := bytes.Cut(status, []byte("\n"+name))
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	fields := bytes.Fields(line)
	if !found || len(fields) == 0 {
		return 0
	}
	n, err := strconv.ParseInt(string(fields[0]), 10, 64)
	if err != nil {
		return 0
	}
	return n << 10
}

// Paces of Go's garbage collector, in percent as GOGC has them. What is large
// is not on its heap. While it trains, a worker makes little garbage, and what Go
// would let lie by default is 4 MiB in every worker; who draws samples makes much.
const (
	Thrifty = 25
	Busy    = 100
)

func init() { Pace(Thrifty) }

// Pace sets how much garbage Go lets lie, unless the environment's GOGC does.
func Pace(percent int) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}

// goRuntime names what Go's runtime has mapped, and what of it it has given back.
var goRuntime = struct {
	sync.Mutex
	samples []metrics.Sample
	counted int64
}{samples: []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}}

// CountRuntime brings the account of Runtime up to date. Nothing else changes
// it, so its peak is the largest of what calls have seen.
func CountRuntime() {
	goRuntime.Lock()
	defer goRuntime.Unlock()
	metrics.Read(goRuntime.samples)
	now := int64(goRuntime.samples[0].Value.Uint64()) - int64(goRuntime.samples[1].Value.Uint64())
	Count(Runtime, now-goRuntime.counted)
	goRuntime.counted = now
}
