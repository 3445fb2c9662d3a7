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
		"every rank must make the same collective calls in the same order. Look for loops and conditions over the "+
		"data of one rank, such as the edge types that have edges there or a mask that is not empty, and for tensors "+
		"that have another dtype there",
		e.Rank, e.Mine, e.Peer, e.Theirs)
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
	return fmt.Sprintf("%s took longer than the deadline of %g s: it waits for rank %d, which was last seen %s", e.Op,
		e.Seconds, e.Peer, e.Phase)
}

// Timeout lets callers treat it like a net.Error.
func (e *DeadlineError) Timeout() bool { return true }

// ErrClosed is returned by everything after Close.
var ErrClosed = errors.New("the group is closed")

// failure is an error as it travels between ranks: one of these.
type failure struct {
	Lost     *PeerLost      `json:",omitempty"`
	Remote   *RemoteError   `json:",omitempty"`
	Schedule *ScheduleError `json:",omitempty"`
	Size     *SizeError     `json:",omitempty"`
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
func pack(err error, self int, host string) (f failure) {
	switch {
	case errors.As(err, &f.Lost):
		lost := *f.Lost
		if f.Lost = &lost; !lost.Told {
			lost.Told, lost.Finder = true, self
		}
		lost.Reason = clip(lost.Reason)
	case errors.As(err, &f.Remote):
		f.Remote = &RemoteError{f.Remote.Rank, f.Remote.Host, clip(f.Remote.Message)}
	case errors.As(err, &f.Schedule), errors.As(err, &f.Size):
	default:
		f.Remote = &RemoteError{self, host, clip(err.Error())}
	}
	return f
}

// unpack turns what rank from told into the error that this rank raises.
func (f failure) unpack(self int, from int, fromHost string) error {
	switch {
	case f.Lost != nil && f.Lost.Rank == self:
		finder := "it"
		if f.Lost.Finder != from {
			finder = fmt.Sprintf("rank %d", f.Lost.Finder)
		}
		return &RemoteError{Rank: from, Host: fromHost,
			Message: fmt.Sprintf("%s lost contact with this worker (rank %d): %s", finder, self, f.Lost.Reason)}
	case f.Lost != nil:
		return f.Lost
	case f.Schedule != nil:
		return f.Schedule
	case f.Size != nil:
		return f.Size
	case f.Remote != nil:
		return f.Remote
	}
	return &RemoteError{Rank: from, Host: fromHost, Message: "it did not say why"}
}
