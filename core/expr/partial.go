package expr

import (
	"errors"
	"slices"

	"sar/core/graph"
	"sar/core/internal/vec"
	"sar/core/internal/view"
	"sar/core/kernel"
)

// PartialLayout is what travels where owners of sources compute what these come to at a destination: readers send what
// the program reads of it, and get back its part of the result, of an online softmax the reference that this
// is relative to and the sum, and of greatest and least messages, in a byte, which of the sum's edges won, or how many.
// In a frame, each of them is of all rows, one after the other.
type PartialLayout struct {
	sent    []inputAt // sizes in bytes, offsets of one row
	softmax int       // the width of the online softmax, 0 where there is none
	// Ranked tells whether the sums have to be ranked.
	Ranked bool
	// SentBytes and ReturnedBytes are the sizes of what goes out, and of what returns, for a row of a destination,
	// RowBytes that of a row of a source.
	SentBytes, ReturnedBytes, RowBytes int
}

// Partial is nil where the program needs more than one sweep, or more than sources, destinations and parameters, or
// where its results are of edges.
func (p *Program) Partial(elemSize int) *PartialLayout {
	codes := p.forwardCodes()
	if len(codes) != 1 || p.Reduce == None || codes[0].needsEdges() || codes[0].values()&p.sources() == 0 {
		return nil
	}
	x := &PartialLayout{Ranked: p.KeepsWinner()}
	for i, o := range p.Operands {
		if o.Side == V && wanted(codes[0].values(), i) {
			size := o.RowBytes(elemSize)
			x.sent = append(x.sent, inputAt{i, size, x.SentBytes})
			x.SentBytes += size
		}
	}
	if p.online >= 0 {
		x.softmax = p.softmaxes[p.online].width
	}
	x.RowBytes = p.RowBytes(codes[0].values()&p.sources(), elemSize)
	x.ReturnedBytes = (p.Width() + 2*x.softmax) * elemSize
	if x.Ranked {
		x.ReturnedBytes = rankedBytes(p.Width(), elemSize)
	}
	return x
}

// rankedBytes is the size of a row of numbers, each of which has a byte besides.
func rankedBytes(width, elemSize int) int { return aligned(width*(elemSize+1), elemSize) }

// Partials computes partial results of peers' rows, and takes those that peers have computed for own rows.
type Partials[T Float] struct {
	layout *PartialLayout
	own    *Run[T]
	theirs *Run[T] // over the sums of a frame, as if their rows were own
	sweep  *Sweep[T]
	winner []int32 // of theirs, with room for a frame
}

// Partials are those of a run, where its program has some.
func (r *Run[T]) Partials(layout *PartialLayout) *Partials[T] {
	x := &Partials[T]{layout: layout, own: r}
	x.theirs = &Run[T]{
		Program: r.Program, Rel: &graph.Relation{Structure: &graph.Structure{NumSrc: r.Rel.NumSrc}}, Pool: r.Pool,
		Operands: slices.Clone(r.Operands), Stored: slices.Clone(r.Stored), plain: r.plain, slots: true,
		Most: make([][]T, len(r.Most)), Inv: make([][]T, len(r.Inv)),
	}
	return x
}

// Gather puts what is sent of own rows idx into a frame.
func (x *Partials[T]) Gather(dst []byte, idx []int32) {
	for _, s := range x.layout.sent {
		data, size := x.own.Bytes(s.input)
		to := kernel.RowsOf(dst[s.offset*len(idx):], size, nil)
		kernel.CopyRows(x.own.Pool, len(idx), to, kernel.RowsOf(data, size, idx))
	}
}

// reply is what returns of n rows: results, and of the softmax references and sums.
func (x *Partials[T]) reply(frame []byte, n int) (out, most, sum []T) {
	w, h, data := n*x.own.Program.Width(), n*x.layout.softmax, view.Numbers[T](frame)
	return data[:w], data[w : w+h], data[w+h:][:h]
}

// Compute fills a reply with partial results of sums [first, first+n), whose rows src holds.
func (x *Partials[T]) Compute(sums *graph.Partial, first, n int, src, reply []byte) {
	r := x.theirs
	r.Rel.RowPtr.Data, r.Rel.Col.Data, r.Rel.NumDst = sums.Ptr.Data[first:first+n+1], sums.Col.Data, n
	for _, s := range x.layout.sent {
		if of := src[s.offset*n:][:n*s.width]; r.Program.Operands[s.input].Storage == Native {
			r.Operands[s.input] = view.Numbers[T](of)
		} else {
			r.Stored[s.input] = of
		}
	}
	out, most, sum := x.reply(reply, n)
	if x.layout.Ranked {
		x.winner = slices.Grow(x.winner[:0], len(out))
		r.Winner = x.winner[:len(out)]
	}
	if r.Out = out; r.Program.online >= 0 {
		r.Most[r.Program.online], r.Inv[r.Program.online] = most, sum
	}
	if x.sweep == nil {
		x.sweep = newSweep(compile[T](r.Program.forwardCodes()[0], r.plain), r)
	}
	r.start()
	x.sweep.bind()
	x.sweep.targets[0] = rows[T]{data: out, stride: r.Program.Width()}
	x.sweep.Rows(nil, 0, int32(r.Rel.NumSrc))
	if x.layout.Ranked {
		x.writeRanks(sums.Ptr.Data[first:first+n+1], ranks[T](reply, len(out)))
	}
}

// Take adds partial results to those of own rows idx. Only ranked sums, whose edges are asked for, have a row more than
// once, one after the other.
func (x *Partials[T]) Take(src []byte, idx []int32, edges func(k int, list []int32) []int32) error {
	r, n := x.own, len(idx)
	w, h, d := r.Program.Width(), x.layout.softmax, 0
	if r.Program.online >= 0 {
		d = r.Program.runOfHeads()
	}
	out, most, sum := x.reply(src, n)
	const share = 256
	shares := (n + share - 1) / share
	begin := func(t int) int {
		k := min(n, t*share)
		for k > 0 && k < n && idx[k] == idx[k-1] {
			k++
		}
		return k
	}
	refused := make([]error, shares)
	r.Pool.Run(shares, func(t int) {
		factors := newFactors[T](h)
		if x.layout.Ranked {
			refused[t] = x.takeRanked(out, ranks[T](src, len(out)), idx, begin(t), begin(t+1), edges)
			return
		}
		for k := begin(t); k < begin(t+1); k++ {
			to, own := r.Out[int(idx[k])*w:][:w], out[k*w:(k+1)*w]
			if r.Program.online < 0 {
				vec.Get[T]().Add(to, own)
				continue
			}
			r.mergeWeights(r.Program.online, idx[k], most[k*h:(k+1)*h], sum[k*h:(k+1)*h], &factors)
			r.mergeWeighed(to, own, &factors, d)
		}
	})
	return errors.Join(refused...)
}
