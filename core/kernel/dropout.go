package kernel

import (
	"math"

	"sar/core/internal/vec"
)

// Dropout is which elements of rows are multiplied by 0: those for which a random number in [0, 1), drawn for seed,
// key of the row and column, is below Share. The rest is divided by 1 - Share. The numbers do not depend on the
// element type, nor on which other rows there are.
type Dropout struct {
	Share   float64 // 0: none, and nothing is scaled
	Seed    uint64
	Keys    []int64 // of rows; nil: KeyBase + row
	KeyBase int64
}

// Drop: z[i,j] = x[i,j] / (1 - Share), or 0. x, z [n, width]; z may be x.
func Drop[T Float](p *Pool, z, x Numbers[T], width int, d Dropout) {
	need("z", z.size(), x.size())
	eachRows(p, x.size()/max(1, width), width, func(r0, r1 int) {
		b, drop := newWorkspace((r1-r0)*width, width, Dropout{}, x, z), dropOf[T](d)
		b.each(r0*width, r1*width, func(begin, end int) {
			to := b.of(1, z, begin, end)
			drop.rows(to, b.read(0, x, begin, end), width, begin/width)
			b.store(z, to, begin, end)
		})
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
	below := min(math.Round(d.Share*(1<<31)), 1<<31-1)
	draw := vec.Drop[T]{Below: int32(below)}
	if d.Share < 1 {
		draw.Scale = T(1 / (1 - d.Share))
	}
	return &dropper[T]{Dropout: d, drop: vec.ColumnLoops[T]().Drop, draw: draw, seed: vec.Mix(d.Seed)}
}

// rows drops elements of rows of x, the first of which is row number first, into z.
func (d *dropper[T]) rows(z, x []T, width, first int) {
	for at := 0; at < len(x); at += width {
		key := d.KeyBase + int64(first)
		if d.Keys != nil {
			key = d.Keys[first]
		}
		both := vec.Keyed(d.seed, key)
		d.draw.A, d.draw.B = uint32(both), uint32(both>>32)
		d.drop(z[at:at+width], x[at:at+width], &d.draw)
		first++
	}
}
