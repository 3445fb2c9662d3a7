// Package view reads memory as bytes or as numbers, without a copy.
package view

import "unsafe"

// Bytes is the memory of x.
func Bytes[T any](x []T) []byte {
	var zero T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), len(x)*int(unsafe.Sizeof(zero)))
}

// Numbers reads b, which must be aligned for T as frames and arenas are, as numbers. Bytes
// at the end that are less than one number are left out.
func Numbers[T any](b []byte) []T {
	var zero T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(zero)))
}
