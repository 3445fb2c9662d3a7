package session

import (
	"fmt"
	"runtime/debug"
	"sync"

	"sar/core/comm"
	"sar/core/mem"
)

// background runs operations on workers of its own: while one batch waits for its
// peers, the next one is worked on.
type background struct {
	workers [numWorkers]*worker
}

// numWorkers is how many batches are worked on at a time.
const numWorkers = 2

// worker runs operations on one communicator one after the other, in the order in
// which they were submitted. That is the order of the script, the same on every
// rank; so several samplers share one communicator, and a queue that nobody
// empties cannot hold up another.
type worker struct {
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
	if b := s.sampler.Load(); b != nil {
		return b, nil
	}
	// Whoever samples moves the features of every batch anew, over links that have
	// a small share of the window.
	if err := s.suit(mostWindow); err != nil {
		return nil, err
	}
	mem.Pace(mem.Busy)
	b := &background{}
	for i := range b.workers {
		id, err := s.NewComm(fmt.Sprintf("sampling %d", i))
		if err != nil {
			return nil, err
		}
		c, err := s.Comm(id)
		if err != nil {
			return nil, err
		}
		b.workers[i] = &worker{c: c}
		b.workers[i].cond = sync.NewCond(&b.workers[i].mu)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	s.sampler.Store(b)
	for _, w := range b.workers {
		go w.work()
	}
	return b, nil
}

// of is the worker of a communicator, nil if it is none.
func (b *background) of(c *comm.Communicator) *worker {
	if b != nil {
		for _, w := range b.workers {
			if w.c == c {
				return w
			}
		}
	}
	return nil
}

// stop stops all workers.
func (b *background) stop() {
	for _, w := range b.workers {
		w.stop()
	}
}

func (w *worker) submit(run func(c *comm.Communicator) error, done func(error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.end {
		go done(ErrClosed) // done may need the lock that the caller holds
		return
	}
	w.jobs = append(w.jobs, job{run, done})
	w.cond.Signal()
}

// do submits an operation and waits for it.
func (w *worker) do(run func(c *comm.Communicator) error) error {
	result := make(chan error, 1)
	w.submit(run, func(err error) { result <- err })
	return <-result
}

func (w *worker) work() {
	for {
		w.mu.Lock()
		for len(w.jobs) == 0 && !w.end {
			w.cond.Wait()
		}
		if len(w.jobs) == 0 {
			w.mu.Unlock()
			return
		}
		j, end := w.jobs[0], w.end
		w.jobs[0], w.jobs = job{}, w.jobs[1:]
		w.mu.Unlock()
		if end {
			j.done(ErrClosed)
		} else {
			j.done(w.try(j.run))
		}
	}
}

// try makes an error of a panic, and has the peers know of it.
func (w *worker) try(run func(c *comm.Communicator) error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("bug in the engine: %v\n%s", v, debug.Stack())
			w.c.Group().Abort(err.Error())
		}
	}()
	return run(w.c)
}

// stop has operations that wait end with ErrClosed. The one that runs ends when
// its communicator is closed.
func (w *worker) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.end = true
	w.cond.Signal()
}
