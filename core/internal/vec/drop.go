package vec

// Drop is what is drawn for the elements of one row: number j is hash(A + j·step, B) of 31 bits. Element j becomes 0
// where its number is below Below (what is not finite: NaN), and is multiplied by Scale elsewhere.
type Drop[T Float] struct {
	A, B  uint32
	Below int32
	Scale T
}

// The constants are those of Ellis and Prospector's best hash of 32 bits in two rounds; B comes in between them, so
// that rows whose A are near do not draw each other's numbers.
const (
	dropStep   = 0x9e3779b9
	dropFirst  = 0x21f0aaad
	dropSecond = 0x735a2d97
)

func dropScalar[T Float](z, x []T, d *Drop[T]) {
	z = z[:len(x)]
	at := d.A
	for j, v := range x {
		h := (at ^ at>>16) * dropFirst
		h ^= d.B
		h = (h ^ h>>15) * dropSecond
		h ^= h >> 15
		by := d.Scale
		if int32(h>>1) < d.Below {
			by = 0
		}
		z[j] = v * by
		at += dropStep
	}
}

// Keyed begins what is drawn for a key, of a seed that Mix has mixed.
func Keyed(seed uint64, key int64) uint64 { return Mix(seed ^ uint64(key)*0x9e3779b97f4a7c15) }

// Mix is the finalizer of SplitMix64 (Steele, Lea, Flood): every bit of the result depends on every bit of x.
func Mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
