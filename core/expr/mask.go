package expr

import "math"

// mask: what dropout multiplies with. An element stays where a random number in [0, 1),
// drawn for seed, edge and element, is not below alpha.
func (t *task[T]) mask(z []T, c *call[T]) {
	if c.alpha >= 1 {
		clear(z)
		return
	}
	w, run := c.width, t.s.run
	seed := mix(run.Seeds[c.arg])
	limit := uint64(math.Round(c.alpha * (1 << 32)))
	scales := [2]T{T(1 / (1 - c.alpha)), 0} // of what stays and of what goes
	for k, e := range t.edge[:t.m] {
		key := run.KeyBase + int64(e)
		if run.Keys != nil {
			key = run.Keys[e]
		}
		state := mix(seed ^ uint64(key)*0x9e3779b97f4a7c15)
		to := z[k*w : (k+1)*w]
		var draw uint64
		for j := range to {
			if draw >>= 32; j&1 == 0 { // one serves two elements
				state += 0xd1342543de82ef95
				draw = mix(state)
			}
			to[j] = scales[(draw&(1<<32-1)-limit)>>63] // 1 where it is below: no branch, which nobody could predict
		}
	}
}

// mix is the finalizer of SplitMix64 (Steele, Lea, Flood): every bit of the
// result depends on every bit of x.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
