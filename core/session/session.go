// Package session is the engine as a program uses it, from Go, through the C ABI or from
// Python: no other package of the engine is imported there.
//
// A worker calls Open, which returns when all workers have met. It builds its part of a graph
// (Build from files, GraphFromEdges, GraphFromRelations), runs programs over it, each made by a
// Builder (Run, and Call.Backward for gradients), makes blocks of it (Graph.Block) or draws
// batches (Graph.NewSampler), and calls Close. ProgramForward and ProgramBackward are Run and
// Call.Backward for callers that hold all memory, and what was agreed, themselves.
//
// Functions whose comment says "Collective" are called by every worker, in the same order.
// The session checks their arguments before anything travels: a wrong one is an
// *ArgumentError, of which the other workers learn nothing. Any other error of a collective
// function is final, and every worker gets one.
//
// Functions that wait for others take a context. Where it ends before they do, the session is
// aborted, on all workers, with its cause; functions without one end by Session.Abort. Whatever
// is asked for, the deadlines of Config hold.
package session

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"sar/core/comm"
	"sar/core/mem"
	"sar/core/transport/node"
)

// Config describes the worker, Ports where it listens.
type (
	Config = comm.Config
	Ports  = node.Ports
)

// CommID names a communicator of a session.
type CommID int

// Train and Reduce are the communicators every session has: for message passing, and for
// gradients and everything else.
const (
	Train CommID = iota
	Reduce
)

// Session is one worker among several.
type Session struct {
	group *comm.Group

	window   atomic.Int64
	exchange atomic.Int32               // an Exchange
	sampler  atomic.Pointer[background] // made by the first sampler

	mu     sync.Mutex
	auto   bool  // window is the session's own to size
	suits  int64 // what it then is
	comms  []*comm.Communicator
	graphs int // that were made
	closed bool
}

// DerivedToken makes a job token of what is no secret and a secret of this user.
func DerivedToken(public string) (string, error) {
	token, err := comm.DerivedToken(public)
	if err != nil {
		err = Invalid("%v", err)
	}
	return token, err
}

// Open meets the other workers. Once it has returned, ctx is of no more meaning. Collective.
func Open(ctx context.Context, cfg Config) (*Session, error) {
	if cfg.World < 1 || cfg.Rank < 0 || cfg.Rank >= cfg.World {
		return nil, Invalid("rank %d is not in [0, %d): every worker needs a rank of its own below the number of workers",
			cfg.Rank, cfg.World)
	}
	auto, suits := cfg.Window == 0, DefaultWindow(cfg.World, 0)
	if auto {
		cfg.Window = suits
	}
	if err := enough(cfg.Window, cfg.World); err != nil {
		return nil, err
	}
	cfg.Memory = memoryPeaks
	group, err := join(ctx, cfg)
	if err != nil {
		return nil, err
	}
	mem.ResetPeak(mem.Window) // an earlier session of the process may have had a larger one
	s := &Session{group: group, auto: auto, suits: suits}
	s.window.Store(cfg.Window)
	for _, c := range []struct {
		name  string
		bytes int64
	}{{"train", cfg.Window - cfg.Window/reduceShare}, {"reduce", cfg.Window / reduceShare}} {
		if _, err := s.addComm(c.name, c.bytes); err != nil {
			group.Close()
			return nil, err
		}
	}
	return s, nil
}

func (s *Session) addComm(name string, bytes int64) (CommID, error) {
	c, err := s.group.NewCommunicator(name, int(bytes))
	if err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.comms = append(s.comms, c)
	return CommID(len(s.comms) - 1), nil
}

// Rank is this worker's number among World.
func (s *Session) Rank() int  { return s.group.Rank() }
func (s *Session) World() int { return s.group.World() }

// Comm returns communicator id.
func (s *Session) Comm(id CommID) (*comm.Communicator, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	if id < 0 || int(id) >= len(s.comms) {
		return nil, Invalid("there is no communicator %d: this session has %d", id, len(s.comms))
	}
	return s.comms[id], nil
}

// NewComm makes a further communicator out of the window. Collective.
func (s *Session) NewComm(name string) (CommID, error) {
	train, err := s.Comm(Train)
	if err != nil {
		return 0, err
	}
	s.mu.Lock()
	extra := len(s.comms) - int(Reduce) // those there are, and this one
	s.mu.Unlock()
	if extra > maxExtra {
		return 0, Invalid("a session has at most %d communicators besides training and gradients", maxExtra)
	}
	if err := train.Resize(int(trainBytes(s.window.Load(), extra))); err != nil {
		return 0, err
	}
	return s.addComm(name, s.window.Load()/extraShare)
}

// SetPlace says what the operations on the training communicator that begin from now on belong
// to, so that ranks that run them in another order end with a *ScheduleError. It returns the
// number of the first of them.
func (s *Session) SetPlace(p Place) (uint64, error) {
	train, err := s.Comm(Train)
	if err != nil {
		return 0, err
	}
	if p.Layer >= comm.MaxLayers {
		return 0, Invalid("layer %d: numbers of layers are below %d", p.Layer, comm.MaxLayers)
	}
	return train.SetPlace(p), nil
}

// NameLayer says what messages call a layer.
func (s *Session) NameLayer(layer uint32, name string) error {
	train, err := s.Comm(Train)
	if err == nil {
		train.NameLayer(layer, name)
	}
	return err
}

// Value asks for something of the small values that rank 0 keeps for all workers.
func (s *Session) Value(r ValueRequest) (ValueReply, error) { return s.group.Value(r) }

// Abort tells every peer that this worker failed, and why.
func (s *Session) Abort(message string) { s.group.Abort(message) }

// Close says goodbye and frees the session. It may be called again.
func (s *Session) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.mu.Unlock()
	if b := s.sampler.Load(); b != nil {
		b.stop()
	}
	return s.group.Close()
}

// collective runs the local part of a collective operation. Where it fails, the
// peers would wait for rows that never come, so they are told.
func (s *Session) collective(what string, f func() error) error {
	err := f()
	if err != nil && s.group.Failure() == nil {
		s.group.Abort(fmt.Sprintf("%s: %v", what, err))
	}
	return err
}
