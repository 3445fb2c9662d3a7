package store

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sar/core/store/disk"
	"sar/core/store/storetest"
)

// withoutSums takes the checksums of part 0 off a description.
func withoutSums(t testing.TB, path string) {
	t.Helper()
	var top map[string]any
	if err := json.Unmarshal(storetest.MustRead(t, path), &top); err != nil {
		t.Fatal(err)
	}
	delete(top, "checksum")
	delete(top["part-0"].(map[string]any), "checksums")
	text, err := json.Marshal(top)
	if err == nil {
		err = os.WriteFile(path, text, 0o664)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// readSAR does with part 0 all that a worker does.
func readSAR(path string) error {
	p, err := OpenPartition(path, 0, 0)
	if err != nil {
		return err
	}
	defer p.Close()
	rels, err := p.sar.Relations(2)
	for _, r := range rels {
		err = errors.Join(err, r.EdgeOrder())
		r.Free()
	}
	for i := range p.book.EdgeTypes {
		if err == nil {
			n, _ := p.NumRelationEdges(i)
			err = p.RelationEdges(i, make([]int64, n), nil, nil)
		}
	}
	for edge, list := range map[bool][]disk.TensorInfo{false: p.Features(false), true: p.Features(true)} {
		for _, f := range list {
			if err == nil {
				err = p.Read(edge, f.Name, make([]byte, f.Bytes()), f.DType, f.Shape)
			}
		}
	}
	return err
}

// Where there are no checksums, numbers that leave their ranges are still noticed, by file
// and place, and nothing is read past an end.
func TestSARFormatNumbers(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	dir := sortedDir(t, r, 60, 300)
	g := opened(OpenGraph(dir))(t)
	assignment := make([]int32, g.NumNodes())
	for i := range assignment {
		assignment[i] = int32(i % 2)
	}
	to := Partitioning{Assignment: assignment, Parts: 2, Dir: t.TempDir(), Name: "g", Format: SARFormat}
	if err := errors.Join(WritePartitions(g, to), g.Close()); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(to.Dir, "g.json")
	withoutSums(t, path)
	if err := readSAR(path); err != nil {
		t.Fatal(err)
	}
	relation := filepath.Join(to.Dir, "part0", "relations", "a__x__a")
	for _, array := range []string{"row_ptr", "col", "col_ptr", "row", "halo_rows", "send", "out_degree", "key"} {
		file := filepath.Join(relation, array+".npy")
		whole := storetest.MustRead(t, file)
		for range 12 {
			at := 128 + 4*r.IntN((len(whole)-128)/4)
			bytes := append([]byte(nil), whole...)
			bytes[at+3] ^= 1 << (4 + r.IntN(4)) // far out of range
			if err := os.WriteFile(file, bytes, 0o664); err != nil {
				t.Fatal(err)
			}
			var bad *disk.FormatError
			err := readSAR(path)
			if array == "out_degree" && err == nil {
				continue // a degree may be large
			}
			if !errors.As(err, &bad) || !strings.Contains(bad.File, relation) {
				t.Fatalf("%s at %d: %v", array, at, err)
			}
		}
		for _, size := range []int{0, 11, 100, 128, len(whole) - 4, len(whole) - 1} {
			if err := os.WriteFile(file, whole[:size], 0o664); err != nil {
				t.Fatal(err)
			}
			var bad *disk.FormatError
			if err := readSAR(path); !errors.As(err, &bad) || bad.File != file {
				t.Fatalf("%s cut to %d bytes: %v", array, size, err)
			}
		}
		if err := os.WriteFile(file, whole, 0o664); err != nil {
			t.Fatal(err)
		}
	}
	// Numbers that are in range, and another matrix.
	file := filepath.Join(relation, "row"+".npy")
	whole := storetest.MustRead(t, file)
	copy(whole[128:], whole[132:136])
	if err := os.WriteFile(file, whole, 0o664); err != nil {
		t.Fatal(err)
	}
	if err := readSAR(path); err == nil || !strings.Contains(err.Error(), "row.npy") {
		t.Fatal(err)
	}
}

func FuzzPart(f *testing.F) {
	r := rand.New(rand.NewPCG(9, 10))
	dir := sortedDir(f, r, 12, 30)
	g := opened(OpenGraph(dir))(f)
	to := Partitioning{Assignment: make([]int32, g.NumNodes()), Parts: 1, Dir: f.TempDir(), Name: "g", Format: SARFormat}
	if err := errors.Join(WritePartitions(g, to), g.Close()); err != nil {
		f.Fatal(err)
	}
	path := filepath.Join(to.Dir, "g.json")
	withoutSums(f, path)
	part, relation := filepath.Join(to.Dir, "part0", "part.json"), filepath.Join(to.Dir, "part0", "relations", "a__x__a")
	names := []string{part, filepath.Join(relation, "col.npy"), filepath.Join(relation, "row_ptr.npy")}
	f.Add(storetest.MustRead(f, names[0]), storetest.MustRead(f, names[1]), storetest.MustRead(f, names[2]))
	f.Fuzz(func(t *testing.T, description, col, ptr []byte) {
		if strings.Contains(string(description), "..") {
			t.Skip()
		}
		for i, data := range [][]byte{storetest.Resealed(description), col, ptr} {
			if err := os.WriteFile(names[i], data, 0o664); err != nil {
				t.Fatal(err)
			}
		}
		storetest.Bounded(t, append(append(append([]byte(nil), description...), col...), ptr...), 4096,
			func([]byte) error {
				err := readSAR(path)
				if errors.Is(err, os.ErrNotExist) { // the description names another file
					return nil
				}
				return err
			})
	})
}
