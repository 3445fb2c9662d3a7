package vec

// The scalar reference. T(c*x) keeps the compiler from fusing the multiply
// with the add on targets where it would, so the reference rounds alike
// everywhere.

func scalarOps[T Float]() Ops[T] {
	return Ops[T]{
		GatherSum: gatherSumScalar[T],
		GatherDot: gatherDotScalar[T],
		Axpy:      axpyScalar[T],
		Add:       addScalar[T],
		Scale:     scaleScalar[T],
	}
}

func gatherSumScalar[T Float](g *Gather[T]) {
	if g.First {
		clear(g.Y)
	}
	d := len(g.Y)
	for k, col := range g.Col {
		x := g.X[int(col-g.Base)*g.Stride:]
		if g.C == nil {
			addScalar(g.Y, x[:d])
		} else {
			axpyScalar(g.Y, x[:d], g.C[k])
		}
	}
}

func gatherDotScalar[T Float](g *Gather[T]) {
	d := len(g.Y)
	for k, col := range g.Col {
		x := g.X[int(col-g.Base)*g.Stride:][:d]
		var s T
		for j, y := range g.Y {
			s += T(x[j] * y)
		}
		g.Out[k] = s
	}
}

func axpyScalar[T Float](y, x []T, c T) {
	x = x[:len(y)]
	for j := range y {
		y[j] += T(c * x[j])
	}
}

func addScalar[T Float](y, x []T) {
	x = x[:len(y)]
	for j := range y {
		y[j] += x[j]
	}
}

func scaleScalar[T Float](y []T, c T) {
	for j := range y {
		y[j] *= c
	}
}
