package disk

import "fmt"

// DType is the type of one number of an array.
type DType uint8

const (
	Invalid DType = iota
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

// dtypes holds what torch, DLPack (code and bits) and numpy call each type.
// numpy has no bfloat16.
var dtypes = [...]struct {
	name       string
	code, bits uint8
	NPY        string
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

// String is torch's name, without the "torch.".
func (d DType) String() string {
	if d == Invalid || int(d) >= len(dtypes) {
		return fmt.Sprintf("dtype(%d)", uint8(d))
	}
	return dtypes[d].name
}

// MarshalText implements encoding.TextMarshaler.
func (d DType) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// Size is the bytes of one number, IsInteger says whether the type may hold ids, and DLPack is how
// DLPack spells it: type code and bits.
func (d DType) Size() int                  { return int(dtypes[d].bits) / 8 }
func (d DType) IsInteger() bool            { return d >= Uint8 && d <= Int64 }
func (d DType) DLPack() (code, bits uint8) { return dtypes[d].code, dtypes[d].bits }

// DTypeOf finds a type by its DLPack code and bits.
func DTypeOf(code, bits uint8) (DType, bool) {
	for d := Bool; int(d) < len(dtypes); d++ {
		if dtypes[d].code == code && dtypes[d].bits == bits {
			return d, true
		}
	}
	return Invalid, false
}

// MaxDims is how many dimensions an array may have.
const MaxDims = 32

// Numpy is what numpy calls the type, without the order of bytes; "" where it has no such type.
func (d DType) Numpy() string { return dtypes[d].NPY }

// DTypeOfNumpy finds a type by what numpy calls it.
func DTypeOfNumpy(kind string) (DType, bool) {
	for d := Bool; int(d) < len(dtypes); d++ {
		if dtypes[d].NPY == kind && kind != "" {
			return d, true
		}
	}
	return Invalid, false
}

// TensorInfo describes an array on disk. Shape is [rows, ...].
type TensorInfo struct {
	// Name is "ntype/feature" or "src:rel:dst/feature" in partitions, and the
	// plain name in a whole graph.
	Name  string  `json:"name"`
	DType DType   `json:"dtype"`
	Shape []int64 `json:"shape"`
}

// Bytes is the size of the whole array.
func (t TensorInfo) Bytes() int64 {
	n := int64(t.DType.Size())
	for _, d := range t.Shape {
		n *= d
	}
	return n
}

// RowBytes is the size of one row.
func (t TensorInfo) RowBytes() int64 {
	n := int64(t.DType.Size())
	for _, d := range t.Shape[1:] {
		n *= d
	}
	return n
}

// Elements multiplies a shape, and says whether the array of elements of the
// given size fits limit bytes.
func Elements(shape []int64, size int, limit int64) (int64, bool) {
	n := int64(1)
	for _, d := range shape {
		if d < 0 {
			return 0, false
		}
		if d == 0 {
			n = 0
		}
	}
	if n == 0 {
		return 0, true
	}
	for _, d := range shape {
		if d > limit/n {
			return 0, false
		}
		n *= d
	}
	return n, n <= limit/int64(size)
}
