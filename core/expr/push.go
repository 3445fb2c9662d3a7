package expr

import (
	"sar/core/graph"
	"sar/core/internal/vec"
	"sar/core/internal/view"
	"sar/core/kernel"
)

// PushLayout is what travels where owners of sources compute gradients: readers of the
// sources send one row for each destination that the owner's sources reach, and get back
// one row of gradients for it. In place of two rows of a source, its value and its
// gradient, one row of a destination travels, and little more where the gradients of
// destinations are scores.
type PushLayout struct {
	sent          []inputAt // of destinations, side by side in a row that goes out, at offsets in bytes
	returned      []inputAt // operands whose gradients return, of all rows of a frame one after the other
	returnedWidth int
	// SentBytes and ReturnedBytes are the sizes of a row that goes out, and of one that returns.
	SentBytes, ReturnedBytes int
}

// inputAt is an input of side V and how many elements a row has before it.
type inputAt struct{ input, width, offset int }

// pushLayout is nil where the sweep needs more than sources, destinations and parameters.
func (c *code) pushLayout(elemSize int) *PushLayout {
	p := c.p
	if c.needsEdges() || c.stores() {
		return nil
	}
	x := &PushLayout{}
	send := func(input, width int) {
		size := width * elemSize
		if !c.native(input) {
			size = width * BFloat16.bytes(elemSize)
		}
		x.sent = append(x.sent, inputAt{input, width, x.SentBytes})
		x.SentBytes += aligned(size, elemSize)
	}
	if p.reduce().gradient != nil { // which messages are equal to the result
		send(p.inputResult(), p.Width())
	}
	seen := make([]bool, p.numInputs())
	for i, live := range c.live() {
		n := c.nodes[i]
		if live && n.op == opLoad && p.side(n.arg) == V && !seen[n.arg] {
			seen[n.arg] = true
			send(n.arg, n.width)
		}
	}
	for _, k := range c.sinks {
		if k.kind == sinkScatter {
			w := p.Operands[k.of].Width
			x.returned = append(x.returned, inputAt{k.of, w, x.returnedWidth})
			x.returnedWidth += w
		}
	}
	x.ReturnedBytes = x.returnedWidth * elemSize
	return x
}

// GatherPushed puts what x sends of own rows idx side by side. The phases of Deltas must
// have ended.
func (b *Backward[T]) GatherPushed(x *PushLayout, dst []T, idx []int32) {
	for _, s := range x.sent {
		if from := b.run.input(s.input); from.half != nil {
			copyPushed(b.run.Pool, x, s, view.Bytes(dst), from.half, idx)
		} else {
			copyPushed(b.run.Pool, x, s, view.Bytes(dst), from.data, idx)
		}
	}
}

func copyPushed[N any](pool *kernel.Pool, x *PushLayout, s inputAt, dst []byte, from []N, idx []int32) {
	size := view.Size[N]()
	to := kernel.RowsAt(view.Numbers[N](dst), s.offset/size, x.SentBytes/size, s.width)
	kernel.CopyRows(pool, len(idx), to, kernel.RowsOf(from, s.width, idx))
}

// AddReturned adds what the owner of sources has summed for own rows idx.
func (b *Backward[T]) AddReturned(x *PushLayout, src []T, idx []int32) {
	for _, s := range x.returned {
		to := kernel.RowsOf(b.run.Grads[s.input], s.width, idx)
		kernel.AddRows(b.run.Pool, len(idx), to, kernel.RowsAt(src, s.offset*len(idx), s.width, s.width))
	}
}

// PushedFrame is rows [First, First+N) of a peer that came.
type PushedFrame struct {
	Edges    *graph.Outgoing // into rows of the peer
	Sources  []int32         // own rows that they come from
	Frames   *graph.Frames   // has come to row First
	First, N int
}

// Outgoing sweeps over the edges into the rows of a frame, which src holds, and adds to
// back, as many rows, and to the gradients of own sources.
func (s *Sweep[T]) Outgoing(x *PushLayout, f PushedFrame, src, back []T) {
	o, n := f.Edges, f.N
	s.outgoing, s.firstRow = o, int32(f.First)
	for _, at := range x.sent {
		from := tail(view.Bytes(src), at.offset)
		if s.native(at.input) {
			s.loads[at.input] = rows[T]{data: view.Numbers[T](from), stride: x.SentBytes / view.Size[T]()}
		} else {
			half := view.Numbers[vec.BFloat16](from)
			s.loads[at.input] = rows[T]{half: half, stride: x.SentBytes / view.Size[vec.BFloat16]()}
		}
	}
	for _, at := range x.returned {
		for i, k := range s.sinks {
			if k.kind == sinkScatter && k.of == at.input {
				s.targets[i] = rows[T]{data: tail(back, at.offset*n), stride: at.width}
			}
		}
	}
	end := int32(f.First + n)
	s.thin = max(1, int64(o.NumRows/max(1, n))) // of a source's edges, about so many are of other frames
	defer func() { s.thin = 0 }()
	s.over(o.Ptr.Data, 0, len(f.Sources), true, func(i int) (int32, int64, int64) {
		k0, k1 := f.Frames.Take(i, end)
		return f.Sources[i], k0, k1
	})
}
