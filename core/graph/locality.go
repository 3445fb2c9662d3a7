package graph

import (
	"sort"

	"sar/core/mem"
)

const (
	// clusterRows is the most rows of a cluster: 1 MB at 256 columns of
	// float32, which with what else a product touches fits in 2 MiB of L2.
	clusterRows = 1024
	// farRows is the most rows of an outer cluster, 16 MB at 256 columns, a part
	// of a last-level cache. Only matrices of farLeast rows or more have those:
	// of fewer, such a cache may hold all.
	farRows, farLeast = 16 * clusterRows, 128 * clusterRows
	// orderLeast is the rows below which there is no order: narrow rows of so
	// few fit in L2 anyway.
	orderLeast = 8 * clusterRows
	// orderSweeps over the rows at most, fewer where less than one row in
	// orderStill moves; orderLooks neighbours of a row. More of either find
	// hardly better clusters. Rows of few edges need the most sweeps. After
	// nearSweeps outer clusters begin.
	orderSweeps, nearSweeps, orderStill, orderLooks = 5, 2, 8, 32
	// orderGain is the share of edges that clusters must hold beyond what runs
	// of clusterRows rows in sequence hold; orderHope what they must hold after
	// nearSweeps already. Clusters of a random graph hold 2 edges a row or so,
	// 0.06 to 0.13 of them at 15 edges a row and 0.16 at 5; Cornell5's hold 0.30,
	// the bench graph's 0.74.
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
//
// Source rows that no cache holds all of come from memory, unless clusters that
// read the same ones are neighbours too. So of large matrices the clusters that
// the first sweeps found are remembered, and then may grow to farRows: those
// become clusters of clusters, the small ones of which are joined with the one
// that they share most edges with. In those, rows ascend where the first clusters
// hold so few edges that slots and results at random cost more than they save.
// Scratch: 20 bytes a row.
func Locality[P Offset](ptr []P, col []int32) (order mem.Array[int32], err error) {
	return locality(ptr, col, len(ptr)-1 >= farLeast)
}

// locality is Locality, with clusters of clusters where far is set.
func locality[P Offset](ptr []P, col []int32, far bool) (order mem.Array[int32], err error) {
	n, arrays := len(ptr)-1, 3
	if n < orderLeast {
		return order, nil
	}
	if far {
		arrays = 5
	}
	scratch, err := mem.Make[int32](mem.Scratch, arrays*n)
	if err != nil {
		return order, err
	}
	defer scratch.Free()
	array := func(k int) []int32 { return scratch.Data[k*n : (k+1)*n] }
	c := clusters[P]{ptr, col, array(0), array(1), array(2)}
	for i := range c.label {
		c.label[i], c.size[i] = int32(i), 1
	}
	moving := c.sweep(nearSweeps, clusterRows)
	gain := c.gain()
	if gain < orderHope {
		return order, nil
	}
	if far {
		copy(array(3), c.label)
		c.sweep(orderSweeps-nearSweeps, farRows)
	} else if moving {
		c.sweep(orderSweeps-nearSweeps, clusterRows)
	}
	if c.gain() < orderGain {
		return order, nil
	}
	if order, err = mem.Make[int32](mem.Structure, n); err != nil {
		return order, err
	}
	if far {
		c.nest(order.Data, array(3), array(4), gain >= orderGain)
	} else {
		c.sort(order.Data, nil, c.label)
	}
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

// sweep goes over the rows times times, or until few of them move, and tells
// whether many still did. No cluster gets more than most rows.
func (c *clusters[P]) sweep(times int, most int32) (moving bool) {
	n := len(c.label)
	for range times {
		moved := 0
		for i := range n {
			if c.move(i, most) {
				moved++
			}
		}
		if moved <= n/orderStill {
			return false
		}
	}
	return true
}

// move gives row i its label. On a tie it keeps its own, and otherwise takes
// the one that is met first. It tells whether the label is another one.
func (c *clusters[P]) move(i int, most int32) bool {
	own := c.label[i]
	run, step := c.neighbours(i)
	best, to := int32(0), own
	for k := 0; k < len(run); k += step {
		if int(run[k]) == i {
			continue
		}
		l := c.label[run[k]]
		c.count[l]++
		if c.count[l] > best && (c.size[l] < most || l == own) {
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

// sort writes rows by their keys, which are below the number of rows, those of
// one key as they come in from (nil: ascending). It uses count, and leaves it
// at 0.
func (c *clusters[P]) sort(to, from, key []int32) {
	next := c.count
	clear(next)
	for _, l := range key {
		next[l]++
	}
	var at int32
	for l, n := range next {
		next[l] = at
		at += n
	}
	for place := range to {
		i := int32(place)
		if from != nil {
			i = from[place]
		}
		to[next[key[i]]] = i
		next[key[i]]++
	}
	clear(next)
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
	CountBefore(before.Data, ptr, order)
	return before, nil
}

// CountBefore writes to before [n+1] how many slots the rows at earlier places of order [n]
// have together.
func CountBefore[P Offset](before, ptr []P, order []int32) {
	before[0] = 0
	for place, i := range order {
		before[place+1] = before[place] + ptr[i+1] - ptr[i]
	}
}

// makeOrder fills Order, RowsBefore and ColsBefore. Only where own rows are own
// columns too.
func (r *Structure) makeOrder() (err error) {
	if r.SrcType != r.DstType {
		return nil
	}
	if r.Order, err = Locality(r.RowPtr.Data, r.Col.Data); err != nil {
		return err
	}
	return r.countBefore()
}

// countBefore fills RowsBefore and ColsBefore.
func (r *Structure) countBefore() (err error) {
	if r.RowsBefore, err = SlotsBefore(r.RowPtr.Data, r.Order.Data); err == nil {
		r.ColsBefore, err = SlotsBefore(r.ColPtr.Data, r.Order.Data)
	}
	return err
}
