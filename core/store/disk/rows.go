package disk

import "fmt"

// Pairs yields count pairs of numbers, a batch at a time, that first and second read from a place on.
func Pairs(count int64, first, second func(at int64, dst []int64) error,
	yield func(at int64, a, b []int64) error) error {
	room := min(Batch, count)
	a, b := make([]int64, room), make([]int64, room)
	for at := int64(0); at < count; at += Batch {
		n := min(Batch, count-at)
		err := first(at, a[:n])
		if err == nil {
			err = second(at, b[:n])
		}
		if err == nil {
			err = yield(at, a[:n], b[:n])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// RowWalker gives the row of every slot of a compressed matrix, slot by slot.
type RowWalker struct {
	Ptr         *Array
	Rows, Edges int64
	row         int64 // the one after that of the slot before
	end         int64 // first slot of it
	buf         []int64
	bufAt       int64 // row whose end buf[0] is
}

func (w *RowWalker) Fill(at int64, dst []int64) error {
	for i := range dst {
		for at+int64(i) >= w.end {
			if w.row >= w.Rows {
				return w.Ptr.File.Bad(w.Ptr.Offset, fmt.Sprintf("row pointers that reach the %d edges", w.Edges), "%d", w.end)
			}
			if w.buf == nil || w.row-w.bufAt >= int64(len(w.buf)) {
				w.buf, w.bufAt = make([]int64, min(Batch, w.Rows-w.row)), w.row
				if err := w.Ptr.Ints(w.row+1, w.buf); err != nil {
					return err
				}
			}
			next := w.buf[w.row-w.bufAt]
			if next < w.end || next > w.Edges {
				return w.Ptr.File.Bad(w.Ptr.Offset+(w.row+1)*int64(w.Ptr.DType.Size()),
					fmt.Sprintf("row pointers that ascend from %d to at most %d", w.end, w.Edges), "%d", next)
			}
			w.end, w.row = next, w.row+1
		}
		dst[i] = w.row - 1
	}
	return nil
}
