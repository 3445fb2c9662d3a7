package store

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"sar/core/mem"
	"sar/core/store/input"
	"sar/core/store/sar"
)

// withFixedMemory makes buffers count as so many bytes while a test runs.
func withFixedMemory(t *testing.T, bytes int64) {
	before := sar.FixedMemory
	sar.FixedMemory = bytes
	t.Cleanup(func() { sar.FixedMemory = before })
}

// inTurn is an assignment of the nodes of a graph to parts of equal sizes.
func inTurn(g input.Graph, parts int) []int32 {
	assignment := make([]int32, g.NumNodes())
	for k := range assignment {
		assignment[k] = int32(k % parts)
	}
	return assignment
}

// Many passes over the edges, each of a few, write what one does.
func TestSARFormatMemory(t *testing.T) {
	withFixedMemory(t, 128)
	r := rand.New(rand.NewPCG(5, 6))
	dir := sortedDir(t, r, 60, 300)
	loose := filepath.Join(t.TempDir(), "g.npz")
	if err := os.WriteFile(loose, typedNPZ2(t, r), 0o664); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, loose} {
		var written [2]map[string]string
		for i := range written {
			g := opened(OpenGraph(path))(t)
			memory := int64(DefaultMemory)
			if i == 1 {
				memory = LeastMemory(g, 3)
			}
			to := Partitioning{Assignment: inTurn(g, 3), Parts: 3, Dir: t.TempDir(), Name: "g", Format: SARFormat,
				Memory: memory}
			if err := errors.Join(WritePartitions(g, to), g.Close()); err != nil {
				t.Fatal(err)
			}
			written[i] = allFiles(t, to.Dir)
		}
		if len(written[0]) < 40 || len(written[0]) != len(written[1]) {
			t.Fatalf("%d and %d files", len(written[0]), len(written[1]))
		}
		for name, data := range written[0] {
			if written[1][name] != data {
				t.Errorf("%s differs", name)
			}
		}
	}
}

// What is taken stays within the memory, though the edges alone are more than that. Columns
// that are mapped for the order of rows may be dropped by the system at any time.
func TestMemoryOfWriting(t *testing.T) {
	if testing.Short() {
		t.Skip("writes 120,000 edges three times, in one thread")
	}
	withFixedMemory(t, 256<<10)
	const nodes, edges, parts = 4000, 120000, 4
	dir := sortedDir(t, rand.New(rand.NewPCG(11, 12)), nodes, edges)
	own := filepath.Join(t.TempDir(), "sar")
	for _, c := range []struct {
		from, format, dir string
	}{{dir, SARFormat, own}, {dir, DGLFormat, t.TempDir()}, {filepath.Join(own, "g.json"), DGLFormat, t.TempDir()}} {
		g := opened(OpenGraph(c.from))(t)
		memory := LeastMemory(g, parts)
		to := Partitioning{Assignment: inTurn(g, parts), Parts: parts, Dir: c.dir, Name: "g", Format: c.format,
			Memory: memory}
		if j, ok := g.(*allParts); ok {
			j.LimitMemory(sar.FixedMemory)
			memory += sar.FixedMemory + 64*nodes // of the nodes of a part
			if err := j.Assignment(to.Assignment); err != nil {
				t.Fatal(err)
			}
		}
		mem.ResetPeak(mem.Scratch)
		before := mem.Stats()[mem.Scratch].Live
		if err := errors.Join(WritePartitions(g, to), g.Close()); err != nil {
			t.Fatal(err)
		}
		mapped, pages := int64(4*edges/parts*11/10), int64(16*4096)
		if taken := mem.Stats()[mem.Scratch].Peak - before + 4*nodes; taken > memory+mapped+pages {
			t.Errorf("%s to %s: %d bytes of %d", c.from, c.format, taken, memory)
		}
	}
}

// Too little memory is refused, with what would do.
func TestTooLittleMemory(t *testing.T) {
	withFixedMemory(t, 128)
	g := opened(OpenGraph(sortedDir(t, rand.New(rand.NewPCG(13, 14)), 60, 300)))(t)
	defer g.Close()
	for _, format := range []string{SARFormat, DGLFormat} {
		least := LeastMemory(g, 2)
		to := Partitioning{Assignment: inTurn(g, 2), Parts: 2, Dir: t.TempDir(), Name: "g", Format: format,
			Memory: least - 128}
		var budget *mem.BudgetError
		if err := WritePartitions(g, to); !errors.As(err, &budget) || budget.Have != to.Memory ||
			budget.Minimum <= to.Memory || budget.Minimum > least {
			t.Errorf("%s: %v, of %d", format, err, least)
		}
		to.Memory = least
		if err := WritePartitions(g, to); err != nil {
			t.Error(err)
		}
	}
}
