package sample

import (
	"math"
	"math/bits"
	"slices"
)

// All as a fan-out takes every in-edge.
const All = -1

// picker draws slots of rows of one relation. It belongs to one goroutine.
type picker struct {
	taken  []uint64 // bit set of a row's slots
	prefix []float64
	heap   []keyed
}

type keyed struct {
	key  float64
	slot int32
}

// wordSlots is the length of rows whose draws fit one word.
const wordSlots = 64

// word draws k of d slots without replacement, all subsets alike (Floyd, CACM
// 30:9), as a bit set: k < d <= 64. Without branches, since nothing would
// predict them: a slot that is taken already makes way for the last one, j.
func word(s *stream, d, k int) uint64 {
	var taken uint64
	j := uint64(d - k)
	step := func(random uint64) { // 32 bits are plenty to choose among 64
		t := random * (j + 1) >> 32
		hit := -(taken >> (t & 63) & 1)
		taken |= 1<<(t&63) | 1<<(j&63)&hit
		j++
	}
	for range k / 2 {
		draw := s.next()
		step(draw & math.MaxUint32)
		step(draw >> 32)
	}
	if k&1 != 0 {
		step(s.next() & math.MaxUint32)
	}
	return taken
}

// uniform draws k of d slots without replacement, all subsets alike: out has k
// slots, k < d. Rows of at most 64 slots come out in ascending order, so that
// sources are read as they lie in memory.
func (p *picker) uniform(s *stream, d int, out []int32) {
	k := len(out)
	if d <= wordSlots {
		taken := word(s, d, k)
		for i := range out {
			out[i] = int32(bits.TrailingZeros64(taken))
			taken &= taken - 1
		}
		return
	}
	if words := (d + 63) / 64; len(p.taken) < words {
		p.taken = make([]uint64, 2*words)
	}
	for i := range out {
		j := d - k + i
		t := int(s.below(uint64(j + 1)))
		if p.taken[t>>6]>>(t&63)&1 != 0 {
			t = j
		}
		p.taken[t>>6] |= 1 << (t & 63)
		out[i] = int32(t)
	}
	for _, t := range out {
		p.taken[t>>6] = 0
	}
}

// repeated draws len(out) of d slots with replacement.
func (p *picker) repeated(s *stream, d int, out []int32) {
	for i := range out {
		out[i] = int32(s.below(uint64(d)))
	}
}

// weighted draws len(out) of the slots with w > 0 without replacement, one
// after the other in proportion to the weights of those left. That is what
// the smallest of exponential times with rates w are (Efraimidis and Spirakis,
// IPL 97:5). Slots come out in ascending order.
func (p *picker) weighted(s *stream, w []float32, out []int32) {
	k := len(out)
	h := p.heap[:0] // the k smallest so far, the largest of them at the root
	for i, x := range w {
		if !(x > 0) {
			continue
		}
		e := keyed{s.exponential(float64(x)), int32(i)}
		switch {
		case len(h) < k:
			h = append(h, e)
			for c := len(h) - 1; c > 0 && h[(c-1)/2].key < h[c].key; c = (c - 1) / 2 {
				h[(c-1)/2], h[c] = h[c], h[(c-1)/2]
			}
		case e.key < h[0].key:
			h[0] = e
			sink(h)
		}
	}
	for i, e := range h {
		out[i] = e.slot
	}
	slices.Sort(out)
	p.heap = h
}

func sink(h []keyed) {
	for i := 0; ; {
		c := 2*i + 1
		if c >= len(h) {
			return
		}
		if c+1 < len(h) && h[c+1].key > h[c].key {
			c++
		}
		if h[i].key >= h[c].key {
			return
		}
		h[i], h[c] = h[c], h[i]
		i = c
	}
}

// weightedRepeated draws len(out) slots with replacement in proportion to w,
// which has a positive weight.
func (p *picker) weightedRepeated(s *stream, w []float32, out []int32) {
	p.prefix = p.prefix[:0]
	sum := 0.0
	for _, x := range w {
		sum += float64(x)
		p.prefix = append(p.prefix, sum)
	}
	for i := range out {
		// (0, sum]: the first slot whose prefix reaches u has a positive weight
		u := s.uniform() * sum
		at, _ := slices.BinarySearch(p.prefix, u)
		out[i] = int32(lastPositive(w, at))
	}
}

// lastPositive guards against rounding: at, or where that is past the end the
// last slot with a weight.
func lastPositive(w []float32, at int) int {
	if at < len(w) {
		return at
	}
	for at = len(w) - 1; !(w[at] > 0); {
		at--
	}
	return at
}

// positive are all slots with w > 0; out has as many places.
func positive(w []float32, out []int32) {
	i := 0
	for slot, x := range w {
		if x > 0 {
			out[i] = int32(slot)
			i++
		}
	}
}

// Draws come from SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): a counter and
// a mixing function, so a stream begins anywhere at no cost.

const golden = 0x9E3779B97F4A7C15

func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}

// LayerKey is the key of the draws of one relation in one layer of a batch.
func LayerKey(batch uint64, layer, relation int) uint64 {
	return mix(mix(batch+golden) ^ uint64(layer)<<32 ^ uint64(relation+1))
}

// stream is the numbers for one destination node.
type stream uint64

func newStream(key uint64, node int64) stream { return stream(mix(key ^ mix(uint64(node)+golden))) }

func (s *stream) next() uint64 {
	*s += golden
	return mix(uint64(*s))
}

// below draws from [0, n).
func (s *stream) below(n uint64) uint64 {
	hi, _ := bits.Mul64(s.next(), n)
	return hi
}

// uniform draws from (0, 1].
func (s *stream) uniform() float64 { return float64(s.next()>>11+1) / (1 << 53) }

// exponential draws from the exponential distribution of the given rate.
func (s *stream) exponential(rate float64) float64 { return -math.Log(s.uniform()) / rate }
