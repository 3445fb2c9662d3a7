// Package session is what one worker holds: its place among the workers, the
// communicators, the window, the graphs. It is the one package that the C ABI
// and the Python face use.
package session

import (
	"fmt"
	"sync"
	"time"

	"sar/core/comm"
	"sar/core/kernel"
	"sar/core/mem"
)

// Config describes the worker. Zero durations and sizes mean the defaults.
type Config struct {
	Rank, World int
	MasterAddr  string
	MasterPort  int
	Interface   string // network interface peers connect to
	Transport   string // "auto", "shm" or "tcp"
	Advertise   string // host:port to tell peers in place of the listener's own
	Start       time.Duration
	Liveness    time.Duration
	Operation   time.Duration
	Window      int64 // bytes of receive buffers, rings and send staging
}

// DefaultWindow is the window where the user names none. Larger ones stop
// paying at about a MiB per link and direction.
const DefaultWindow = 16 << 20

// Train and Reduce are the communicators every session has.
const (
	Train  = 0
	Reduce = 1
)

// Of the window, Reduce has an eighth and each further communicator a
// sixteenth; Train, which carries the rows, has the rest.
const (
	reduceShare = 8
	extraShare  = 16
	maxExtra    = 8
)

// Session is one worker among several.
type Session struct {
	group *comm.Group

	mu     sync.Mutex
	window int64
	comms  []*comm.Communicator
	closed bool

	sampler *background // made by the first sampler
}

// pool is shared by all sessions of the process: threads belong to the machine.
var pool = kernel.NewPool(1)

// Pool is the process's kernel threads.
func Pool() *kernel.Pool { return pool }

// Open meets the other workers. Collective.
func Open(cfg Config) (*Session, error) {
	if cfg.World < 1 || cfg.Rank < 0 || cfg.Rank >= cfg.World {
		return nil, Invalid("rank %d is not in [0, %d): every worker needs a rank of its own below the number of workers", cfg.Rank, cfg.World)
	}
	if cfg.Window == 0 {
		cfg.Window = DefaultWindow
	}
	if err := enough(cfg.Window, cfg.World); err != nil {
		return nil, err
	}
	group, err := comm.Join(comm.Config{
		Rank: cfg.Rank, World: cfg.World, MasterAddr: cfg.MasterAddr, MasterPort: cfg.MasterPort,
		Interface: cfg.Interface, Transport: cfg.Transport, Advertise: cfg.Advertise,
		Start: cfg.Start, Liveness: cfg.Liveness, Operation: cfg.Operation, Memory: memoryPeaks,
	})
	if err != nil {
		return nil, err
	}
	s := &Session{group: group, window: cfg.Window}
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

func (s *Session) addComm(name string, bytes int64) (int, error) {
	c, err := s.group.NewCommunicator(name, int(bytes))
	if err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.comms = append(s.comms, c)
	return len(s.comms) - 1, nil
}

// Rank is this worker's number.
func (s *Session) Rank() int { return s.group.Rank() }

// World is the number of workers.
func (s *Session) World() int { return s.group.World() }

// Comm returns communicator id.
func (s *Session) Comm(id int) (*comm.Communicator, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	if id < 0 || id >= len(s.comms) {
		return nil, Invalid("there is no communicator %d: this session has %d", id, len(s.comms))
	}
	return s.comms[id], nil
}

// NewComm makes a further communicator out of the window. Collective.
func (s *Session) NewComm(name string) (int, error) {
	train, err := s.Comm(Train)
	if err != nil {
		return 0, err
	}
	s.mu.Lock()
	extra := len(s.comms) - Reduce // those there are, and this one
	s.mu.Unlock()
	if extra > maxExtra {
		return 0, Invalid("a session has at most %d communicators besides training and gradients", maxExtra)
	}
	if err := train.Resize(int(trainBytes(s.windowLimit(), extra))); err != nil {
		return 0, err
	}
	return s.addComm(name, s.windowLimit()/extraShare)
}

// linkBytes is the least that a link works with.
const linkBytes = 4096

// enough tells whether the smallest share of a window serves its P-1 links, also
// with further communicators, before anything is taken down for it.
func enough(window int64, world int) error {
	least := int64(extraShare * linkBytes * (world - 1))
	if window >= least {
		return nil
	}
	return &mem.BudgetError{What: "window_bytes", Have: window, Minimum: least}
}

func trainBytes(window int64, extra int) int64 {
	return window - window/reduceShare - int64(extra)*(window/extraShare)
}

// SetWindow changes the window. Collective.
func (s *Session) SetWindow(bytes int64) error {
	if bytes < 1 {
		return Invalid("window_bytes is %d: it must be positive", bytes)
	}
	if _, err := s.Comm(Train); err != nil {
		return err
	}
	if err := enough(bytes, s.World()); err != nil {
		return err
	}
	s.mu.Lock()
	comms := append([]*comm.Communicator(nil), s.comms...)
	s.mu.Unlock()
	for id, c := range comms {
		share := bytes / extraShare
		switch id {
		case Train:
			share = trainBytes(bytes, len(comms)-Reduce-1)
		case Reduce:
			share = bytes / reduceShare
		}
		if err := s.resize(c, int(share)); err != nil {
			return err
		}
	}
	s.mu.Lock()
	s.window = bytes
	s.mu.Unlock()
	return nil
}

// resize gives a communicator another share. One for sampling takes its turn
// among the batches that are on their way, which is the same on every rank.
func (s *Session) resize(c *comm.Communicator, share int) error {
	s.mu.Lock()
	b := s.sampler
	s.mu.Unlock()
	if l := b.of(c); l != nil {
		return l.do(func(c *comm.Communicator) error { return c.Resize(share) })
	}
	return c.Resize(share)
}

func (s *Session) windowLimit() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.window
}

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
	b := s.sampler
	s.mu.Unlock()
	if b != nil {
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
