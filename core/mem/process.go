package mem

import (
	"bytes"
	"os"
	"strconv"
	"sync/atomic"
)

// tensors tells what the caller's own large blocks take, where somebody counts them.
var tensors atomic.Pointer[func() (used Usage, kept int64)]

// SetTensors names what counts the caller's tensors. They are not the engine's
// and do not count in Total.
func SetTensors(f func() (used Usage, kept int64)) { tensors.Store(&f) }

// Tensors returns what the caller's tensors take, and what is kept of freed ones.
func Tensors() (used Usage, kept int64) {
	if f := tensors.Load(); f != nil {
		return (*f)()
	}
	return Usage{}, 0
}

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
