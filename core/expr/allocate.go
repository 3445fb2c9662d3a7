package expr

import "slices"

// buffers are where the registers of a block lie.
type buffers struct {
	buffer   []int // of a register, -1 where it is not made
	widths   []int // of buffers
	capacity int   // edges of a block
}

const (
	blockBytes         = 192 << 10 // registers of a block
	minEdges, maxEdges = 32, 2048  // edges of a block
)

// allocate gives registers buffers in one pass over the list, one for several that are not needed at the same time.
// What is the same for all edges stays, and what sums read is there until the end.
func (k *calls[T]) allocate(size int) buffers {
	last := make([]int, len(k.nodes)) // the call after which a register is not read
	for at, c := range k.list {
		last[c.reg] = at
		for _, x := range c.reads() {
			last[x] = at
		}
	}
	for _, a := range k.sums {
		last[a.reg] = len(k.list)
		if a.from >= 0 {
			last[a.from] = len(k.list)
		}
	}
	out := buffers{buffer: make([]int, len(k.nodes))}
	for i := range out.buffer {
		out.buffer[i] = -1
	}
	fixed, free := k.code.fixed(), map[int][]int{}
	total, widest := 0, 1
	for at, c := range k.list {
		widest = max(widest, c.width)
		if stack := free[c.width]; len(stack) > 0 && !c.fixed {
			out.buffer[c.reg], free[c.width] = stack[len(stack)-1], stack[:len(stack)-1]
		} else {
			out.buffer[c.reg] = len(out.widths)
			out.widths = append(out.widths, c.width)
			total += c.width
		}
		for _, x := range c.reads() {
			if out.buffer[x] >= 0 && last[x] == at && !fixed[x] {
				w := k.nodes[x].width
				free[w] = append(free[w], out.buffer[x])
			}
		}
	}
	bytes := (total+2*widest)*size + 16
	out.capacity = min(maxEdges, max(minEdges, blockBytes/bytes))
	return out
}

// reads are the registers that a call may read from buffers: those that have to be made for it, and its operands, which
// may have been made for others.
func (c *call[T]) reads() (regs []int) {
	for _, x := range append([]int{c.a, c.b}, c.in...) {
		if x >= 0 && !slices.Contains(regs, x) {
			regs = append(regs, x)
		}
	}
	return regs
}
