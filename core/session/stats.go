package session

import (
	"sync/atomic"
	"time"

	"sar/core/comm"
	"sar/core/mem"
)

// Window is the budget for remote rows: its size, what communicators hold of it,
// and the most they have held since it has that size.
type Window struct {
	Limit int64 `json:"limit"`
	Live  int64 `json:"live"`
	Peak  int64 `json:"peak"`
}

// Stats is what a session has done.
type Stats struct {
	comm.Stats
	Window Window `json:"window"`
}

// Stats returns what this worker has done so far.
func (s *Session) Stats() Stats {
	window := mem.Stats()[mem.Window]
	return Stats{s.group.Stats(), Window{Limit: s.window.Load(), Live: window.Live, Peak: window.Peak}}
}

// Usage is the size of one purpose of memory, now and at most.
type Usage = mem.Usage

// tensors tells what the caller's own large blocks take, where somebody counts them.
var tensors atomic.Pointer[func() (used Usage, kept int64)]

// SetTensors has MemoryStats ask report for what tensors take, and for what is kept of freed ones.
func SetTensors(report func() (used Usage, kept int64)) { tensors.Store(&report) }

// LendFrom has what a call computes with come from a lender from now on; nil: from the system.
func LendFrom(l mem.Lender) { mem.LendFrom(l) }

// MemoryStats returns the engine's memory by purpose, and "total"; beside it
// "tensors", the caller's where they are counted, "kept", what is kept of freed
// ones, and "resident", the process as a whole.
func MemoryStats() map[string]Usage {
	mem.CountRuntime()
	var used Usage
	var kept int64
	if report := tensors.Load(); report != nil {
		used, kept = (*report)()
	}
	out := map[string]Usage{"total": mem.Total(), "tensors": used, "kept": {Live: kept, Peak: kept},
		"resident": mem.Resident()}
	for p, u := range mem.Stats() {
		out[mem.Purpose(p).String()] = u
	}
	return out
}

// memoryPeaks is what this worker tells the others of its memory.
func memoryPeaks() map[string]int64 {
	out := map[string]int64{}
	for name, u := range MemoryStats() {
		out[name] = u.Peak
	}
	return out
}

// Memory is the largest of what workers held, by the names of MemoryStats.
type Memory struct {
	Peaks   map[string]int64 `json:"peaks"`
	Workers int              `json:"workers"` // who are known of
}

// Memory returns the largest peaks of all workers. It waits at most so long for
// the others to say goodbye, with which their last figures come; of one that has
// not, those of its last sign of life count. A session that failed has none.
func (s *Session) Memory(wait time.Duration) (Memory, error) {
	reports, err := s.group.Memory(wait)
	if err != nil {
		return Memory{}, err
	}
	out := Memory{Peaks: map[string]int64{}}
	for _, report := range reports {
		if report == nil {
			continue
		}
		out.Workers++
		for name, n := range report {
			out.Peaks[name] = max(out.Peaks[name], n)
		}
	}
	return out, nil
}
