package foreign

import "slices"

// Request is a message on its way, to or from memory that the library uses until Done.
type Request struct {
	link   *link
	finish func(error)
}

// Done says that the library no longer touches the memory: nil where all of the message has
// left it or is there. It is called once for each time the request was posted, by any
// goroutine or thread, and returns at once.
func (r *Request) Done(err error) {
	r.finish(err)
	r.link.unref()
}

// awaited is a request that one goroutine waits for.
type awaited struct {
	Request
	done chan error
}

func newAwaited(l *link) *awaited {
	a := &awaited{done: make(chan error, 1)}
	a.Request = Request{l, func(err error) { a.done <- err }}
	return a
}

// outgoing is a frame whose memory in the ring is in use until its messages are done.
type outgoing struct {
	end   uint64 // the position in the ring behind it
	left  int    // messages that are not done
	parts [2]Request
}

// outgoings are the frames on their way, the oldest first. The link's mutex guards them.
type outgoings struct {
	queue   []*outgoing
	posted  int    // messages that are not done
	through uint64 // frames before this position are done
}

func (o *outgoings) take(l *link, end uint64, messages int) *outgoing {
	f := &outgoing{end: end, left: messages}
	for i := range f.parts {
		f.parts[i] = Request{l, func(err error) { l.left(f, err) }}
	}
	o.queue = append(o.queue, f)
	o.posted += messages
	return f
}

// passed counts a message of f as done, and the frames that are.
func (o *outgoings) passed(f *outgoing) {
	o.posted--
	f.left--
	n := 0
	for n < len(o.queue) && o.queue[n].left == 0 {
		o.through = o.queue[n].end
		n++
	}
	o.queue = slices.Delete(o.queue, 0, n)
}
