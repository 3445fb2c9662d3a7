package exchange

import (
	"slices"

	"sar/core/graph"
	"sar/core/kernel"
	"sar/core/mem"
)

const (
	// ownParts is how often a worker looks for arrivals while it computes from own rows.
	ownParts = 32
	// ownGroups is the most groups of own rows. A group has groupRows rows or more, because
	// rows that read the same ones are computed together only within a group, and peerRows
	// of some peer, because a pass over less costs more than it hides.
	ownGroups, groupRows, peerRows = 16, 4096, 64
)

// ownGradients is the product with own rows in parts, between which what peers send is
// added. What the first peer sends may be added before the product or after it: a sum of
// two has the same bits in either order. What later peers send comes after both, so own
// rows are in groups by number, and rows of a group are added, peer after peer, when its
// parts have ended.
type ownGradients[T kernel.Float] struct {
	rel           *graph.Relation
	groups        int
	product       kernel.Accumulation
	shared        mem.Array[uint8] // 1: the first peer reads the row
	order, before mem.Array[int32]
}

// newOwnGradients takes how many rows come from each peer, by round.
func (a *Aggregate[T]) newOwnGradients(gradU []T, own kernel.Product[T], rows []int) (o *ownGradients[T], err error) {
	rel, n := a.Rel, a.Rel.NumSrc
	o = &ownGradients[T]{rel: rel, groups: 1}
	if rel.Parts == 1 {
		o.product = kernel.Accumulation{Parts: 1, Run: func(int) { kernel.SpMM(a.Pool, gradU, own) }}
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
	kernel.ClearRows(a.Pool, gradU, a.Width, first)
	if rel.Parts > 2 {
		o.groups = max(1, min(ownGroups, n/groupRows, slices.Max(rows)/peerRows))
	}
	if o.groups > 1 && own.A.Order.Rows != nil {
		if err = o.group(&own.A); err != nil {
			return nil, err
		}
	}
	ends := make([]int, o.groups)
	for g := range ends {
		ends[g] = firstOf(g+1, n, o.groups)
	}
	o.product = kernel.SpMMAccumulate(a.Pool, gradU, own, o.shared.Data, ownParts, ends...)
	return o, nil
}

// group puts rows of a group together, and keeps to the order in each.
func (o *ownGradients[T]) group(own *kernel.CSR) (err error) {
	if o.order, err = mem.Make[int32](mem.Scratch, o.rel.NumSrc); err != nil {
		return err
	}
	if o.before, err = mem.Make[int32](mem.Scratch, o.rel.NumSrc+1); err != nil {
		return err
	}
	orderByPart(o.order.Data, own.Order.Rows, o.groups)
	graph.CountBefore(o.before.Data, own.Ptr32, o.order.Data)
	own.Order = kernel.Order{Rows: o.order.Data, Before32: o.before.Data}
	return nil
}

// needs is Movement.Needs.
func (o *ownGradients[T]) needs(r, first, n int) int {
	if r == 1 || n == 0 {
		return 0
	}
	return o.product.After[partOf(o.rel.Send[r].Data[first+n-1], o.rel.NumSrc, o.groups)]
}

// until is Movement.Until.
func (o *ownGradients[T]) until(r, passes int) int {
	rows, _ := slices.BinarySearch(o.rel.Send[r].Data, int32(firstOf(passes, o.rel.NumSrc, o.groups)))
	return rows
}

func (o *ownGradients[T]) free() {
	o.shared.Free()
	o.order.Free()
	o.before.Free()
}
