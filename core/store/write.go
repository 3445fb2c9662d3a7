package store

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sar/core/internal/argument"
	"sar/core/mem"
	"sar/core/store/dgl"
	"sar/core/store/disk"
	"sar/core/store/input"
	"sar/core/store/sar"
	"sar/core/store/split"
)

// LeastMemory is what WritePartitions takes at least, for parts of equal sizes.
func LeastMemory(src input.Source, parts int, format string) int64 {
	n := nodeMemory(src, format) + split.FixedMemory
	if format == split.SARFormat {
		n += sar.LargestPart(src, parts)
	}
	return n
}

// nodeMemory is what writing in a format takes for the nodes.
func nodeMemory(src input.Source, format string) int64 {
	if format == split.SARFormat {
		return sar.NodeMemory(src)
	}
	return dgl.NodeMemory(src)
}

// WritePartitions splits a graph: node i goes to partition Assignment[i]. In SAR's format
// (see sar.Writer) it writes dir/name.json and part<p>/part.json with arrays as .npy files,
// ready for OpenPartition to map. In DGL's it
// writes dir/name.json and dir/part<p>/{graph,node_feat,edge_feat}.dgl as DGL's
// partition_graph does with one halo hop, for dgl.distributed.load_partition
// and OpenPartition.
//
// Nodes are numbered anew so that a partition owns a contiguous range, in the
// order they had; edges too, each belonging to the partition of its
// destination. Features "orig_id" of nodes and edges keep the original ids of each
// type, as DGL's return_mapping gives them. Bool is written as uint8, as DGL does.
//
// Everything is written to dir/.<name>.partial first and renamed at the end, the
// JSON last, so that a failed write leaves no graph that claims to be whole,
// and what was there before as it was. A process that is killed leaves that
// directory, which the next one empties. Memory: LeastMemory; in SAR's format edges
// take what else there is, in as few passes as that allows. Disk: two passes over the edges, one over each feature, one over what
// was written, for its checksums (part<p>/checksums.crc, which DGL does not
// read; OpenPartition and Verify do).
func WritePartitions(src input.Source, to split.Partitioning) error {
	assignment, parts, dir, name := to.Assignment, to.Parts, to.Dir, to.Name
	if to.Memory == 0 {
		to.Memory = split.DefaultMemory
	}
	if err := checkWrite(src, to); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o775); err != nil {
		return err
	}
	scratch, err := split.NewScratch(dir, name)
	if err != nil {
		return err
	}
	defer scratch.Remove()

	tmp := scratch.Path
	w := &split.Writer{Src: src, Assign: assignment, Parts: parts, Tmp: tmp, Report: to.Progress,
		Node: split.NewKinds(src.NodeTypes(), parts), Edge: split.NewKinds(src.EdgeTypes(), parts)}
	w.Nodes, w.Edges = int64(len(assignment)), w.Edge.First[len(w.Edge.List)]
	w.Total = w.Nodes*2 + w.Node.Work() + w.Edges*4 + w.Edge.Work()
	var format interface {
		Steps() []func() error
		Free()
	}
	partitioning := func() string { return "" }
	if to.Format == split.SARFormat {
		s := sar.NewWriter(w, to)
		format, partitioning = s, func() string { return s.Partitioning }
	} else {
		format = dgl.NewWriter(w, to)
	}
	defer format.Free()
	for p := range parts {
		if err := os.Mkdir(w.PartDir(p), 0o775); err != nil {
			return err
		}
	}
	for _, step := range format.Steps() {
		if err := step(); err != nil {
			return fmt.Errorf("writing partitions to %s: %w", dir, err)
		}
	}
	description, err := describe(w, to, partitioning())
	if err != nil {
		return err
	}
	path := filepath.Join(tmp, "config.json")
	if err := os.WriteFile(path, description, 0o664); err != nil {
		return err
	}
	return publish(w, to, path)
}

func checkWrite(src input.Source, to split.Partitioning) error {
	assignment, parts, name := to.Assignment, to.Parts, to.Name
	if parts < 1 {
		return argument.Errorf("%d partitions: at least 1 is needed", parts)
	}
	var nodes int64
	for _, t := range src.NodeTypes() {
		nodes += t.Rows
	}
	if int64(len(assignment)) != nodes {
		return argument.Errorf("an assignment of %d nodes for a graph of %d", len(assignment), nodes)
	}
	for i, p := range assignment {
		if p < 0 || int(p) >= parts {
			return argument.Errorf("node %d is assigned to partition %d: partitions are 0 to %d", i, p, parts-1)
		}
	}
	if to.Format != "" && to.Format != split.SARFormat && to.Format != split.DGLFormat {
		return argument.Errorf("partitions are written in the format %q or %q, not %q", split.SARFormat, split.DGLFormat, to.Format)
	}
	if need := nodeMemory(src, to.Format) + split.FixedMemory/2; to.Memory < need {
		return &mem.BudgetError{What: "memory for writing parts", Have: to.Memory, Minimum: LeastMemory(src, parts, to.Format)}
	}
	if name == "" || strings.ContainsAny(name, "/\\\x00") || strings.HasPrefix(name, ".") {
		return argument.Errorf("%q cannot be the name of a graph: it names a file", name)
	}
	return nil
}

// describe is the JSON file, with the keys in DGL's order.
func describe(w *split.Writer, to split.Partitioning, partitioning string) ([]byte, error) {
	nodeMap, nodeTypes := w.Node.Maps()
	edgeMap, edgeTypes := w.Edge.Maps()
	var top disk.Object[any]
	if partitioning != "" {
		top.Set("format", partitionFormat)
		top.Set("partitioning", partitioning)
	}
	top.Set("graph_name", to.Name)
	top.Set("num_nodes", w.Nodes)
	top.Set("num_edges", w.Edges)
	top.Set("part_method", to.Method)
	top.Set("num_parts", w.Parts)
	top.Set("halo_hops", 1)
	top.Set("node_map", nodeMap)
	top.Set("edge_map", edgeMap)
	top.Set("ntypes", nodeTypes)
	top.Set("etypes", edgeTypes)
	for p := range w.Parts {
		in := func(file string) string { return fmt.Sprintf("part%d/%s", p, file) }
		files := partFiles{NodeFeats: in(dgl.NodeFile), EdgeFeats: in(dgl.EdgeFile), PartGraph: in(dgl.PartGraphFile), Checksums: in(disk.SumsFile)}
		if partitioning != "" {
			files = partFiles{Part: in(sar.Description), Checksums: in(disk.SumsFile)}
		}
		top.Set(fmt.Sprintf("part-%d", p), files)
	}
	return disk.Seal(top)
}

// publish moves what was written to its place, the JSON last.
func publish(w *split.Writer, to split.Partitioning, config string) error {
	final := filepath.Join(to.Dir, to.Name+".json")
	if err := os.Remove(final); err != nil && !os.IsNotExist(err) {
		return err
	}
	for p := range w.Parts {
		final := filepath.Join(to.Dir, fmt.Sprintf("part%d", p))
		if to.Format == split.SARFormat {
			// What was there goes with what is left of the scratch directory.
			if err := os.Rename(final, w.PartDir(p)+".before"); err != nil && !os.IsNotExist(err) {
				return err
			}
			if err := os.Rename(w.PartDir(p), final); err != nil {
				return err
			}
			continue
		}
		if err := os.MkdirAll(final, 0o775); err != nil {
			return err
		}
		made, err := os.ReadDir(w.PartDir(p))
		if err != nil {
			return err
		}
		for _, file := range made {
			if err := os.Rename(filepath.Join(w.PartDir(p), file.Name()), filepath.Join(final, file.Name())); err != nil {
				return err
			}
		}
	}
	return os.Rename(config, final)
}
