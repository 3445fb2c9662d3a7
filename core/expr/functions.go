package expr

import "math"

// elementwise computes functions of one number.
func elementwise[T Float](z, x []T, st *step) {
	c := T(st.alpha)
	x = x[:len(z)]
	switch st.op {
	case opNeg:
		for j, v := range x {
			z[j] = -v
		}
	case opSqrt:
		for j, v := range x {
			z[j] = T(math.Sqrt(float64(v)))
		}
	case opAbs:
		for j, v := range x {
			z[j] = T(math.Abs(float64(v)))
		}
	case opReciprocal:
		for j, v := range x {
			z[j] = 1 / v
		}
	case opScale:
		for j, v := range x {
			z[j] = v * c
		}
	case opShift:
		for j, v := range x {
			z[j] = v + c
		}
	case opRsub:
		for j, v := range x {
			z[j] = c - v
		}
	case opClampMin:
		for j, v := range x {
			if v < c {
				v = c
			}
			z[j] = v
		}
	case opClampMax:
		for j, v := range x {
			if v > c {
				v = c
			}
			z[j] = v
		}
	default:
		for j, v := range x {
			z[j] = T(st.value(float64(v)))
		}
	}
}

// slope: z = f'(x)·g.
func (t *task[T]) slope(z, x, g []T, st *step) {
	switch f := op(st.slot); f {
	case opLeaky:
		t.s.ops.Leaky(z, x, g, T(st.alpha))
	case opReLU:
		t.s.ops.Gate(z, x, g)
	case opELU:
		e, c := t.left[:len(z)], T(st.alpha)
		t.s.ops.Exp(e, x)
		for j, v := range x {
			if v > 0 {
				z[j] = g[j]
			} else {
				z[j] = c * e[j] * g[j]
			}
		}
	case opSoftplus:
		s := t.left[:len(z)]
		t.s.ops.Sigmoid(s, x)
		for j, v := range x {
			if v > softplusLinear {
				s[j] = 1
			}
		}
		t.s.ops.Times(z, s, g)
	case opSigmoid: // of the value
		for j, v := range x {
			z[j] = v * (1 - v) * g[j]
		}
	case opTanh: // of the value
		for j, v := range x {
			z[j] = (1 - v*v) * g[j]
		}
	default:
		for j, v := range x {
			z[j] = T(slope(f, st.alpha, float64(v))) * g[j]
		}
	}
}
