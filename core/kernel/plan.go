package kernel

import "sort"

// touchRows rows are taken at a time, and in an order of their own brought near
// before they are computed, at most touchSlots slots of each: more come in
// sequence by themselves.
const touchRows, touchSlots = 64, 256

// eachBlock calls f for the rows at places [p0, p1), in order, some at a time,
// which are those from place on. In an order of its own each row's slots begin
// where no processor expects them, unless they are stored in it. So those of
// a block are read beforehand, in a loop so short that many misses are under way
// at a time.
func (a *CSR) eachBlock(p0, p1 int, f func(place int, rows []int32)) {
	if a.Order.Rows == nil {
		rows := make([]int32, min(touchRows, p1-p0))
		for ; p0 < p1; p0 += len(rows) {
			rows = rows[:min(len(rows), p1-p0)]
			for k := range rows {
				rows[k] = int32(p0 + k)
			}
			f(p0, rows)
		}
		return
	}
	for p0 < p1 {
		rows := a.Order.Rows[p0:min(p1, p0+touchRows)]
		if !a.Order.Stored {
			touch(a, rows)
		}
		f(p0, rows)
		p0 += len(rows)
	}
}

// eachRow calls f for the rows at places [p0, p1), in order.
func (a *CSR) eachRow(p0, p1 int, f func(i int)) {
	a.eachBlock(p0, p1, func(_ int, rows []int32) {
		for _, i := range rows {
			f(int(i))
		}
	})
}

// touch reads one slot of each cache line. It is not inlined, because then
// the compiler would find that nobody wants what it read.
//
//go:noinline
func touch(a *CSR, rows []int32) (sum int32) {
	for _, i := range rows {
		k := a.at(int(i))
		run := a.Col[k:min(a.at(int(i)+1), k+touchSlots)]
		for j := 0; j < len(run); j += lineBytes / 4 {
			sum += run[j]
		}
	}
	return sum
}

// part is the work of one task: the rows at places [p0, p1) of the order of the
// matrix, columns [c0, c1) of the width.
type part struct {
	p0, p1 int
	c0, c1 int
}

const (
	// taskWork is the elements (slots times width) of one task: some hundred
	// microseconds, long against the cost of handing it out, short against a
	// kernel that is worth more than one thread.
	taskWork = 1 << 20
	// slotCost is what a slot costs beside its elements, rowCost a row beside
	// its slots, in elements.
	slotCost, rowCost = 16, 32
	// lineBytes is the unit in which a hub row's width is divided.
	lineBytes = 64
	// ordered is the tasks in one where rows have an order that keeps source
	// rows in the cache of a core: a thread should then stay with them.
	ordered = 16
)

// plan cuts the rows at places [p0, p1) into parts of about equal work, by
// slots, not rows. A hub row, one that has more than its share of slots, is
// divided by columns of the width: all its parts read the same slots, each some
// cache lines of every source row. That leaves the order of every sum as it is,
// which a cut by slots would not. There are no more parts than threads, because
// single lines at random cost three times what they do in a row of sixteen. The first return value is the parts of whole
// rows, the second those of hub rows, which the first passes over. One thread
// gets parts too: between them the pool lets another caller compute.
func plan(a *CSR, p0, p1, width, itemBytes, threads int) (rows, hubs []part) {
	if p1 <= p0 {
		return nil, nil
	}
	slot, start := int64(width+slotCost), a.before(p0)
	cost := func(i int) int64 { return (a.before(i)-start)*slot + int64(i-p0)*rowCost }
	total := cost(p1)
	share := max(taskWork, total/(1<<14))
	if a.Order.Rows != nil {
		share = max(share, min(ordered*taskWork, total/int64(16*max(1, threads))))
	}
	hub := max(4*share, total/int64(8*max(1, threads)))
	divide := threads > 1 && width*itemBytes > lineBytes
	from := p0
	for at := share; from < p1; at += share {
		// to is the first place at which the work so far reaches at, or the end.
		to := from + sort.Search(p1-from, func(i int) bool { return cost(from+i) >= at })
		if to > p0 && to > from && cost(to)-cost(to-1) > hub && divide {
			// The row at to-1 spans this mark because it is long.
			if to-1 > from {
				rows = append(rows, part{from, to - 1, 0, width})
			}
			// Hub rows come first, so one of less than its thread's half stays whole.
			pieces := min(int64(threads), 1+2*int64(threads)*(cost(to)-cost(to-1))/total)
			hubs = append(hubs, splitWidth(to-1, width, itemBytes, pieces)...)
			from = to
		} else if to > from {
			rows = append(rows, part{from, to, 0, width})
			from = to
		}
		if from < p1 {
			at = max(at, cost(from))
		}
	}
	return rows, hubs
}

// splitWidth divides the row at a place into at most pieces parts of whole
// cache lines.
func splitWidth(place, width, itemBytes int, pieces int64) []part {
	perLine := lineBytes / itemBytes
	lines := (width + perLine - 1) / perLine
	n := int(min(pieces, int64(lines)))
	out := make([]part, 0, n)
	for i := range n {
		c0, c1 := lines*i/n*perLine, min(width, lines*(i+1)/n*perLine)
		if c0 < c1 {
			out = append(out, part{place, place + 1, c0, c1})
		}
	}
	return out
}

// slotPart is the rows at places [p0, p1); where cut is set it is one row, and
// of it only the slots [k0, k1).
type slotPart struct {
	p0, p1 int
	cut    bool
	k0, k1 int64
}

// planSlots is plan for kernels that make one result a slot: there, a hub row
// may be cut between any two slots.
func planSlots(a *CSR, width, threads int) []slotPart {
	rows, hubs := plan(a, 0, a.Rows(), width, lineBytes, threads)
	var out []slotPart
	for i, q := range hubs {
		if i > 0 && hubs[i-1].p0 == q.p0 {
			continue // plan divides by columns; here one entry a row is enough
		}
		row := a.row(q.p0)
		step := int64(taskWork/(width+slotCost) + 1)
		for k := a.at(row); k < a.at(row+1); k += step {
			out = append(out, slotPart{q.p0, q.p1, true, k, min(k+step, a.at(row+1))})
		}
	}
	for _, q := range rows {
		out = append(out, slotPart{p0: q.p0, p1: q.p1})
	}
	return out
}

// fewer joins parts of whole rows, where they follow each other, to about n.
func fewer(parts []part, n int) []part {
	if len(parts) <= n {
		return parts
	}
	out := make([]part, 0, n+1)
	each := (len(parts) + n - 1) / n
	joined := 0
	for _, q := range parts {
		if last := len(out) - 1; last >= 0 && joined < each && out[last].p1 == q.p0 {
			out[last].p1 = q.p1
			joined++
			continue
		}
		out = append(out, q)
		joined = 1
	}
	return out
}
