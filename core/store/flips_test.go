package store

import (
	"archive/zip"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sar/core/graph"
	"sar/core/store/disk"
	"sar/core/store/storetest"
)

// flips is how many bits TestFlippedBits flips in files of each kind.
// SAR_FLIPS=4000 makes it 20,000 in all, which takes a minute.
func flips(t *testing.T) int {
	text := os.Getenv("SAR_FLIPS")
	if text == "" && testing.Short() { // under the race detector each takes a tenth of a second
		return 40
	}
	if text == "" {
		return 200
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// loadPartition does all that can be done with a partition and returns a hash
// of what came out.
func loadPartition(path string, part int) (uint64, error) {
	p, err := OpenPartition(path, part, 0)
	if err != nil {
		return 0, err
	}
	defer p.Close()
	h := fnv.New64a()
	fmt.Fprint(h, *p.Book(), p.Info())
	for _, edge := range []bool{false, true} {
		for _, i := range p.Features(edge) {
			b := make([]byte, i.Bytes())
			if err := p.Read(edge, i.Name, b, i.DType, i.Shape); err != nil {
				return 0, err
			}
			h.Write(b)
		}
	}
	nodes, inner, err := p.Nodes()
	if err != nil {
		return 0, err
	}
	fmt.Fprint(h, nodes, inner)
	err = p.Edges(func(b graph.EdgeBatch) error {
		_, err := fmt.Fprint(h, b)
		return err
	})
	for r := range p.Book().EdgeTypes {
		n, _ := p.NumRelationEdges(r)
		src, dst, id := make([]int64, n), make([]int64, n), make([]int64, n)
		if err == nil {
			err = p.RelationEdges(r, src, dst, id)
		}
		fmt.Fprint(h, src, dst, id)
	}
	return h.Sum64(), err
}

// loadGraph does the same with a graph that is to be partitioned.
func loadGraph(path string) (uint64, error) {
	g, err := OpenGraph(path)
	if err != nil {
		return 0, err
	}
	defer g.Close()
	h := fnv.New64a()
	fmt.Fprint(h, g.NumNodes(), g.NumEdges(), g.Ignored())
	err = g.EdgesBatch(func(first int64, src, dst []int64) error {
		_, err := fmt.Fprint(h, first, src, dst)
		return err
	})
	for _, of := range slices.Concat(g.NodeTypes(), g.EdgeTypes()) {
		fmt.Fprint(h, of.Name, of.Rows, of.Src, of.Dst, of.Features())
		for _, f := range of.Features() {
			a, b := of.Arrays[f.Name], make([]byte, f.Bytes())
			if err == nil {
				err = a.ReadRows(0, b)
			}
			h.Write(b)
		}
	}
	return h.Sum64(), err
}

// typedNPZ is a graph of two node types and two relations.
func typedNPZ(t *testing.T, method uint16) []byte {
	ids := func(n, mod int) (b []byte) {
		for i := range n {
			b = append(b, byte(i*i%mod), 0, 0, 0)
		}
		return b
	}
	return storetest.Zip(t, method, map[string][]byte{
		"author:writes:paper/edge_index": storetest.Array("<i4", "(2, 40)", append(ids(40, 12), ids(40, 20)...)),
		"paper:cites:paper/edge_index":   storetest.Array("<i4", "(2, 30)", append(ids(30, 20), ids(30, 19)...)),
		"author:writes:paper/since":      storetest.Array("<i4", "(40,)", ids(40, 200)),
		"paper/x":                        storetest.Array("<f4", "(20, 3)", ids(60, 100)),
		"author/num_nodes":               storetest.Array("<i4", "()", []byte{12, 0, 0, 0}),
	})
}

// TestFlippedBits flips one bit of a file of a partition that WritePartitions
// wrote, or of an .npz file, anywhere: either the file is refused by name, or
// all that is loaded from it is as before.
func TestFlippedBits(t *testing.T) {
	r := rand.New(rand.NewSource(11))
	dir := t.TempDir()
	npz := map[string][]byte{"stored": storetest.MustRead(t, "testdata/npz/stored.npz"),
		"deflated": storetest.MustRead(t, "testdata/npz/deflated.npz"), "typed": typedNPZ(t, zip.Store)}
	for name, b := range npz {
		if err := os.WriteFile(filepath.Join(dir, name+".npz"), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	assign := make([]int32, 60)
	for i := range assign {
		assign[i] = int32(r.Intn(3))
	}
	if err := writeSingle(randomGraph(r, 60, 500),
		Partitioning{Assignment: assign, Parts: 3, Dir: filepath.Join(dir, "homogeneous"), Name: "g",
			Method: "random"}); err != nil {
		t.Fatal(err)
	}
	g, err := OpenGraph(filepath.Join(dir, "typed.npz"))
	if err != nil {
		t.Fatal(err)
	}
	if err := WritePartitions(g, Partitioning{Assignment: assign[:g.NumNodes()], Parts: 3,
		Dir: filepath.Join(dir, "types"), Name: "g", Method: "random"}); err != nil {
		t.Fatal(err)
	}
	g.Close()
	for _, name := range []string{"stored", "deflated", "typed"} {
		path := filepath.Join(dir, name+".npz")
		t.Run(name+".npz", func(t *testing.T) {
			flipBits(t, r, []target{{path, func() (uint64, error) { return loadGraph(path) }}})
		})
	}
	for _, name := range []string{"homogeneous", "types"} {
		config := filepath.Join(dir, name, "g.json")
		var targets []target
		for part := range 3 {
			load := func() (uint64, error) { return loadPartition(config, part) }
			for _, file := range []string{"graph.dgl", "node_feat.dgl", "edge_feat.dgl", "checksums.crc"} {
				targets = append(targets, target{filepath.Join(dir, name, fmt.Sprintf("part%d", part), file), load})
			}
			targets = append(targets, target{config, load})
		}
		t.Run(name, func(t *testing.T) { flipBits(t, r, targets) })
	}
}

// target is a file, and what loads it.
type target struct {
	path string
	load func() (uint64, error)
}

func flipBits(t *testing.T, r *rand.Rand, targets []target) {
	want := make([]uint64, len(targets))
	for i, of := range targets {
		var err error
		if want[i], err = of.load(); err != nil {
			t.Fatal(err)
		}
	}
	refused, same, n := 0, 0, flips(t)
	for range n {
		i := r.Intn(len(targets))
		path := targets[i].path
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		size, _ := f.Seek(0, io.SeekEnd)
		at, was := r.Int63n(size), []byte{0}
		if _, err := f.ReadAt(was, at); err != nil {
			t.Fatal(err)
		}
		now := was[0] ^ 1<<r.Intn(8)
		if _, err := f.WriteAt([]byte{now}, at); err != nil {
			t.Fatal(err)
		}
		got, err := targets[i].load()
		if _, err := f.WriteAt(was, at); err != nil {
			t.Fatal(err)
		}
		f.Close()
		var damage *disk.FormatError
		switch {
		case err == nil && got != want[i]:
			t.Errorf("%s: byte %d changed from %q to %q, and other data are loaded", path, at, was, now)
		case err == nil && filepath.Ext(path) == ".dgl":
			t.Errorf("%s: byte %d changed from %q to %q, and nobody noticed", path, at, was, now)
		case err == nil:
			same++
		case !errors.As(err, &damage) || !strings.HasPrefix(damage.File, path):
			t.Errorf("%s: byte %d changed from %q to %q: %v is no FormatError of that file", path, at, was, now, err)
		case filepath.Ext(path) == ".dgl" && (at < damage.Offset || at >= damage.End):
			t.Errorf("%s: byte %d changed: %v", path, at, err)
		default:
			refused++
		}
	}
	t.Logf("%d flipped bits: %d refused, %d accepted with the same data, %d failures", n, refused, same, n-refused-same)
}
