//go:build goexperiment.simd && (amd64 || arm64)

package vec

import (
	"math"
	"unsafe"
)

var sumsF32 = sums{sizeF32, tileF32, math.MaxInt}

// tileF32 is up to eight registers.
func tileF32(w int, _ bool) (int, sumTile) {
	switch (w + lanesF32 - 1) / lanesF32 {
	case 0, 1:
		return w, sum1F32
	case 2:
		return w, sum2F32
	case 3, 4:
		return w, sum4F32
	case 5, 6:
		return w, sum6F32
	case 7, 8:
		return w, sum8F32
	}
	return 8 * lanesF32, sum8F32
}

// add2F32 adds two registers of a row, times2F32 multiples of them.
func add2F32(r unsafe.Pointer, at0, at1 int, a0, a1 f32s) (f32s, f32s) {
	return a0.Add(*(*f32s)(unsafe.Add(r, at0))), a1.Add(*(*f32s)(unsafe.Add(r, at1)))
}

func times2F32(b f32s, r unsafe.Pointer, at0, at1 int, a0, a1 f32s) (f32s, f32s) {
	return a0.Add(b.Mul(*(*f32s)(unsafe.Add(r, at0)))), a1.Add(b.Mul(*(*f32s)(unsafe.Add(r, at1))))
}

func load2F32(y unsafe.Pointer, at0, at1 int, first bool) (a0, a1 f32s) {
	if first {
		return a0, a1
	}
	return *(*f32s)(unsafe.Add(y, at0)), *(*f32s)(unsafe.Add(y, at1))
}

func store2F32(y unsafe.Pointer, at0, at1 int, a0, a1 f32s) {
	*(*f32s)(unsafe.Add(y, at0)), *(*f32s)(unsafe.Add(y, at1)) = a0, a1
}

// sum1F32 is a tile of no more columns than a register has.
//
//go:noinline
//go:nocheckptr
func sum1F32(y, x unsafe.Pointer, w, stride int, cols []int32, base int, c coefficients, first bool) {
	in := firstF32(w)
	var a f32s
	if !first {
		a = partF32(y, in, w)
	}
	if c.at == nil {
		for _, col := range cols {
			a = a.Add(partF32(unsafe.Add(x, (int(col)-base)*stride), in, w))
		}
	} else {
		for _, col := range cols {
			row := int(col) - base
			a = a.Add(fillF32(*(*float32)(c.of(row))).Mul(partF32(unsafe.Add(x, row*stride), in, w)))
			c.at = unsafe.Add(c.at, c.step)
		}
	}
	storePartF32(y, a, in, w)
	clearUpper()
}

// sum2F32 is a tile of two registers. The row r is what a loop carries, so that it is a register that the
// loads take their offsets from.
//
//go:noinline
//go:nocheckptr
func sum2F32(y, x unsafe.Pointer, w, stride int, cols []int32, base int, c coefficients, first bool) {
	end := (w - lanesF32) * sizeF32
	a0, a1 := load2F32(y, 0, end, first)
	row := int(cols[0]) - base
	r, p := unsafe.Add(x, row*stride), c.of(row)
	if c.at == nil {
		for k := 1; ; k++ {
			a0, a1 = add2F32(r, 0, end, a0, a1)
			if k >= len(cols) {
				break
			}
			r = unsafe.Add(x, (int(cols[k])-base)*stride)
		}
	} else {
		for k := 1; ; k++ {
			b := fillF32(*(*float32)(p))
			a0, a1 = times2F32(b, r, 0, end, a0, a1)
			if k >= len(cols) {
				break
			}
			row := int(cols[k]) - base
			r, p = unsafe.Add(x, row*stride), c.next(row)
		}
	}
	store2F32(y, 0, end, a0, a1)
	clearUpper()
}

// sum4F32 is a tile of three or four registers.
//
//go:noinline
//go:nocheckptr
func sum4F32(y, x unsafe.Pointer, w, stride int, cols []int32, base int, c coefficients, first bool) {
	end := (w - lanesF32) * sizeF32
	at2 := min(2*stepF32, end)
	a0, a1 := load2F32(y, 0, stepF32, first)
	a2, a3 := load2F32(y, at2, end, first)
	row := int(cols[0]) - base
	r, p := unsafe.Add(x, row*stride), c.of(row)
	if c.at == nil {
		for k := 1; ; k++ {
			a0, a1 = add2F32(r, 0, stepF32, a0, a1)
			a2, a3 = add2F32(r, at2, end, a2, a3)
			if k >= len(cols) {
				break
			}
			r = unsafe.Add(x, (int(cols[k])-base)*stride)
		}
	} else {
		for k := 1; ; k++ {
			b := fillF32(*(*float32)(p))
			a0, a1 = times2F32(b, r, 0, stepF32, a0, a1)
			a2, a3 = times2F32(b, r, at2, end, a2, a3)
			if k >= len(cols) {
				break
			}
			row := int(cols[k]) - base
			r, p = unsafe.Add(x, row*stride), c.next(row)
		}
	}
	store2F32(y, 0, stepF32, a0, a1)
	store2F32(y, at2, end, a2, a3)
	clearUpper()
}

// sum6F32 is a tile of five or six registers.
//
//go:noinline
//go:nocheckptr
func sum6F32(y, x unsafe.Pointer, w, stride int, cols []int32, base int, c coefficients, first bool) {
	end := (w - lanesF32) * sizeF32
	at4 := min(4*stepF32, end)
	a0, a1 := load2F32(y, 0, stepF32, first)
	a2, a3 := load2F32(y, 2*stepF32, 3*stepF32, first)
	a4, a5 := load2F32(y, at4, end, first)
	row := int(cols[0]) - base
	r, p := unsafe.Add(x, row*stride), c.of(row)
	if c.at == nil {
		for k := 1; ; k++ {
			a0, a1 = add2F32(r, 0, stepF32, a0, a1)
			a2, a3 = add2F32(r, 2*stepF32, 3*stepF32, a2, a3)
			a4, a5 = add2F32(r, at4, end, a4, a5)
			if k >= len(cols) {
				break
			}
			r = unsafe.Add(x, (int(cols[k])-base)*stride)
		}
	} else {
		for k := 1; ; k++ {
			b := fillF32(*(*float32)(p))
			a0, a1 = times2F32(b, r, 0, stepF32, a0, a1)
			a2, a3 = times2F32(b, r, 2*stepF32, 3*stepF32, a2, a3)
			a4, a5 = times2F32(b, r, at4, end, a4, a5)
			if k >= len(cols) {
				break
			}
			row := int(cols[k]) - base
			r, p = unsafe.Add(x, row*stride), c.next(row)
		}
	}
	store2F32(y, 0, stepF32, a0, a1)
	store2F32(y, 2*stepF32, 3*stepF32, a2, a3)
	store2F32(y, at4, end, a4, a5)
	clearUpper()
}

// sum8F32 is a tile of seven or eight registers.
//
//go:noinline
//go:nocheckptr
func sum8F32(y, x unsafe.Pointer, w, stride int, cols []int32, base int, c coefficients, first bool) {
	end := (w - lanesF32) * sizeF32
	at6 := min(6*stepF32, end)
	a0, a1 := load2F32(y, 0, stepF32, first)
	a2, a3 := load2F32(y, 2*stepF32, 3*stepF32, first)
	a4, a5 := load2F32(y, 4*stepF32, 5*stepF32, first)
	a6, a7 := load2F32(y, at6, end, first)
	row := int(cols[0]) - base
	r, p := unsafe.Add(x, row*stride), c.of(row)
	if c.at == nil {
		for k := 1; ; k++ {
			a0, a1 = add2F32(r, 0, stepF32, a0, a1)
			a2, a3 = add2F32(r, 2*stepF32, 3*stepF32, a2, a3)
			a4, a5 = add2F32(r, 4*stepF32, 5*stepF32, a4, a5)
			a6, a7 = add2F32(r, at6, end, a6, a7)
			if k >= len(cols) {
				break
			}
			r = unsafe.Add(x, (int(cols[k])-base)*stride)
		}
	} else {
		for k := 1; ; k++ {
			b := fillF32(*(*float32)(p))
			a0, a1 = times2F32(b, r, 0, stepF32, a0, a1)
			a2, a3 = times2F32(b, r, 2*stepF32, 3*stepF32, a2, a3)
			a4, a5 = times2F32(b, r, 4*stepF32, 5*stepF32, a4, a5)
			a6, a7 = times2F32(b, r, at6, end, a6, a7)
			if k >= len(cols) {
				break
			}
			row := int(cols[k]) - base
			r, p = unsafe.Add(x, row*stride), c.next(row)
		}
	}
	store2F32(y, 0, stepF32, a0, a1)
	store2F32(y, 2*stepF32, 3*stepF32, a2, a3)
	store2F32(y, 4*stepF32, 5*stepF32, a4, a5)
	store2F32(y, at6, end, a6, a7)
	clearUpper()
}
