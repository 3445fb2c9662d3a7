package expr

// how an operand is read by an operation whose result is wider.
type reading struct {
	d  int     // each element is read by a run of d of the result; 1: as it is; 0: by at
	at []int32 // element of the operand for each of the result
}

func readingOf(from, to shape) reading {
	if d, ok := grouped(from, to); ok {
		return reading{d: d}
	}
	return reading{at: spread(from, to)}
}

// loopOf makes a register by an operation, without a pattern.
func loopOf[T Float](o op) func(t *task[T], z []T, c *call[T]) {
	switch o {
	case opLoad:
		return (*task[T]).copyRows
	case opMask:
		return (*task[T]).mask
	case opWeigh:
		return (*task[T]).weigh
	case opDots:
		return (*task[T]).dots
	case opWinner:
		return (*task[T]).winner
	case opBest:
		return (*task[T]).best
	case opAdd, opSub, opMul, opDiv:
		return (*task[T]).binary
	case opReshape:
		return func(t *task[T], z []T, c *call[T]) { copy(z, t.reg(c.a)) }
	case opSpread:
		return func(t *task[T], z []T, c *call[T]) { copy(z, t.spread(z, t.reg(c.a), c.width, c.left)) }
	case opTotal:
		return (*task[T]).total
	case opSlope:
		return func(t *task[T], z []T, c *call[T]) { t.s.defs.ops[c.arg].slope(t, z, t.reg(c.a), t.reg(c.b), c.alpha) }
	}
	return func(t *task[T], z []T, c *call[T]) { t.s.defs.ops[c.op].value(t, z, t.reg(c.a), c.alpha) }
}

// spread is x as a result of width w reads it; it may be x itself, or to.
func (t *task[T]) spread(to, x []T, w int, r reading) []T {
	if r.d == 1 {
		return x
	}
	to = to[:t.m*w]
	if r.d > 1 {
		at := 0
		for _, v := range x {
			for j := at; j < at+r.d; j++ {
				to[j] = v
			}
			at += r.d
		}
		return to
	}
	n := len(x) / max(1, t.m)
	for k := range t.m {
		from, row := x[k*n:(k+1)*n], to[k*w:(k+1)*w]
		for j, at := range r.at {
			row[j] = from[at]
		}
	}
	return to
}

// binary is an operation of two registers. Of those of the result's width, loads may be read where they lie.
func (t *task[T]) binary(z []T, c *call[T]) {
	ops, pair := t.s.ops, t.s.defs.ops[c.op].pair(t.s.ops)
	if t.s.buffer[c.a] < 0 || t.s.buffer[c.b] < 0 {
		x, y, w := t.source(c.a), t.source(c.b), c.width
		for k := range t.m {
			pair(z[k*w:(k+1)*w], x.of(k)[:w], y.of(k)[:w])
		}
		return
	}
	x, y := t.reg(c.a), t.reg(c.b)
	switch {
	case c.op == opMul && c.left.d == 1 && c.right.d > 1:
		ops.TimesEach(z, x, y, c.right.d)
	case c.op == opMul && c.right.d == 1 && c.left.d > 1:
		ops.TimesEach(z, y, x, c.left.d)
	default:
		pair(z, t.spread(t.left, x, c.width, c.left), t.spread(t.right, y, c.width, c.right))
	}
}

// total sums the elements of x that share one of z.
func (t *task[T]) total(z []T, c *call[T]) {
	x := t.reg(c.a)
	if c.left.d > 0 {
		for g := range z {
			var s T
			for _, v := range x[g*c.left.d : (g+1)*c.left.d] {
				s += v
			}
			z[g] = s
		}
		return
	}
	clear(z)
	w, n := c.width, len(c.left.at)
	for k := range t.m {
		to, from := z[k*w:(k+1)*w], x[k*n:(k+1)*n]
		for j, at := range c.left.at {
			to[at] += from[j]
		}
	}
}

// best: z = x times 1 where y is what its destination has, and times 0 where it is not: NaN at all messages
// of a destination whose result is NaN, as in torch.
func (t *task[T]) best(z []T, c *call[T]) {
	x, y, result := t.source(c.a), t.source(c.b), t.load(t.s.p.inputResult())
	w := c.width
	for k := range t.m {
		to, from, best := z[k*w:(k+1)*w], x.of(k)[:w], result.of(k)
		for j, v := range y.of(k)[:w] {
			var won T
			if v == best[j] {
				won = 1
			}
			to[j] = from[j] * won
		}
	}
}

// winner: z = x where the edge is the one that its destination's element is of.
func (t *task[T]) winner(z []T, c *call[T]) {
	x := t.source(c.a)
	w := c.width
	for k, i := range t.rows[:t.m] {
		t.s.ops.Pick(z[k*w:(k+1)*w], x.of(k)[:w], t.s.run.Winner[int(i)*w:][:w], t.edge[k])
	}
}
