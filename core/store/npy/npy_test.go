package npy

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"sar/core/internal/dtypes"
	"sar/core/store/disk"
)

func TestNpyVersions(t *testing.T) {
	for v := 1; v <= 3; v++ {
		b, err := os.ReadFile(fmt.Sprintf("../testdata/npz/v%d.npy", v))
		if err != nil {
			t.Fatal(err)
		}
		h, err := parse(disk.InMemory("v.npy", b), "v", b)
		if err != nil || h.DType != dtypes.Float32 || !slices.Equal(h.Shape, []int64{6, 3}) {
			t.Errorf("version %d: %+v, %v", v, h, err)
		}
	}
}
