// Package view reads memory as bytes or as numbers, without a copy.
package view

import "unsafe"

// Bytes is the memory of x.
func Bytes[T any](x []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), len(x)*Size[T]())
}

// Numbers reads b, which must be aligned for T as frames and arenas are, as numbers. Bytes
// at the end that are less than one number are left out.
func Numbers[T any](b []byte) []T {
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/Size[T]())
}

// Size is the bytes of one T.
func Size[T any]() int {
	var zero T
	return int(unsafe.Sizeof(zero))
}
