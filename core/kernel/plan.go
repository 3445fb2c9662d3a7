package kernel

import "sar/core/internal/ascending"

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
	// lineBytes is the unit in which a long row's width is divided.
	lineBytes = 64
	// stayTasks is how many of these make one where there are enough for all threads: rows that
	// come one after the other read the same source rows, so a thread should stay with them.
	stayTasks = 16
)

// runs cuts the rows at places [p0, p1) into runs of about equal work, by slots, not rows.
// With divide a long row, which has more than its share of slots, is a heavy run. cost(i) is
// the work of the rows at places before i.
func (a *CSR) runs(p0, p1, width, threads int, divide bool) (runs []ascending.Run, cost func(i int) int64) {
	if p1 <= p0 {
		return nil, nil
	}
	slot, start := int64(width+slotCost), a.before(p0)
	cost = func(i int) int64 { return (a.before(i)-start)*slot + int64(i-p0)*rowCost }
	total := cost(p1)
	share := max(taskWork, total/(1<<14), min(stayTasks*taskWork, total/int64(16*max(1, threads))))
	long := max(4*share, total/int64(8*max(1, threads)))
	return ascending.Runs(p0, p1, share, cost, func(i int) bool { return divide && cost(i+1)-cost(i) > long }), cost
}

// plan divides the rows at places [p0, p1) into parts: first those of whole rows, and
// second those of long rows, which the first pass over. A long row is divided by columns
// of the width: all its parts read the same slots, each some cache lines of every source
// row. That leaves the order of every sum as it is, which a cut by slots would not. There
// are no more parts of one than threads, because single lines at random cost three times
// what they do in a row of sixteen. One thread gets parts too: between them the pool lets
// another caller compute.
func plan(a *CSR, p0, p1, width, itemBytes, threads int) (rows, long []part) {
	runs, cost := a.runs(p0, p1, width, threads, threads > 1 && width*itemBytes > lineBytes)
	for _, r := range runs {
		if !r.Heavy {
			rows = append(rows, part{r.From, r.To, 0, width})
			continue
		}
		// Long rows come first, so one of less than its thread's half stays whole.
		pieces := min(int64(threads), 1+2*int64(threads)*(cost(r.To)-cost(r.From))/cost(p1))
		long = append(long, splitWidth(r.From, width, itemBytes, pieces)...)
	}
	return rows, long
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

// planSlots divides all rows for kernels that make one result a slot: there, a long row
// may be cut between any two slots. Those come first.
func planSlots(a *CSR, width, threads int) (parts []slotPart) {
	var rows []slotPart
	runs, _ := a.runs(0, a.Rows(), width, threads, threads > 1 && width > 1)
	for _, r := range runs {
		if !r.Heavy {
			rows = append(rows, slotPart{p0: r.From, p1: r.To})
			continue
		}
		row := a.row(r.From)
		step := int64(taskWork/(width+slotCost) + 1)
		for k := a.at(row); k < a.at(row+1); k += step {
			parts = append(parts, slotPart{r.From, r.To, true, k, min(k+step, a.at(row+1))})
		}
	}
	return append(parts, rows...)
}

// fewer joins parts of whole rows, where they follow each other, to about n.
func fewer(parts []part, n int) []part {
	if len(parts) <= n {
		return parts
	}
	out := make([]part, 0, n+1)
	each := (len(parts) + n - 1) / n
	taken := 0
	for _, q := range parts {
		if last := len(out) - 1; last >= 0 && taken < each && out[last].p1 == q.p0 {
			out[last].p1 = q.p1
			taken++
			continue
		}
		out = append(out, q)
		taken = 1
	}
	return out
}
