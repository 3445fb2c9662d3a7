package graph

import (
	"sync/atomic"

	"sar/core/internal/parallel"
	"sar/core/mem"
)

// Travels is what travels between two workers by price: so many rows, the first ones, and so many sums.
type Travels struct {
	Leading [NumPrices]int32 `json:"rows"`
	Sums    [NumPrices]int32 `json:"sums"`
}

// Lead is how many of the boundary rows, the first ones, travel as rows at a price. Those behind them reach their
// readers in sums.
func (h *Halo) Lead(price Price) int32 {
	if price == SumIsFree {
		return 0
	}
	return h.Leading[price]
}

// AllRows has every row travel.
func (h *Halo) AllRows() {
	for price := range h.Leading {
		h.Leading[price] = h.End - h.Begin
	}
}

// cover arranges the columns of each peer so that those whose rows travel come first, at every price. Columns have
// their rows, in any order, and the transpose is not made yet.
func (r *Structure) cover(threads int) (err error) {
	if err := r.moved.Make(mem.Structure, r.NumCols()-r.NumSrc); err != nil {
		return err
	}
	coverers := make([]*Coverer, max(1, threads))
	defer func() {
		for _, c := range coverers {
			if c != nil {
				c.Free()
			}
		}
	}()
	var moves atomic.Bool
	err = parallel.Each(len(coverers), len(r.Halo), func(thread, q int) (err error) {
		h := &r.Halo[q]
		if h.Begin == h.End {
			return nil
		}
		c := coverers[thread]
		if c == nil {
			if c, err = NewCoverer(r.NumDst); err != nil {
				return err
			}
			coverers[thread] = c
		}
		to := r.moved.Data[int(h.Begin)-r.NumSrc : int(h.End)-r.NumSrc]
		h.Travels = c.Arrange(r.ColPtr.Data[h.Begin:h.End+1], r.Row.Data, to)
		if !ascends(to) {
			moves.Store(true)
			err = r.moveColumns(h, to)
		}
		for i := range to {
			to[i] += h.Begin
		}
		return err
	})
	if !moves.Load() {
		r.moved.Free()
	}
	return err
}

// moveColumns puts column i of a peer to place to[i] among them.
func (r *Structure) moveColumns(h *Halo, to []int32) error {
	ptr := r.ColPtr.Data[h.Begin : h.End+1]
	rows, err := mem.Make[int32](mem.Scratch, int(ptr[len(to)]-ptr[0]))
	if err != nil {
		return err
	}
	defer rows.Free()
	copy(rows.Data, r.Row.Data[ptr[0]:])
	old, own, begin := make([]int32, len(to)+1), make([]int32, len(to)), make([]int32, len(to)+1)
	copy(old, ptr)
	copy(own, h.Rows.Data)
	begin[0] = old[0]
	for i, at := range to {
		begin[at+1] = old[i+1] - old[i]
		h.Rows.Data[at] = own[i]
	}
	for i := range to {
		begin[i+1] += begin[i]
	}
	copy(ptr[1:len(to)], begin[1:]) // the first and the last are of the neighbours too, and stay
	for i, at := range to {
		copy(r.Row.Data[ptr[at]:ptr[at+1]], rows.Data[old[i]-old[0]:old[i+1]-old[0]])
	}
	return nil
}
