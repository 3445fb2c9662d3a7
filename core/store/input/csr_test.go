package input

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"sar/core/store/disk"
	"sar/core/store/storetest"
)

// oneType is smallDir with its users and their followers alone.
func oneType(dtype string, source []byte) storetest.Directory {
	d := storetest.SmallDirectory()
	d[Description] = []byte(`{"format": "SAR graph 1",
		"node_types": {"user": {"count": 3, "features": {}}},
		"edge_types": [{"type": ["user", "follows", "user"], "count": 4,
			"indptr": {"file": "edges/f/indptr.npy"}, "source": {"file": "edges/f/source.npy"}}]}`)
	d["edges/f/source.npy"] = storetest.Array(dtype, "(4,)", source)
	return d
}

func TestInEdges(t *testing.T) {
	for dtype, source := range map[string][]byte{"<i4": storetest.Int32s(0, 1, 1, 2),
		"<i8": storetest.Bytes([]int64{0, 1, 1, 2})} {
		g, err := Open(oneType(dtype, source).Write(t, t.TempDir()))
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close()
		if g, err = AddSelfLoops(g); err != nil {
			t.Fatal(err)
		}
		m, ok := InEdges(g)
		if !ok || m.NumNodes() != 3 || m.NumEntries() != 4 {
			t.Fatalf("%v, %v", m, ok)
		}
		offsets, columns := make([]int64, 3), make([]int32, 3)
		if err := errors.Join(m.ReadOffsets(1, offsets), m.ReadColumns(1, columns)); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(offsets, []int64{1, 1, 4}) || !slices.Equal(columns, []int32{1, 1, 2}) {
			t.Fatalf("%s: %v, %v", dtype, offsets, columns)
		}
	}
	g, err := Open(oneType("<i8", storetest.Bytes([]int64{0, 1 << 32, 1, 2})).Write(t, t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	m, _ := InEdges(g)
	var damage *disk.FormatError
	if err := m.ReadColumns(0, make([]int32, 4)); !errors.As(err, &damage) ||
		!strings.Contains(err.Error(), "4294967296") {
		t.Fatal(err)
	}
	if typed, err := Open(storetest.SmallDirectory().Write(t, t.TempDir())); err != nil {
		t.Fatal(err)
	} else if _, ok := InEdges(typed); ok {
		t.Fatal("a matrix of a graph of several types")
	}
}
