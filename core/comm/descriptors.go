package comm

import (
	"golang.org/x/sys/unix"

	"sar/core/internal/limits"
)

// ownDescriptors are those that a rank needs beside its connections: Go's
// poller has two, without which the runtime ends the process, and there are up
// to three listeners.
const ownDescriptors = 5

// checkDescriptors makes sure that this process can open what it takes to meet
// the others: connections for control and one for calls to rank 0.
func checkDescriptors(cfg Config) error {
	if cfg.World == 1 {
		return nil
	}
	need := ownDescriptors + 1
	for peer := range cfg.World {
		if peer != cfg.Rank && cfg.controls(peer) {
			need++
		}
	}
	if cfg.Rank == 0 { // everyone's calls come to it
		need += cfg.World - 1
	}
	var opened []int
	defer func() {
		for _, fd := range opened {
			_ = unix.Close(fd)
		}
	}()
	for range need {
		fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return rendezvousf("rank %d needs %d more file descriptors to meet the others and can have %d: %v",
				cfg.Rank, need, len(opened), limits.Explain(err))
		}
		opened = append(opened, fd)
	}
	return nil
}
