//go:build goexperiment.simd && (amd64 || arm64)

package vec

import "unsafe"

// dropF32 is dropScalar, a register of elements at a time. That of float64 is plain Go.
//
//go:nocheckptr
func dropF32(z, x []float32, d *Drop[float32]) {
	z = z[:len(x)]
	at := fillU32(d.A)
	at = at.Add(*(*u32s)(unsafe.Pointer(&dropLanes)))
	step, b := fillU32(lanesF32*dropStep&(1<<32-1)), fillU32(d.B)
	first, second := fillU32(dropFirst), fillU32(dropSecond)
	below, scale := fillI32(d.Below), fillF32(d.Scale)
	var zero f32s
	j := 0
	for ; j+lanesF32 <= len(x); j += lanesF32 {
		h := at.Xor(at.ShiftAllRight(16)).Mul(first).Xor(b)
		h = h.Xor(h.ShiftAllRight(15)).Mul(second)
		h = h.Xor(h.ShiftAllRight(15)).ShiftAllRight(1)
		by := zero.IfElse(below.Greater(h.BitsToInt32()), scale)
		*(*f32s)(unsafe.Pointer(&z[j])) = (*(*f32s)(unsafe.Pointer(&x[j]))).Mul(by)
		at = at.Add(step)
	}
	clearUpper()
	if j < len(x) {
		rest := *d
		rest.A += uint32(j) * dropStep
		dropScalar(z[j:], x[j:], &rest)
	}
}

// dropLanes is how far the numbers of the lanes are apart.
var dropLanes = func() (lanes [lanesF32]uint32) {
	for j := range lanes {
		lanes[j] = uint32(j) * dropStep
	}
	return
}()
