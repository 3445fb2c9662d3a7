package kernel

import "sar/core/internal/vec"

// Numbers are of T, or of bfloat16, which are computed with as T and rounded where they are stored.
type Numbers[T Float] struct {
	Data []T
	Half []BFloat16 // in place of Data
}

func (x Numbers[T]) size() int { return max(len(x.Data), len(x.Half)) }

// nearElements are computed at a time where they are widened, dropped or rounded, or a row. With 2048, 8 KiB,
// addresses that are the same but for their pages make dropout a third slower.
const nearElements = 256

// workspace computes rows that are stored in bfloat16 or dropped, some at a time and in room of its own.
type workspace[T Float] struct {
	ops         *vec.Ops[T]
	drop        *dropper[T] // nil: nothing is dropped
	width, step int
	room        []T // [arrays, step]
}

// newWorkspace takes rows of arrays, of elements elements. They are computed where they lie, all at a time, if none is
// stored in bfloat16 and nothing is dropped.
func newWorkspace[T Float](elements, width int, drop Dropout, arrays ...Numbers[T]) *workspace[T] {
	w := &workspace[T]{ops: vec.Get[T](), width: width, step: elements}
	apart := drop.Share != 0
	if apart {
		w.drop = dropOf[T](drop)
	}
	for _, x := range arrays {
		apart = apart || x.Half != nil
	}
	if apart {
		w.step = min(w.step, max(1, nearElements/width)*width)
		w.room = make([]T, len(arrays)*w.step)
	}
	return w
}

// each calls f with runs of the elements from begin to end.
func (w *workspace[T]) each(begin, end int, f func(begin, end int)) {
	for ; begin < end; begin += w.step {
		f(begin, min(end, begin+w.step))
	}
}

// of is where elements from begin to end of x, array number k, are computed.
func (w *workspace[T]) of(k int, x Numbers[T], begin, end int) []T {
	if x.Half == nil {
		return x.Data[begin:end]
	}
	return w.room[k*w.step:][:end-begin]
}

// read is elements of x, array number k.
func (w *workspace[T]) read(k int, x Numbers[T], begin, end int) []T {
	to := w.of(k, x, begin, end)
	if x.Half != nil {
		w.ops.Widen(to, x.Half[begin:end])
	}
	return to
}

// kept is read of what dropout leaves of x.
func (w *workspace[T]) kept(k int, x Numbers[T], begin, end int) []T {
	from := w.read(k, x, begin, end)
	if w.drop == nil {
		return from
	}
	to := w.room[k*w.step:][:end-begin]
	w.drop.rows(to, from, w.width, begin/w.width)
	return to
}

// store rounds what was computed in the place of elements of z, if z is stored in bfloat16.
func (w *workspace[T]) store(z Numbers[T], from []T, begin, end int) {
	if z.Half != nil {
		w.ops.Narrow(z.Half[begin:end], from)
	}
}
