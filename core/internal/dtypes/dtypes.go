// Package dtypes is the types of numbers in tensors: what torch, DLPack and numpy call each.
package dtypes

import (
	"fmt"
	"math"
)

// Type is the type of one number of a tensor.
type Type uint8

const (
	Invalid Type = iota
	Bool
	Uint8
	Uint16
	Uint32
	Uint64
	Int8
	Int16
	Int32
	Int64
	Float16
	BFloat16
	Float32
	Float64
	Complex64
	Complex128
)

// table holds what torch, DLPack (code and bits) and numpy call each type.
// numpy has no bfloat16.
var table = [...]struct {
	name       string
	code, bits uint8
	npy        string
}{
	Bool:       {"bool", 6, 8, "b1"},
	Uint8:      {"uint8", 1, 8, "u1"},
	Uint16:     {"uint16", 1, 16, "u2"},
	Uint32:     {"uint32", 1, 32, "u4"},
	Uint64:     {"uint64", 1, 64, "u8"},
	Int8:       {"int8", 0, 8, "i1"},
	Int16:      {"int16", 0, 16, "i2"},
	Int32:      {"int32", 0, 32, "i4"},
	Int64:      {"int64", 0, 64, "i8"},
	Float16:    {"float16", 2, 16, "f2"},
	BFloat16:   {"bfloat16", 4, 16, ""},
	Float32:    {"float32", 2, 32, "f4"},
	Float64:    {"float64", 2, 64, "f8"},
	Complex64:  {"complex64", 5, 64, "c8"},
	Complex128: {"complex128", 5, 128, "c16"},
}

// Known says whether it is one of these types.
func (d Type) Known() bool { return d > Invalid && int(d) < len(table) }

// String is torch's name, without the "torch.".
func (d Type) String() string {
	if !d.Known() {
		return fmt.Sprintf("dtype(%d)", uint8(d))
	}
	return table[d].name
}

// MarshalText implements encoding.TextMarshaler.
func (d Type) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// Size is the bytes of one number, IsInteger says whether the type may hold ids, and DLPack is how
// DLPack spells it: type code and bits.
func (d Type) Size() int                  { return int(table[d].bits) / 8 }
func (d Type) IsInteger() bool            { return d >= Uint8 && d <= Int64 }
func (d Type) DLPack() (code, bits uint8) { return table[d].code, table[d].bits }

// Of finds a type by its DLPack code and bits.
func Of(code, bits uint8) (Type, bool) {
	for d := Bool; int(d) < len(table); d++ {
		if table[d].code == code && table[d].bits == bits {
			return d, true
		}
	}
	return Invalid, false
}

// Numpy is what numpy calls the type, without the order of bytes; "" where it has no such type.
func (d Type) Numpy() string { return table[d].npy }

// OfNumpy finds a type by what numpy calls it.
func OfNumpy(kind string) (Type, bool) {
	for d := Bool; int(d) < len(table); d++ {
		if table[d].npy == kind && kind != "" {
			return d, true
		}
	}
	return Invalid, false
}

// Number lists the Go types of numbers.
type Number interface {
	float64 | float32 | int64 | int32 | uint8
}

// For is the type of a Go type.
func For[T Number]() Type {
	var zero T
	switch any(zero).(type) {
	case float64:
		return Float64
	case float32:
		return Float32
	case int64:
		return Int64
	case int32:
		return Int32
	}
	return Uint8
}

// FromBFloat16 is a number that is stored as bfloat16.
func FromBFloat16(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// ToBFloat16 rounds to the nearest that bfloat16 has, of two as near the even one. Every NaN is 0x7fc0.
func ToBFloat16(f float32) uint16 {
	if f != f {
		return 0x7fc0
	}
	b := math.Float32bits(f)
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}
