package expr

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// describe lists calls, one a line: what a register is made of, and what sums read. Registers that are read where
// they lie are inputs, in brackets.
func (k *calls[T]) describe() string {
	var b strings.Builder
	name := map[op]string{opLoad: "load", opWeigh: "weigh", opDots: "dots", opMask: "mask", opSlope: "slope",
		opSpread: "spread", opWinner: "winner", opBest: "best"}
	at := func(i int) string {
		if !k.makes(i) {
			return fmt.Sprintf("[%d]", k.nodes[i].arg)
		}
		return fmt.Sprintf("r%d", i)
	}
	for _, c := range k.list {
		label := name[c.op]
		if label == "" {
			label = defs64.ops[c.op].name
		}
		fmt.Fprintf(&b, "r%d = %s", c.reg, label)
		switch l, leaky := c.form.(*leaky); {
		case c.op == opLoad:
			fmt.Fprintf(&b, " [%d]", c.arg)
		case leaky:
			fmt.Fprintf(&b, " leaky %s %s %s", at(l.u), at(l.v), at(l.p))
		default:
			for _, x := range []int{c.a, c.b} {
				if x >= 0 {
					fmt.Fprintf(&b, " %s", at(x))
				}
			}
		}
		if a, joined := c.form.(*sum[T]); joined {
			fmt.Fprintf(&b, ", sum %s %s", at(a.rows), at(a.from))
		}
		fmt.Fprintln(&b)
	}
	kinds := []string{"row", "column", "edge", "param", "step", "weights", "online", "scatter"}
	for _, a := range k.sums {
		if a.block == nil {
			continue
		}
		fmt.Fprintf(&b, "sum by %s:", kinds[a.kind])
		for _, x := range []int{a.rows, a.from} {
			if x >= 0 {
				fmt.Fprintf(&b, " %s", at(x))
			}
		}
		if l, ok := a.form.(leaky); ok {
			fmt.Fprintf(&b, " leaky %s %s", at(l.u), at(l.v))
		}
		fmt.Fprintln(&b)
	}
	return b.String()
}

// What the compiler makes of attention, in lists that a person can read.
func TestCallsOfAttention(t *testing.T) {
	for _, c := range []struct{ name, forward, source string }{
		{"gat", `
r0 = load [0]
r1 = load [1]
r3 = add r0 r1
r4 = leaky_relu r3
r5 = weigh r4
sum by online: [2] r5
`, `
r0 = load [0]
r1 = load [1]
r3 = add r0 r1
r4 = leaky_relu r3
r5 = load [4]
r6 = sub r4 r5
r7 = exp r6
r8 = load [5]
r9 = mul r7 r8
r13 = dots [3] [2], sum [3] r9
r15 = load [6]
r16 = sub r13 r15
r17 = mul r9 r16
r18 = slope r3 r17
sum by column: r18
sum by scatter: r18
`},
		{"gatv2", `
r5 = dots leaky [0] [1] [2]
r6 = weigh r5
sum by online: [0] r6
`, `
r5 = dots leaky [0] [1] [2]
r6 = load [4]
r7 = sub r5 r6
r8 = exp r7
r9 = load [5]
r10 = mul r8 r9
r14 = dots [3] [0], sum [3] r10
r16 = load [6]
r17 = sub r14 r16
r18 = mul r10 r17
sum by column: r18 leaky [0] [1]
sum by scatter: r18 leaky [0] [1]
`},
		{"add", `
r2 = add [0] [1]
sum by row: r2
`, `
sum by column: [2]
`},
	} {
		p, err := Parse(benchPrograms[c.name])
		if err != nil {
			t.Fatal(err)
		}
		plan := p.Differentiate(1<<len(p.Operands)-1, 4, false)
		for _, way := range []struct{ name, got, want string }{
			{"forward", compile[float32](p.forwardCodes()[0], false).describe(), c.forward},
			{"backward", compile[float32](plan.source, false).describe(), c.source},
		} {
			if "\n"+way.got != way.want {
				t.Errorf("%s %s:\n%s", c.name, way.name, way.got)
			}
		}
	}
}

// A buffer has what it is read for until it is read: by a call, by a sum that is joined with one, or by the sums at the
// end.
func TestBuffers(t *testing.T) {
	for seed := range uint64(300) {
		w := &writer{rng: rand.New(rand.NewPCG(seed, 9)), heads: []int{1, 3, 4, 8}[seed%4], d: []int{8, 16, 5}[seed%3]}
		text := w.write()
		if len(w.text.Operands) > MaxOperands {
			text = bothEnds
		}
		p, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		plan := p.Differentiate(1<<len(p.Operands)-1, 4, false)
		for _, c := range append(append(p.forwardCodes(), plan.deltas...), plan.source, plan.target) {
			if c == nil {
				continue
			}
			k := compile[float32](c, false)
			has := make([]int, len(k.widths)) // the register in a buffer
			holds := func(reg int) {
				if reg >= 0 && has[k.buffer[reg]] != reg {
					t.Fatalf("%s: register %d is read when its buffer has %d", text, reg, has[k.buffer[reg]])
				}
			}
			for _, c := range k.list {
				for _, x := range c.in {
					holds(x)
				}
				if a, joined := c.form.(*sum[float32]); joined {
					holds(a.from)
				}
				has[k.buffer[c.reg]] = c.reg
			}
			for _, a := range k.sums {
				if a.block != nil {
					holds(a.from)
				}
			}
		}
	}
}
