package expr

import (
	"math"

	"sar/core/internal/vec"
)

// mask: what dropout multiplies with. An element stays where a random number in [0, 1),
// drawn for seed, edge and element, is not below alpha.
func (t *task[T]) mask(z []T, c *call[T]) {
	if c.alpha >= 1 {
		clear(z)
		return
	}
	w, run := c.width, t.s.run
	seed := vec.Mix(run.Seeds[c.arg])
	limit := uint64(math.Round(c.alpha * (1 << 32)))
	scales := [2]T{T(1 / (1 - c.alpha)), 0} // of what stays and of what goes
	for k, e := range t.edge[:t.m] {
		key := run.KeyBase + int64(e)
		if run.Keys != nil {
			key = run.Keys[e]
		}
		state := vec.Keyed(seed, key)
		to := z[k*w : (k+1)*w]
		var draw uint64
		for j := range to {
			if draw >>= 32; j&1 == 0 { // one serves two elements
				state += 0xd1342543de82ef95
				draw = vec.Mix(state)
			}
			to[j] = scales[(draw&(1<<32-1)-limit)>>63] // 1 where it is below: no branch, which nobody could predict
		}
	}
}
