package exchange

import (
	"fmt"

	"sar/core/comm"
	"sar/core/graph"
	"sar/core/internal/view"
	"sar/core/kernel"
)

// Covering says which boundary rows a plain sum sends, and which sums in place of the others. The zero value sends all
// rows. Backward uses a covering with the roles exchanged: where a sum travelled, the row of its destination
// does, and where a row travelled, the sum of its gradient.
type Covering struct {
	Cover *graph.Cover // nil: all rows travel
	Price graph.Price  // that of the cover
	// Weights are, by round, those of the edges of Cover.Sums, where the sum has some.
	Weights [][]byte
}

// named adds to the name of an operation what ranks have to agree on.
func (c Covering) named(rows string) string {
	if c.Cover == nil {
		return rows
	}
	return fmt.Sprintf("%s, or sums of price %d,", rows, c.Price)
}

// rows is how many boundary rows travel in each round, from this worker and to it.
func (c Covering) rows(rel *graph.Relation) (send, recv []int) {
	send, recv = SendRows(rel), HaloRows(rel)
	if c.Cover != nil {
		for r := 1; r < rel.Parts; r++ {
			send[r], recv[r] = rel.Lead(r, c.Price), int(rel.Halo[r].Lead(c.Price))
		}
	}
	return send, recv
}

// sums is how many sums there are in each round, which this worker makes and which it gets.
func (c Covering) sums() (made, got []int) {
	made, got = make([]int, len(c.Cover.Rows)), make([]int, len(c.Cover.Rows))
	for r := range made {
		made[r], got[r] = c.Cover.Sums[r].NumSums(), len(c.Cover.Rows[r].Data)
	}
	return made, got
}

// partialSums is what forward sends ahead of rows: sums of own rows for rows of peers, which add them to out.
func (a *plainSum[T]) partialSums(c Covering, out []T) *Ahead {
	made, got := c.sums()
	return &Ahead{
		Way: comm.ToOwner, RowBytes: a.sumBytes(), Send: made, Recv: got,
		Produce: func(r, first, n int, dst []byte) error {
			sums := kernel.CSR{Ptr32: c.Cover.Sums[r].Ptr.Data, Col: c.Cover.Sums[r].Col.Data}
			kernel.SpMMRows(a.Pool, view.Numbers[T](dst), a.ofSums(c, r, a.product(sums, a.u, nil, nil)), first, first+n)
			return nil
		},
		Consume: func(r, first, n int, src []byte) error {
			to := kernel.RowsOf(out, a.width, c.Cover.Rows[r].Data[first:first+n])
			kernel.AddRows(a.Pool, n, to, kernel.RowsOf(view.Numbers[T](src), a.width, nil))
			return nil
		},
	}
}

// ofSums gives a product over the sums of a round the weights of their edges.
func (a *plainSum[T]) ofSums(c Covering, round int, m kernel.Product[T]) kernel.Product[T] {
	if a.w != nil {
		m.W = view.Numbers[T](c.Weights[round])
	}
	return m
}

// gradientRows is what backward sends ahead: rows of destinations, which owners of sources add to gradU where it is
// not nil.
func (a *plainSum[T]) gradientRows(c Covering, gradU []T) *Ahead {
	made, got := c.sums()
	grad := view.Bytes(a.Grad)
	if a.HalfGrad != nil {
		grad = view.Bytes(a.HalfGrad)
	}
	return &Ahead{
		Way: comm.Pushed, RowBytes: a.gradBytes(), Send: got, Recv: made,
		Produce: func(r, first, n int, dst []byte) error {
			gather(a.Pool, dst, grad, a.gradBytes(), c.Cover.Rows[r].Data[first:first+n])
			return nil
		},
		Consume: func(r, first, n int, src []byte) error {
			if gradU == nil {
				return nil
			}
			var scale []T
			if a.mean {
				for _, degree := range c.Cover.InDegree[r].Data[first : first+n] {
					scale = append(scale, 1/T(degree))
				}
			}
			sums := &c.Cover.Sums[r]
			columns := kernel.Columns{
				Ptr: sums.Ptr.Data, Rows: sums.Col.Data, Begin: int32(first), End: int32(first + n),
			}
			product := a.product(kernel.CSR{}, rowsIn[T](src, a.HalfGrad != nil), scale, nil)
			kernel.SpMMScatter(a.Pool, gradU, a.ofSums(c, r, product), columns)
			return nil
		},
	}
}

// gradBytes is the size of a row of the result's gradient.
func (a *plainSum[T]) gradBytes() int {
	if a.HalfGrad != nil {
		return a.width * view.Size[kernel.BFloat16]()
	}
	return a.sumBytes()
}
