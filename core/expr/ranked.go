package expr

import (
	"fmt"
	"slices"

	"sar/core/graph"
	"sar/core/internal/view"
	"sar/core/kernel"
)

// Which edge of a ranked sum won travels as a byte: its rank, from 1 on, or 0 where none did. Where equal messages
// share the gradient, the byte is how many won.

// ranks are the bytes behind so many numbers of a frame.
func ranks[T Float](frame []byte, numbers int) []byte {
	return frame[numbers*view.Size[T]():][:numbers]
}

// writeRanks writes what theirs has found of sums whose slots begin so.
func (x *Partials[T]) writeRanks(begin []int32, to []byte) {
	w, which := x.own.Program.Width(), x.own.Program.namesWinner()
	inShares(x.own.Pool, len(begin)-1, rankedRows, func(from, end int) {
		for i := from; i < end; i++ {
			for j, won := range x.theirs.Winner[i*w : (i+1)*w] {
				if which && won >= 0 {
					won -= begin[i] - 1
				}
				to[i*w+j] = byte(max(0, won))
			}
		}
	})
}

// checkRanks refuses the ranks of a row that came from a peer where its sum has fewer edges.
func checkRanks(row []byte, edges int) error {
	for _, n := range row {
		if int(n) > edges {
			return fmt.Errorf("expr: a peer names edge %d of a sum of %d", n, edges)
		}
	}
	return nil
}

// takeRanked takes partial results [from, to) into those of own rows idx.
func (x *Partials[T]) takeRanked(out []T, rank []byte, idx []int32, from, to int,
	edges func(k int, list []int32) []int32) error {
	r := x.own
	w, def := r.Program.Width(), &defsOf[T]().reduces[r.Program.Reduce]
	won, list := make([]int32, w), []int32(nil)
	for k := from; k < to; k++ {
		if r.Program.namesWinner() {
			list = edges(k, append(list[:0], def.startWon))
			if err := checkRanks(rank[k*w:(k+1)*w], len(list)-1); err != nil {
				return err
			}
		}
		for j, n := range rank[k*w : (k+1)*w] {
			if won[j] = int32(n); list != nil {
				won[j] = list[n]
			}
		}
		i := int(idx[k])
		def.merge(nil, r.Out[i*w:(i+1)*w], out[k*w:(k+1)*w], r.won(i), won)
	}
	return nil
}

// namesWinner tells whether Winner has edges, rather than how many won.
func (p *Program) namesWinner() bool { return p.KeepsWinner() && !p.reduce().readsResult }

// pickBytes is the size of what the reader of a ranked sum sends to have the gradient of the result reach the sources
// that won; 0 where something else than that is needed, or nothing. Of a plan without fetching.
func (c *code) pickBytes(elemSize int) int {
	if len(c.sinks) != 1 || !c.p.namesWinner() {
		return 0
	}
	n := c.nodes[c.sinks[0].reg]
	if n.op != opWinner || c.nodes[n.a].op != opLoad || c.nodes[n.a].arg != c.p.inputGrad() {
		return 0
	}
	return rankedBytes(n.width, elemSize)
}

// GatherPicked puts gradients of own rows idx into a frame, with the ranks of the edges that won.
func (b *Backward[T]) GatherPicked(dst []byte, idx []int32, edges func(k int, list []int32) []int32) {
	r, w := b.run, b.run.Program.Width()
	n := len(idx) * w
	kernel.CopyRows(r.Pool, len(idx), kernel.RowsOf(view.Numbers[T](dst), w, nil), kernel.RowsOf(r.grad, w, idx))
	rank := ranks[T](dst, n)
	inShares(r.Pool, len(idx), rankedRows, func(from, end int) {
		var list []int32
		for k := from; k < end; k++ {
			list = edges(k, list[:0])
			for j, won := range r.won(int(idx[k])) {
				at, found := slices.BinarySearch(list, won)
				if rank[k*w+j] = 0; found {
					rank[k*w+j] = byte(at + 1)
				}
			}
		}
	})
}

// inShares calls f for runs of share of n rows, on all threads.
func inShares(p *kernel.Pool, n, share int, f func(from, end int)) {
	p.Run((n+share-1)/share, func(t int) { f(t*share, min(n, (t+1)*share)) })
}

// rankedRows are taken by a thread at a time.
const rankedRows = 256

// AddPicked adds the gradients of ranked sums [first, first+n), which src holds, to those of the sources that won.
func (b *Backward[T]) AddPicked(sums *graph.Partial, first, n int, src []byte) error {
	w, to := b.run.Program.Width(), b.Own.targets[0].data
	grad, rank, ptr := view.Numbers[T](src)[:n*w], ranks[T](src, n*w), sums.Ptr.Data[first:first+n+1]
	for i := range n {
		if err := checkRanks(rank[i*w:(i+1)*w], int(ptr[i+1]-ptr[i])); err != nil {
			return err
		}
	}
	const columns = 16 // of a task, which adds in the order of the sums
	inShares(b.run.Pool, w, columns, func(from, end int) {
		for i := range n {
			for j := from; j < end; j++ {
				if k := rank[i*w+j]; k > 0 {
					to[int(sums.Col.Data[ptr[i]+int32(k)-1])*w+j] += grad[i*w+j]
				}
			}
		}
	})
	return nil
}
