package comm

import (
	"errors"
	"fmt"
)

// PeerLost says that a worker died, was stopped past the liveness deadline, was
// cut off, or has shut down while this one still needs it.
type PeerLost struct {
	Rank   int
	Host   string
	Phase  string // what the rank was last known to do
	Reason string
	Told   bool // by Finder, another rank: this one may well hear from Rank
	Finder int
}

func (e *PeerLost) Error() string {
	finder := ""
	if e.Told {
		finder = fmt.Sprintf(", as rank %d found", e.Finder)
	}
	return fmt.Sprintf("lost rank %d on %s%s: %s; it was last seen %s", e.Rank, e.Host, finder, e.Reason, e.Phase)
}

// RemoteError carries the error of another worker, or of this one after Abort.
type RemoteError struct {
	Rank    int
	Host    string
	Message string
}

func (e *RemoteError) Error() string {
	return fmt.Sprintf("rank %d on %s failed: %s", e.Rank, e.Host, e.Message)
}

// ScheduleError says that two ranks disagree about what comes next. Every rank
// of the group gets the same one.
type ScheduleError struct {
	Rank, Peer   int
	Mine, Theirs string // what Rank and what Peer does
}

func (e *ScheduleError) Error() string {
	return fmt.Sprintf("the workers' schedules differ: rank %d is in %s while rank %d is in %s; "+
		"every rank must make the same collective calls in the same order", e.Rank, e.Mine, e.Peer, e.Theirs)
}

// SizeError says that two ranks are in the same operation with arguments that
// do not fit together.
type SizeError struct {
	Rank, Peer int
	Op         string // the operation
	Detail     string // what each of the two has
}

func (e *SizeError) Error() string {
	return fmt.Sprintf("%s: ranks %d and %d disagree: %s", e.Op, e.Rank, e.Peer, e.Detail)
}

// RendezvousError says why the workers could not meet.
type RendezvousError struct{ Message string }

func (e *RendezvousError) Error() string { return e.Message }

func rendezvousf(format string, args ...any) error {
	return &RendezvousError{fmt.Sprintf(format, args...)}
}

// DeadlineError says that an operation took longer than Config.Operation.
type DeadlineError struct {
	Peer    int // whom this rank waited for
	Op      string
	Seconds float64
	Phase   string // what the peer was last known to do
}

func (e *DeadlineError) Error() string {
	return fmt.Sprintf("%s took longer than the deadline of %g s: it waits for rank %d, which was last seen %s", e.Op, e.Seconds, e.Peer, e.Phase)
}

// Timeout lets callers treat it like a net.Error.
func (e *DeadlineError) Timeout() bool { return true }

// ErrClosed is returned by everything after Close.
var ErrClosed = errors.New("the group is closed")

// failure is an error as it travels between ranks.
type failure struct {
	Type       string // "lost", "remote", "schedule", "size"
	Rank, Peer int
	A, B, C    string
}

// longest text of an error that travels; a traceback fits.
const maxText = 64 << 10

func clip(s string) string {
	if len(s) <= maxText {
		return s
	}
	return s[:maxText] + " [cut]"
}

// pack turns the failure of rank self into what the others are told.
func pack(err error, self int, host string) failure {
	var (
		lost     *PeerLost
		remote   *RemoteError
		schedule *ScheduleError
		size     *SizeError
	)
	switch {
	case errors.As(err, &lost):
		if lost.Told {
			self = lost.Finder
		}
		return failure{Type: "lost", Rank: lost.Rank, Peer: self, A: lost.Host, B: lost.Phase, C: clip(lost.Reason)}
	case errors.As(err, &remote):
		return failure{Type: "remote", Rank: remote.Rank, A: remote.Host, B: clip(remote.Message)}
	case errors.As(err, &schedule):
		return failure{Type: "schedule", Rank: schedule.Rank, Peer: schedule.Peer, A: schedule.Mine, B: schedule.Theirs}
	case errors.As(err, &size):
		return failure{Type: "size", Rank: size.Rank, Peer: size.Peer, A: size.Op, B: size.Detail}
	}
	return failure{Type: "remote", Rank: self, A: host, B: clip(err.Error())}
}

// unpack turns what rank from told into the error that this rank raises.
func (f failure) unpack(self int, from int, fromHost string) error {
	switch f.Type {
	case "lost":
		if f.Rank == self {
			finder := "it"
			if f.Peer != from {
				finder = fmt.Sprintf("rank %d", f.Peer)
			}
			return &RemoteError{Rank: from, Host: fromHost, Message: fmt.Sprintf("%s lost contact with this worker (rank %d): %s", finder, self, f.C)}
		}
		return &PeerLost{Rank: f.Rank, Host: f.A, Phase: f.B, Reason: f.C, Told: true, Finder: f.Peer}
	case "schedule":
		return &ScheduleError{Rank: f.Rank, Peer: f.Peer, Mine: f.A, Theirs: f.B}
	case "size":
		return &SizeError{Rank: f.Rank, Peer: f.Peer, Op: f.A, Detail: f.B}
	}
	return &RemoteError{Rank: f.Rank, Host: f.A, Message: f.B}
}
