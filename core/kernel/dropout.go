package kernel

import (
	"math"

	"sar/core/internal/vec"
)

// Dropout is which elements of rows become 0: those for which a random number in [0, 1), drawn for seed, key of the
// row and column, is below Share. The rest is divided by 1 - Share. The numbers do not depend on the element type, nor
// on which other rows there are.
type Dropout struct {
	Share   float64 // 0: none, and nothing is scaled
	Seed    uint64
	Keys    []int64 // of rows; nil: KeyBase + row
	KeyBase int64
}

// Drop: z[i,j] = x[i,j] / (1 - Share), or 0. x, z [n, width]; z may be x.
func Drop[T Float](p *Pool, z, x []T, width int, d Dropout) {
	need("z", len(z), len(x))
	eachRows(p, len(x)/max(1, width), width, func(r0, r1 int) {
		drop := dropOf[T](d)
		for i := r0; i < r1; i++ {
			drop.row(z[i*width:(i+1)*width], x[i*width:(i+1)*width], i)
		}
	})
}

// dropper drops elements of rows.
type dropper[T Float] struct {
	Dropout
	drop func(z, x []T, d *vec.Drop[T])
	draw vec.Drop[T]
	seed uint64
}

func dropOf[T Float](d Dropout) *dropper[T] {
	below := math.Round(d.Share * (1 << 31))
	draw := vec.Drop[T]{Below: int32(min(below, 1<<31-1)), Scale: T(1 / (1 - d.Share))}
	return &dropper[T]{Dropout: d, drop: vec.ColumnLoops[T]().Drop, draw: draw, seed: vec.Mix(d.Seed)}
}

func (d *dropper[T]) row(z, x []T, i int) {
	if d.Share >= 1 {
		clear(z)
		return
	}
	key := d.KeyBase + int64(i)
	if d.Keys != nil {
		key = d.Keys[i]
	}
	both := vec.Keyed(d.seed, key)
	d.draw.A, d.draw.B = uint32(both), uint32(both>>32)
	d.drop(z, x, &d.draw)
}
