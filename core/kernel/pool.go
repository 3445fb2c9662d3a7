package kernel

import (
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// Pool is a number of compute slots that all kernels of a worker share. A
// goroutine holds a slot only while it computes: one that waits for a peer has
// none, so two goroutines of an exchange may call kernels at the same time and
// together use no more threads than the user allowed.
type Pool struct {
	*slots
	rank int // of who comes by this pool: 0, or 1 for Behind
}

type slots struct {
	mu      sync.Mutex
	threads int                // slots in all
	busy    int                // slots held
	queue   [2][]chan struct{} // who waits for a slot, first come first served, by rank
	waiting [2]atomic.Int32    // the lengths of queue, read without the lock between tasks
	known   []reread           // large source rows (willRead), the last read last
}

// NewPool makes a pool of threads slots, at least 1.
func NewPool(threads int) *Pool { return &Pool{slots: &slots{threads: max(1, threads)}} }

// Behind has the same slots as p, for work that fills the time in which nobody else
// has any: between two of its tasks it lets all others go first.
func (p *Pool) Behind() *Pool { return &Pool{p.slots, 1} }

// Threads is the number of slots.
func (p *Pool) Threads() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.threads
}

// SetThreads changes the number of slots, at least 1. Runs that are under way
// shrink as their tasks end; they do not grow.
func (p *Pool) SetThreads(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.threads = max(1, n)
	p.handOut()
}

// acquire takes a slot, waiting for one if it must. The caller only computes
// until it gives the slot back, so the wait ends without a deadline.
func (p *Pool) acquire() {
	p.mu.Lock()
	if p.busy < p.threads { // then nobody waits
		p.busy++
		p.mu.Unlock()
		return
	}
	turn := make(chan struct{})
	p.queue[p.rank] = append(p.queue[p.rank], turn)
	p.waiting[p.rank].Add(1)
	p.mu.Unlock()
	<-turn
}

func (p *Pool) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busy--
	p.handOut()
}

// handOut gives free slots to those who wait. It needs the lock.
func (p *slots) handOut() {
	for rank := range p.queue {
		for p.busy < p.threads && len(p.queue[rank]) > 0 {
			p.busy++
			close(p.queue[rank][0])
			p.queue[rank] = p.queue[rank][1:]
			p.waiting[rank].Add(-1)
		}
	}
}

// others tells whether somebody waits for a slot who does not come behind p.
func (p *Pool) others() bool {
	return p.waiting[0].Load() > 0 || p.rank > 0 && p.waiting[1].Load() > 0
}

// run is one call of Run.
type run struct {
	f     func(task int)
	tasks int64
	next  atomic.Int64   // next task to take
	done  sync.WaitGroup // tasks not finished
	panic atomic.Pointer[TaskPanic]
}

// TaskPanic is what Run panics with in the caller's goroutine when a task
// panicked in another.
type TaskPanic struct {
	Value any
	Stack []byte // of the task
}

func (e *TaskPanic) Error() string { return fmt.Sprintf("kernel task: %v\n%s", e.Value, e.Stack) }

// Run calls f(0) … f(tasks-1), each once, in any order, on at most Threads
// goroutines, and returns when all are done. A task must not call Run, nor
// wait for anything but the processor. A panic in a task is a panic of Run.
func (p *Pool) Run(tasks int, f func(task int)) {
	if tasks <= 0 {
		return
	}
	r := &run{f: f, tasks: int64(tasks)}
	r.done.Add(tasks)
	for range min(tasks, p.Threads()) - 1 {
		go p.work(r)
	}
	p.work(r)
	r.done.Wait()
	if e := r.panic.Load(); e != nil {
		panic(e)
	}
}

// work takes tasks until there are none. Between two tasks it lets those who
// wait for a slot go first, unless they come behind.
func (p *Pool) work(r *run) {
	if r.next.Load() >= r.tasks {
		return // a helper that comes late
	}
	p.acquire()
	for {
		t := r.next.Add(1) - 1
		if t >= r.tasks {
			break
		}
		r.task(int(t))
		if p.others() && r.next.Load() < r.tasks {
			p.release()
			p.acquire()
		}
	}
	p.release()
}

func (r *run) task(t int) {
	defer r.done.Done()
	defer func() {
		if v := recover(); v != nil {
			r.panic.CompareAndSwap(nil, &TaskPanic{Value: v, Stack: debug.Stack()})
		}
	}()
	r.f(t)
}
