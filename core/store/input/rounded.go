package input

import (
	"encoding/binary"
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

func rounds(t disk.TensorInfo) bool {
	return len(t.Shape) > 1 && (t.DType == dtypes.Float32 || t.DType == dtypes.Float64)
}

// NodeTypes implements Source.
func (r rounded) NodeTypes() []TypeRows {
	types := slices.Clone(r.Source.NodeTypes())
	for i := range types {
		types[i].Arrays = slices.Clone(types[i].Arrays)
		for k, t := range types[i].Arrays {
			if rounds(t) {
				types[i].Arrays[k].DType = dtypes.BFloat16
			}
		}
	}
	return types
}

// ReadRows implements Source.
func (r rounded) ReadRows(edge bool, kind int, name string, first int64, dst []byte) error {
	if edge {
		return r.Source.ReadRows(edge, kind, name, first, dst)
	}
	arrays := r.Source.NodeTypes()[kind].Arrays
	at := slices.IndexFunc(arrays, func(t disk.TensorInfo) bool { return t.Name == name })
	if at < 0 || !rounds(arrays[at]) {
		return r.Source.ReadRows(edge, kind, name, first, dst)
	}
	size := arrays[at].DType.Size()
	whole := make([]byte, len(dst)/dtypes.BFloat16.Size()*size)
	if err := r.Source.ReadRows(edge, kind, name, first, whole); err != nil {
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
