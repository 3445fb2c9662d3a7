package graph

import (
	"sort"

	"sar/core/mem"
)

const (
	// clusterRows is the most rows of a cluster: 1 MB at 256 columns of
	// float32, which with what else a product touches fits in 2 MiB of L2.
	clusterRows = 1024
	// orderLeast is the rows below which there is no order: narrow rows of so
	// few fit in L2 anyway.
	orderLeast = 8 * clusterRows
	// orderSweeps over the rows at most, fewer where less than one row in
	// orderStill moves; orderLooks neighbours of a row. More of either find
	// hardly better clusters. Rows of few edges need the most sweeps.
	orderSweeps, orderStill, orderLooks = 5, 8, 32
	// orderGain is the share of edges that clusters must hold beyond what runs
	// of clusterRows rows in sequence hold; orderHope what they must hold after
	// two sweeps already. Clusters of a random graph hold 2 edges a row or so,
	// 0.06 of them at 15 edges a row and 0.16 at 5; Cornell5's hold 0.30, the
	// bench graph's 0.74.
	orderGain, orderHope = 0.2, 0.05
)

// Offset numbers slots: of a relation in 32 bits, of other matrices in 64.
type Offset interface{ int32 | int64 }

// Locality is an order of the rows of a square matrix in which rows that read
// the same source rows come one after the other; empty where the matrix is
// small, or no such order is found. ptr and col are its CSR: n rows; columns
// from n on, which have no row, come last in a row and count for nothing.
//
// A product is bound by bringing source rows into L2, so that this order
// about halves its time on graphs that have communities and no good order of
// their own. Rows are clustered by label propagation:
//
//	repeat: each row takes the most frequent label of its neighbours whose
//	        cluster has room
//
// and sorted by label. It is sequential, because a row must see the labels that
// rows before it have just taken; some 10 to 50 ns an edge in all. The order
// depends on nothing but the matrix. Scratch: 12 bytes a row.
func Locality[P Offset](ptr []P, col []int32) (order mem.Array[int32], err error) {
	n := len(ptr) - 1
	if n < orderLeast {
		return order, nil
	}
	scratch, err := mem.Make[int32](mem.Scratch, 3*n)
	if err != nil {
		return order, err
	}
	defer scratch.Free()
	c := clusters[P]{ptr, col, scratch.Data[:n], scratch.Data[n : 2*n], scratch.Data[2*n:]}
	for i := range c.label {
		c.label[i], c.size[i] = int32(i), 1
	}
	for sweep, moved := 0, n; sweep < orderSweeps && moved > n/orderStill; sweep++ {
		if sweep == 2 && c.gain() < orderHope {
			return order, nil
		}
		moved = 0
		for i := range n {
			if c.move(i) {
				moved++
			}
		}
	}
	if c.gain() < orderGain {
		return order, nil
	}
	if order, err = mem.Make[int32](mem.Structure, n); err != nil {
		return order, err
	}
	c.sort(order.Data)
	return order, nil
}

// clusters is label propagation in progress. size is by label; count, by label
// too, is 0 between rows.
type clusters[P Offset] struct {
	ptr                []P
	col                []int32
	label, size, count []int32
}

// neighbours is a run of columns of row i and the step at which to look at it.
func (c *clusters[P]) neighbours(i int) (run []int32, step int) {
	run = c.col[c.ptr[i]:c.ptr[i+1]]
	if n := len(c.label); len(run) > 0 && int(run[len(run)-1]) >= n {
		run = run[:sort.Search(len(run), func(k int) bool { return int(run[k]) >= n })]
	}
	return run, 1 + len(run)/orderLooks
}

// move gives row i its label. On a tie it keeps its own, and otherwise takes
// the one that is met first. It tells whether the label is another one.
func (c *clusters[P]) move(i int) bool {
	own := c.label[i]
	run, step := c.neighbours(i)
	best, to := int32(0), own
	for k := 0; k < len(run); k += step {
		if int(run[k]) == i {
			continue
		}
		l := c.label[run[k]]
		c.count[l]++
		if c.count[l] > best && (c.size[l] < clusterRows || l == own) {
			best, to = c.count[l], l
		}
	}
	if c.count[own] >= max(best, 1) {
		to = own
	}
	for k := 0; k < len(run); k += step {
		c.count[c.label[run[k]]] = 0
	}
	c.size[own]--
	c.size[to]++
	c.label[i] = to
	return to != own
}

// gain is the share of edges that clusters hold less the share that runs of
// rows in sequence do, from one row in eight.
func (c *clusters[P]) gain() float64 {
	var edges, held, runs int
	for i := 0; i < len(c.label); i += 8 {
		own := c.label[i]
		run, step := c.neighbours(i)
		for k := 0; k < len(run); k += step {
			j := int(run[k])
			edges++
			if c.label[j] == own {
				held++
			}
			if j/clusterRows == i/clusterRows {
				runs++
			}
		}
	}
	return float64(held-runs) / float64(max(1, edges))
}

// sort writes the rows by label, those of one label ascending. Afterwards count
// is of no use.
func (c *clusters[P]) sort(order []int32) {
	next := c.count
	var at int32
	for l, n := range c.size {
		next[l] = at
		at += n
	}
	for i, l := range c.label {
		order[next[l]] = int32(i)
		next[l]++
	}
}

// SlotsBefore is, for every place of an order, the slots of the rows at the
// places before it, and at its end all slots. Empty where the order is.
func SlotsBefore[P Offset](ptr []P, order []int32) (before mem.Array[P], err error) {
	if len(order) == 0 {
		return before, nil
	}
	if before, err = mem.Make[P](mem.Structure, len(order)+1); err != nil {
		return before, err
	}
	for place, i := range order {
		before.Data[place+1] = before.Data[place] + ptr[i+1] - ptr[i]
	}
	return before, nil
}

// makeOrder fills Order, RowsBefore and ColsBefore. Only where own rows are own
// columns too.
func (r *Relation) makeOrder() (err error) {
	if r.SrcType != r.DstType {
		return nil
	}
	if r.Order, err = Locality(r.RowPtr.Data, r.Col.Data); err != nil {
		return err
	}
	if r.RowsBefore, err = SlotsBefore(r.RowPtr.Data, r.Order.Data); err != nil {
		return err
	}
	r.ColsBefore, err = SlotsBefore(r.ColPtr.Data, r.Order.Data)
	return err
}
