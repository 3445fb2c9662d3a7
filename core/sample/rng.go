package sample

import (
	"math"
	"math/bits"
)

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
