package input

import (
	"encoding/binary"
	"maps"
	"math"
	"slices"

	"sar/core/internal/argument"
	"sar/core/internal/dtypes"
	"sar/core/store/disk"
)

// rounded is a source whose features of nodes are read as bfloat16 where they are float32 or float64 and of two
// or more dimensions. Numbers of one dimension, as weights are, stay what they are.
type rounded struct{ Source }

// Rounded has features of nodes read in a type, "bfloat16", or as they are, "".
func Rounded(src Source, dtype string) (Source, error) {
	switch dtype {
	case "":
		return src, nil
	case dtypes.BFloat16.String():
		return rounded{src}, nil
	}
	return nil, argument.Errorf("features are rounded to bfloat16, not to %q", dtype)
}

// NodeTypes implements Source.
func (r rounded) NodeTypes() []Table {
	types := slices.Clone(r.Source.NodeTypes())
	for i := range types {
		types[i].Arrays = maps.Clone(types[i].Arrays)
		for name, a := range types[i].Arrays {
			if len(a.Shape) > 1 && (a.DType == dtypes.Float32 || a.DType == dtypes.Float64) {
				types[i].Arrays[name] = disk.Array{Name: a.Name, DType: dtypes.BFloat16, Shape: a.Shape, Len: a.Len,
					Derive: func(first int64, dst []byte) error { return round(&a, first, dst) }}
			}
		}
	}
	return types
}

// round fills dst with the rows of an array from row first on, as bfloat16.
func round(a *disk.Array, first int64, dst []byte) error {
	size := a.DType.Size()
	whole := make([]byte, len(dst)/dtypes.BFloat16.Size()*size)
	if err := a.ReadRows(first, whole); err != nil {
		return err
	}
	for i := range len(whole) / size {
		var v float32
		if b := whole[i*size:]; size == 4 {
			v = math.Float32frombits(binary.LittleEndian.Uint32(b))
		} else {
			v = float32(math.Float64frombits(binary.LittleEndian.Uint64(b)))
		}
		binary.LittleEndian.PutUint16(dst[2*i:], dtypes.ToBFloat16(v))
	}
	return nil
}
