//go:build goexperiment.simd && (amd64 || arm64)

package vec

import "unsafe"

// Loops over rows of bfloat16, which are widened as they are loaded.

const sizeBF16 = int(unsafe.Sizeof(BFloat16(0)))

// partBF16 is partF32 of bfloat16.
func partBF16(p unsafe.Pointer, in u32s, n int) f32s {
	if uintptr(p)%pageSize > pageSize-uintptr(lanesF32*sizeBF16) {
		var whole [lanesF32]BFloat16
		copy(whole[:], unsafe.Slice((*BFloat16)(p), n))
		return wideBF16(unsafe.Pointer(&whole))
	}
	return wideBF16(p).ToBits().And(in).BitsToFloat32()
}

// halfRowsF32 ends a row with the register that ends where the row does.
//
//go:nocheckptr
func halfRowsF32(z []float32, x []BFloat16, stride int, base int32, index []int32, w int) {
	if w < lanesF32 {
		halfRowsScalar(z, x, stride, base, index, w)
		return
	}
	for k, i := range index {
		to := unsafe.Pointer(unsafe.SliceData(z[k*w:][:w]))
		from := unsafe.Pointer(unsafe.SliceData(x[int(i-base)*stride:][:w]))
		last := w - lanesF32
		for j := 0; j < last; j += lanesF32 {
			*(*f32s)(unsafe.Add(to, j*sizeF32)) = wideBF16(unsafe.Add(from, j*sizeBF16))
		}
		*(*f32s)(unsafe.Add(to, last*sizeF32)) = wideBF16(unsafe.Add(from, last*sizeBF16))
	}
	clearUpper()
}

//go:nocheckptr
func narrowF32(z []BFloat16, x []float32) {
	x = x[:len(z)]
	j := 0
	for ; j+lanesF32 <= len(z); j += lanesF32 {
		v := *(*f32s)(unsafe.Pointer(&x[j]))
		b := v.ToBits()
		b = b.Add(b.ShiftAllRight(16).And(fillU32(1))).Add(fillU32(0x7fff)).ShiftAllRight(16)
		storeBF16(unsafe.Pointer(&z[j]), fillU32(0x7fc0).IfElse(v.NotEqual(v), b))
	}
	clearUpper()
	narrowScalar(z[j:], x[j:])
}

// nearF32 calls f with some slots of a row of width columns at a time, whose source rows it has brought into the first
// cache: f reads some columns of all of them, and then the next ones. f gets a value, since there would be one for each
// row in the heap: the compiler does not know who keeps what a function that it does not know is given.
func nearF32(g *Gather[float32], width, heads int, f func(part Gather[float32])) {
	part, slots := *g, max(4, nearBytes/(2*max(1, width))/4*4)
	for from := 0; from < len(g.Col); from += slots {
		to := min(from+slots, len(g.Col))
		part.Col = g.Col[from:to]
		if g.C != nil {
			part.C = g.C[from*heads : to*heads]
		}
		if g.Out != nil {
			part.Out = g.Out[from*heads : to*heads]
		}
		touchRows(g.Half, part.Col, g.Base, g.Stride, width)
		f(part)
		part.First = false
	}
}

// nearBytes of rows are brought into the first cache before they are added up, where one has more than nearColumns: of
// narrower ones the loops read all columns in two turns. docs/decisions/0027-near-rows.md.
const nearBytes, nearColumns = 32 << 10, 128

// touchRows reads something of each cache line of rows, four lines at a time: with less in between, more misses are
// under way. Inlined, what it reads would be left out.
//
//go:noinline
//go:nocheckptr
func touchRows(x []BFloat16, col []int32, base int32, stride, width int) (sum uint64) {
	const line = 64
	bytes := 2 * width
	for _, c := range col {
		row := unsafe.Pointer(unsafe.SliceData(x[int(c-base)*stride:][:width]))
		j := 0
		for ; j+4*line <= bytes; j += 4 * line {
			sum += *(*uint64)(unsafe.Add(row, j)) + *(*uint64)(unsafe.Add(row, j+line)) +
				*(*uint64)(unsafe.Add(row, j+2*line)) + *(*uint64)(unsafe.Add(row, j+3*line))
		}
		for ; j < bytes; j += line {
			sum += uint64(*(*BFloat16)(unsafe.Add(row, j)))
		}
	}
	return sum
}
