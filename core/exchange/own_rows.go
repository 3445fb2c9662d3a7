package exchange

import (
	"cmp"
	"slices"
	"sync"

	"sar/core/expr"
	"sar/core/graph"
	"sar/core/kernel"
	"sar/core/mem"
)

// ownRows is how gradients of own rows are computed in parts, between which what peers send is added. What the first
// peer sends may be added before a part or after it: a sum of two has the same bits in either order. What later peers
// send comes after both. So own rows are in groups by number, and rows of a group are added, peer after peer, when its
// parts have ended.
type ownRows struct {
	rel    *graph.Relation
	groups int
	after  []int // so many parts have ended when a group has
}

// first is the first row of a group, of is the group of a row.
func (o *ownRows) first(group int) int {
	return int((int64(group)*int64(o.rel.NumSrc) + int64(o.groups) - 1) / int64(o.groups))
}

func (o *ownRows) of(row int32) int { return int(int64(row) * int64(o.groups) / int64(o.rel.NumSrc)) }

// arrange writes the rows of order to dst, those of each group together.
func (o *ownRows) arrange(dst, order []int32) {
	next := make([]int, o.groups)
	for group := range next {
		next[group] = o.first(group)
	}
	for _, row := range order {
		group := o.of(row)
		dst[next[group]] = row
		next[group]++
	}
}

// needs is Parts.Needs.
func (o *ownRows) needs(r, first, n int) int {
	if r == 1 || n == 0 {
		return 0
	}
	return o.after[o.of(slices.Max(o.rel.Send[r].Data[first:first+n]))]
}

// until is Movement.Until. Rows that are sent ascend.
func (o *ownRows) until(r, passes int) int {
	rows, _ := slices.BinarySearch(o.rel.Send[r].Data, int32(o.first(passes)))
	return rows
}

const (
	// ownParts is how often a worker looks for arrivals while it computes a product from own rows.
	ownParts = 32
	// ownGroups is the most groups of own rows. A group of a product has groupRows rows or more, because
	// rows that read the same ones are computed together only within a group, and peerRows
	// of some peer, because a pass over less costs more than it hides.
	ownGroups, groupRows, peerRows = 16, 4096, 64
)

// ownProduct is the gradient of a plain sum, which adds to rows that the first peer has sent already.
type ownProduct struct {
	ownRows
	product       kernel.Accumulation
	shared        mem.Array[uint8] // 1: the first peer reads the row
	order, before mem.Array[int32]
}

// newOwnProduct takes how many rows come from each peer, by round.
func (a *plainSum[T]) newOwnProduct(gradU []T, own kernel.Product[T], rows []int) (o *ownProduct, err error) {
	rel, n := a.Rel, a.Rel.NumSrc
	o = &ownProduct{ownRows: ownRows{rel: rel, groups: 1}}
	if rel.Parts == 1 {
		o.product = kernel.Accumulation{Parts: 1, Run: func(int) { a.all(gradU, a.HalfGradOf(a.rows), own) }}
		return o, nil
	}
	defer func() {
		if err != nil {
			o.free()
		}
	}()
	if o.shared, err = mem.Make[uint8](mem.Scratch, n); err != nil {
		return nil, err
	}
	first := rel.Send[1].Data
	for _, i := range first {
		o.shared.Data[i] = 1
	}
	kernel.ClearRows(a.Pool, gradU, a.width, first)
	if rel.Parts > 2 && rel.Ascends() {
		o.groups = max(1, min(ownGroups, n/groupRows, slices.Max(rows)/peerRows))
	}
	if o.groups > 1 && own.A.Order.Rows != nil {
		if err = cmp.Or(o.order.Make(mem.Scratch, n), o.before.Make(mem.Scratch, n+1)); err != nil {
			return nil, err
		}
		o.arrange(o.order.Data, own.A.Order.Rows)
		graph.CountBefore(o.before.Data, own.A.Ptr32, o.order.Data)
		own.A.Order = kernel.Order{Rows: o.order.Data, Before32: o.before.Data}
	}
	ends := make([]int, o.groups)
	for g := range ends {
		ends[g] = o.first(g + 1)
	}
	o.product = kernel.SpMMAccumulate(a.Pool, gradU, own, o.shared.Data, ownParts, ends...)
	o.after = o.product.After
	return o, nil
}

func (o *ownProduct) free() {
	o.shared.Free()
	o.order.Free()
	o.before.Free()
}

// ownColumns is the gradients that a sweep over columns makes. A part is summed by itself and then taken: added, or
// rounded.
type ownColumns[T expr.Float] struct {
	ownRows
	x        program[T]
	sweep    *expr.Sweep[T]
	operands uint32 // whose gradients they are

	columns []int32      // group by group
	sums    mem.Array[T] // of a part, operands side by side
	rows    []int32      // of a part, ascending
	take    func(sums []T, rows []int32)
	mu      sync.Mutex // of grads
}

func newOwnColumns[T expr.Float](x program[T], sweep *expr.Sweep[T], operands uint32) (o *ownColumns[T], err error) {
	n := x.Rel.NumSrc
	o = &ownColumns[T]{x: x, sweep: sweep, operands: operands, columns: make([]int32, n)}
	o.ownRows = ownRows{rel: x.Rel, groups: min(n, ownGroups)}
	for j := range o.columns {
		o.columns[j] = int32(j)
	}
	if order := x.Rel.Order.Data; len(order) == n && n > 0 {
		o.arrange(o.columns, order)
	}
	most := 0
	for g := range o.groups {
		o.after = append(o.after, g+1)
		most = max(most, o.first(g+1)-o.first(g))
	}
	o.rows, o.take = make([]int32, most), o.add
	o.sums, err = mem.Workspace[T](most * x.Program.RowWidth(operands))
	return o, err
}

// part computes one part.
func (o *ownColumns[T]) part(part int) {
	first, end := o.first(part), o.first(part+1)
	n, stride := end-first, o.x.Program.RowWidth(o.operands)
	sums := o.sums.Data[:n*stride]
	clear(sums)
	o.x.operands(o.operands, false, func(i, offset int) { o.sweep.Target(i, sums, offset, stride, int32(first)) })
	o.sweep.ColumnsOf(o.columns[first:end])
	for i := range n {
		o.rows[i] = int32(first + i)
	}
	o.take(sums, o.rows[:n])
}

// add adds to the gradients of rows idx.
func (o *ownColumns[T]) add(src []T, idx []int32) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.x.addReturned(o.operands, src, idx)
}

// round writes the gradients of rows idx.
func (o *ownColumns[T]) round(src []T, idx []int32) {
	stride := o.x.Program.RowWidth(o.operands)
	o.x.operands(o.operands, false, func(i, offset int) {
		w := o.x.Program.Operands[i].Width
		to := kernel.RowsOf(o.x.HalfGrads[i], w, idx)
		kernel.NarrowRows(o.x.Pool, len(idx), to, kernel.RowsAt(src, offset, stride, w))
	})
}
