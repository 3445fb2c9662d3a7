package expr

import "sar/core/graph"

// PushLayout is what travels where owners of sources compute gradients: readers of the
// sources send one row for each destination that the owner's sources reach, and get back
// one row of gradients for it. In place of two rows of a source, its value and its
// gradient, one row of a destination travels, and little more where the gradients of
// destinations are scores.
type PushLayout struct {
	sent                     []slotAt // of destinations, side by side in a row that goes out
	returned                 []slotAt // operands whose gradients return, of all rows of a frame one after the other
	sentWidth, returnedWidth int
	// SentBytes and ReturnedBytes are the sizes of a row that goes out, and of one that returns.
	SentBytes, ReturnedBytes int
}

// slotAt is a slot of side V, or an operand, and how many elements a row has before it.
type slotAt struct{ slot, width, offset int }

// pushLayout is nil where the sweep needs more than sources, destinations and parameters.
func (c *code) pushLayout(elemSize int) *PushLayout {
	p := c.p
	if p.Reduce == None || p.Reduce.Extremum() || c.needsEdges() {
		return nil
	}
	x := &PushLayout{}
	seen := make([]bool, p.numSlots())
	for i, live := range c.live() {
		n := c.nodes[i]
		if !live || n.op != opLoad || p.side(n.slot) != V || seen[n.slot] {
			continue
		}
		seen[n.slot] = true
		x.sent = append(x.sent, slotAt{n.slot, n.width, x.sentWidth})
		x.sentWidth += n.width
	}
	for _, k := range c.sinks {
		if k.kind == sinkScatter {
			w := p.Operands[k.slot].Width
			x.returned = append(x.returned, slotAt{k.slot, w, x.returnedWidth})
			x.returnedWidth += w
		}
	}
	x.SentBytes, x.ReturnedBytes = x.sentWidth*elemSize, x.returnedWidth*elemSize
	return x
}

// PackPushed puts what x sends of own rows idx side by side. The phases of Deltas must
// have ended.
func (b *Backward[T]) PackPushed(x *PushLayout, dst []T, idx []int32) {
	for _, s := range x.sent {
		GatherRows(b.run.Pool, ColumnsAt(dst, s.offset, x.sentWidth, s.width), b.run.rows(s.slot).data, idx)
	}
}

// AddReturned adds what the owner of sources has summed for own rows idx.
func (b *Backward[T]) AddReturned(x *PushLayout, src []T, idx []int32) {
	for _, s := range x.returned {
		ScatterAddRows(b.run.Pool, b.run.Grads[s.slot], ColumnsAt(src, s.offset*len(idx), s.width, s.width), idx)
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
		s.loads[at.slot] = rows[T]{data: tail(src, at.offset), stride: x.sentWidth}
	}
	for _, at := range x.returned {
		for i, k := range s.code.sinks {
			if k.kind == sinkScatter && k.slot == at.slot {
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
