package session

import (
	"fmt"
	"runtime/debug"
	"sync"

	"sar/core/comm"
	"sar/core/mem"
)

// background runs operations on lanes of its own: while one batch waits for its
// peers, the next one is worked on.
type background struct {
	lanes [lanes]*lane
}

// lanes is how many batches are worked on at a time.
const lanes = 2

// lane runs operations on one communicator one after the other, in the order in
// which they were submitted. That is the order of the script, the same on every
// rank; so several samplers share one communicator, and a queue that nobody
// empties cannot hold up another.
type lane struct {
	c *comm.Communicator

	mu   sync.Mutex
	cond *sync.Cond
	jobs []job
	end  bool
}

type job struct {
	run  func(c *comm.Communicator) error
	done func(error)
}

// sampling returns the session's background communicators, making them first
// where they are not there yet. Collective then.
func (s *Session) sampling() (*background, error) {
	s.mu.Lock()
	b := s.sampler
	s.mu.Unlock()
	if b != nil {
		return b, nil
	}
	// Whoever samples moves the features of every batch anew, over links that have
	// a small share of the window.
	if err := s.suit(mostWindow); err != nil {
		return nil, err
	}
	mem.Pace(mem.Busy)
	b = &background{}
	for i := range b.lanes {
		id, err := s.NewComm(fmt.Sprintf("sampling %d", i))
		if err != nil {
			return nil, err
		}
		c, err := s.Comm(id)
		if err != nil {
			return nil, err
		}
		b.lanes[i] = &lane{c: c}
		b.lanes[i].cond = sync.NewCond(&b.lanes[i].mu)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	s.sampler = b
	for _, l := range b.lanes {
		go l.work()
	}
	return b, nil
}

// of is the lane of a communicator, nil if it is none.
func (b *background) of(c *comm.Communicator) *lane {
	if b != nil {
		for _, l := range b.lanes {
			if l.c == c {
				return l
			}
		}
	}
	return nil
}

// stop stops all lanes.
func (b *background) stop() {
	for _, l := range b.lanes {
		l.stop()
	}
}

func (l *lane) submit(run func(c *comm.Communicator) error, done func(error)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.end {
		go done(ErrClosed) // done may need the lock that the caller holds
		return
	}
	l.jobs = append(l.jobs, job{run, done})
	l.cond.Signal()
}

// do submits an operation and waits for it.
func (l *lane) do(run func(c *comm.Communicator) error) error {
	result := make(chan error, 1)
	l.submit(run, func(err error) { result <- err })
	return <-result
}

func (l *lane) work() {
	for {
		l.mu.Lock()
		for len(l.jobs) == 0 && !l.end {
			l.cond.Wait()
		}
		if len(l.jobs) == 0 {
			l.mu.Unlock()
			return
		}
		j, end := l.jobs[0], l.end
		l.jobs[0], l.jobs = job{}, l.jobs[1:]
		l.mu.Unlock()
		if end {
			j.done(ErrClosed)
		} else {
			j.done(l.try(j.run))
		}
	}
}

// try makes an error of a panic, and has the peers know of it.
func (l *lane) try(run func(c *comm.Communicator) error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("bug in the engine: %v\n%s", v, debug.Stack())
			l.c.Group().Abort(err.Error())
		}
	}()
	return run(l.c)
}

// stop has operations that wait end with ErrClosed. The one that runs ends when
// its communicator is closed.
func (l *lane) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end = true
	l.cond.Signal()
}
