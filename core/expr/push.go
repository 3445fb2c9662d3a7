package expr

import (
	"sar/core/graph"
)

// Push is a backward pass computed by the owners of sources: destinations send what it
// reads of them, and get back what it adds up for them. In place of two rows of
// a source, its value and its gradient, one row of a destination travels, and little
// more where the gradients of destinations are scores.
type Push struct {
	p     *Program
	code  *code
	slots []slotAt // of destinations, side by side in a row that goes out
	back  []slotAt // operands whose gradients come back, of all rows of a frame one after the other
	// There and Back are the elements of a row that goes out, and of one that comes back.
	There, Back int
}

// slotAt is a slot of side V, or an operand, and how many elements a row has before it.
type slotAt struct{ slot, width, offset int }

// Push is nil where the gradients of the operands in set need more than sources,
// destinations and parameters, or a sweep by rows besides. Elements have size bytes.
func (p *Program) Push(set uint32, size int) *Push {
	if p.Reduce == None || p.Reduce == Max || p.Reduce == Min {
		return nil
	}
	b := p.backwardCodes(set, size)
	if b.source == nil || b.target != nil || b.source.needsEdges() {
		return nil
	}
	x := &Push{p: p, code: b.source}
	seen := make([]bool, p.numSlots())
	for i, live := range b.source.live() {
		n := b.source.nodes[i]
		if !live || n.op != opLoad || p.side(n.slot) != V || seen[n.slot] {
			continue
		}
		seen[n.slot] = true
		x.slots = append(x.slots, slotAt{n.slot, n.width, x.There})
		x.There += n.width
	}
	for _, k := range b.source.sinks {
		if k.kind == sinkScatter {
			w := p.Operands[k.slot].Width
			x.back = append(x.back, slotAt{k.slot, w, x.Back})
			x.Back += w
		}
	}
	return x
}

// PackTargets puts what x reads of own rows idx side by side. The phases of Deltas must
// have ended.
func (r *Run[T]) PackTargets(x *Push, dst []T, idx []int32) {
	for _, s := range x.slots {
		GatherRows(r.Pool, dst, s.offset, x.There, r.rows(s.slot).data, s.width, idx)
	}
}

// TakeTargets adds what the owner of sources has summed for own rows idx.
func (r *Run[T]) TakeTargets(x *Push, grads [][]T, src []T, idx []int32) {
	for _, s := range x.back {
		ScatterAddRows(r.Pool, grads[s.slot], s.width, idx, src[s.offset*len(idx):], 0, s.width)
	}
}

// Pushed is the sweep over edges into rows of peers. It adds to the gradients of own
// sources, and to those of parameters when b finishes.
func (b *Backward[T]) Pushed(x *Push, grads [][]T) *Sweep[T] {
	b.pushed = b.sweep(x.code, grads)
	return b.pushed
}

// Outgoing sweeps over the edges into rows [first, first+n) of a peer, which src holds, and
// adds to back, n rows. send are the own sources of o's edges; frames has come to row first.
func (s *Sweep[T]) Outgoing(x *Push, o *graph.Outgoing, send []int32, frames *graph.Frames, first, n int, src, back []T) {
	s.outgoing, s.firstRow = o, int32(first)
	for _, at := range x.slots {
		s.loads[at.slot] = rows[T]{data: tail(src, at.offset), stride: x.There}
	}
	for _, at := range x.back {
		for i, k := range s.code.sinks {
			if k.kind == sinkScatter && k.slot == at.slot {
				s.targets[i] = rows[T]{data: tail(back, at.offset*n), stride: at.width}
			}
		}
	}
	end := int32(first + n)
	s.thin = max(1, int64(o.NumRows/max(1, n))) // of a source's edges, about so many are of other frames
	defer func() { s.thin = 0 }()
	s.over(o.Ptr.Data, 0, len(send), true, func(i int) (int32, int64, int64) {
		k0, k1 := frames.Take(i, end)
		return send[i], k0, k1
	})
}
