package exchange

import (
	"sync"

	"sar/core/expr"
	"sar/core/mem"
)

// columnParts is in how many parts the gradients of own rows are computed that a round
// trip has besides.
const columnParts = 16

// localGradients computes the gradients of own rows while rows of peers come and return. A
// part is summed apart and then added to the gradients, so that what the first peer
// returns may be added before or after: a sum of two has the same bits in either
// order. What other peers return comes after both.
type localGradients[T expr.Float] struct {
	x        program[T]
	sweep    *expr.Sweep[T]
	operands uint32 // whose gradients they are

	parts [][]int32    // columns of each
	sums  mem.Array[T] // of a part, operands side by side
	rows  []int32      // of a part, ascending
	mu    sync.Mutex   // of grads
}

func newLocalGradients[T expr.Float](x program[T], sweep *expr.Sweep[T], operands uint32) (*localGradients[T], error) {
	o := &localGradients[T]{x: x, sweep: sweep, operands: operands, parts: columnsOf(x.Rel.NumSrc, x.Rel.Order.Data)}
	most := 0
	for _, list := range o.parts {
		most = max(most, len(list))
	}
	var err error
	o.rows = make([]int32, most)
	o.sums, err = mem.Make[T](mem.Scratch, most*x.Program.Packed(operands))
	return o, err
}

// columnsOf cuts n columns into parts by number, and keeps to the relation's order of
// rows in each, where it has one.
func columnsOf(n int, order []int32) [][]int32 {
	parts, columns := make([][]int32, min(n, columnParts)), make([]int32, n)
	if len(order) == n {
		orderByPart(columns, order, len(parts))
	} else {
		for j := range columns {
			columns[j] = int32(j)
		}
	}
	for part := range parts {
		parts[part] = columns[firstOf(part, n, len(parts)):firstOf(part+1, n, len(parts))]
	}
	return parts
}

// partOf is the part of column j of n.
func partOf(j int32, n, parts int) int { return int(int64(j) * int64(parts) / int64(n)) }

// firstOf is the first column of a part.
func firstOf(part, n, parts int) int {
	return int((int64(part)*int64(n) + int64(parts) - 1) / int64(parts))
}

// orderByPart writes the columns of order to dst, those of each part together.
func orderByPart(dst, order []int32, parts int) {
	next := make([]int, parts)
	for part := range next {
		next[part] = firstOf(part, len(order), parts)
	}
	for _, j := range order {
		part := partOf(j, len(order), parts)
		dst[next[part]] = j
		next[part]++
	}
}

// part computes one part.
func (o *localGradients[T]) part(part int) {
	list := o.parts[part]
	n, stride := len(list), o.x.Program.Packed(o.operands)
	first := 0
	for _, before := range o.parts[:part] {
		first += len(before)
	}
	sums := o.sums.Data[:n*stride]
	clear(sums)
	o.x.operands(o.operands, func(i, offset int) { o.sweep.Target(i, sums, offset, stride, int32(first)) })
	o.sweep.ColumnsOf(list)
	for i := range list {
		o.rows[i] = int32(first + i)
	}
	o.add(sums, o.rows[:n])
}

// add adds to the gradients of rows idx.
func (o *localGradients[T]) add(src []T, idx []int32) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.x.addReturned(o.operands, src, idx)
}

// needs is how many parts come before what is returned for rows idx, which ascend, in
// round r.
func (o *localGradients[T]) needs(r int, idx []int32) int {
	if r == 1 {
		return 0
	}
	return partOf(idx[len(idx)-1], o.x.Rel.NumSrc, len(o.parts)) + 1
}
