package store

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sar/core/internal/argument"
	"sar/core/internal/must"
	"sar/core/store/dgl"
	"sar/core/store/disk"
	"sar/core/store/input"
	"sar/core/store/sar"
)

// LeastMemory is what WritePartitions takes at least, for parts of equal sizes.
func LeastMemory(src input.Source, parts int) int64 { return sar.LeastMemory(src, parts) }

// The formats of partitions.
const (
	SARFormat = "sar"
	DGLFormat = "dgl"
)

// DefaultMemory is what writing parts may take where nobody says how much.
const DefaultMemory = 4 << 30

// edgeShare is one over the share of the memory that a partitioned graph holds edges in.
const edgeShare = 8

// Partitioning says how a graph is split and where it is written: Dir/<Name>.json is the description.
// Memory of 0 is DefaultMemory.
type Partitioning = sar.Plan

// WritePartitions splits a graph: node i goes to partition Assignment[i]. It writes
// dir/name.json and, for each part, part<p>/part.json with arrays as .npy files, ready for
// OpenPartition to map. DGL's format is an export of those: dir/part<p>/{graph,node_feat,
// edge_feat}.dgl as DGL's partition_graph writes them with one halo hop, for
// dgl.distributed.load_partition and OpenPartition.
//
// Nodes are numbered anew so that a partition owns a contiguous range. In it those come one
// after the other that read the same nodes, where memory has room for the edges and the
// largest feature, and the users' ids are none; elsewhere they keep their order. Edges have
// the order they had, or that of the nodes if they were sorted by destination and source;
// each belongs to the partition of its destination. Features "orig_id" of nodes and edges keep the original ids of each
// type, as DGL's return_mapping gives them. DGL's format has bool as uint8, as DGL does.
//
// Everything is written to dir/.<name>.partial first and renamed at the end, the
// JSON last, so that a failed write leaves no graph that claims to be whole,
// and what was there before as it was. A process that is killed leaves that
// directory, which the next one empties. Memory: LeastMemory; edges take what else there
// is, in as few passes as that allows. Disk: two passes over the edges, one over each feature,
// one over what was written, for its checksums (part<p>/checksums.crc, which DGL does not
// read; OpenPartition and Verify do). An export needs room for the parts in both formats.
func WritePartitions(src input.Source, to Partitioning) (err error) {
	defer must.Return(&err)
	if to.Memory == 0 {
		to.Memory = DefaultMemory
	}
	src = must.Get(input.Rounded(src, to.Features))
	must.Do(checkWrite(src, to))
	must.Do(os.MkdirAll(to.Dir, 0o775))
	scratch := must.Get(newScratch(to.Dir, to.Name))
	defer scratch.remove()
	plan := to
	plan.Dir = scratch.path
	if to.Format == SARFormat {
		_, err = writeParts(src, plan)
	} else {
		err = writeExported(src, plan)
	}
	if err != nil {
		return fmt.Errorf("writing partitions to %s: %w", to.Dir, err)
	}
	publish(to, scratch.path)
	return nil
}

// descriptionFile is what the description is called until it is published.
const descriptionFile = "config.json"

// writeParts writes parts in SAR's format, and their description.
func writeParts(src input.Source, to Partitioning) (*sar.Written, error) {
	made, err := sar.Write(src, to)
	if err == nil {
		err = describe(made, to, SARFormat)
	}
	return made, err
}

// writeExported writes parts in SAR's format, and what they say in DGL's, with the description of that.
func writeExported(src input.Source, to Partitioning) (err error) {
	defer must.Return(&err)
	inner := to
	inner.Dir = filepath.Join(to.Dir, SARFormat)
	must.Do(os.Mkdir(inner.Dir, 0o775))
	progress := func(int64, int64) error { return nil }
	var work int64
	if to.Progress != nil {
		progress = func(done, total int64) error { work = total; return to.Progress(done, 2*total) }
	}
	inner.Progress = progress
	made := must.Get(writeParts(src, inner))
	parts := must.Get(openParts(filepath.Join(inner.Dir, descriptionFile)))
	defer closeParts(parts)
	e := dgl.Export{Dir: to.Dir, Room: max(1, to.Memory/2/edgeRoom),
		Done: func(p int) error { return progress(work+work*int64(p+1)/int64(to.Parts), work) }}
	for _, p := range parts {
		e.Parts = append(e.Parts, p)
	}
	must.Do(e.Write())
	for _, p := range parts {
		for _, file := range p.IDs() {
			must.Do(os.Rename(file, filepath.Join(to.Dir, fmt.Sprintf("part%d", p.Part()), filepath.Base(file))))
		}
	}
	return describe(made, to, DGLFormat)
}

func checkWrite(src input.Source, to Partitioning) error {
	if to.Parts < 1 {
		return argument.Errorf("%d partitions: at least 1 is needed", to.Parts)
	}
	var n int64
	for _, of := range src.NodeTypes() {
		n += of.Rows
	}
	if int64(len(to.Assignment)) != n {
		return argument.Errorf("an assignment of %d nodes for a graph of %d", len(to.Assignment), n)
	}
	for i, p := range to.Assignment {
		if p < 0 || int(p) >= to.Parts {
			return argument.Errorf("node %d is assigned to partition %d: partitions are 0 to %d", i, p, to.Parts-1)
		}
	}
	if to.Format != "" && to.Format != SARFormat && to.Format != DGLFormat {
		return argument.Errorf("partitions are written in the format %q or %q, not %q", SARFormat, DGLFormat, to.Format)
	}
	if err := sar.CheckMemory(src, to.Parts, to.Memory); err != nil {
		return err
	}
	if to.Name == "" || strings.ContainsAny(to.Name, "/\\\x00") || strings.HasPrefix(to.Name, ".") {
		return argument.Errorf("%q cannot be the name of a graph: it names a file", to.Name)
	}
	return nil
}

// describe writes the description of all parts, with the keys in DGL's order.
func describe(of *sar.Written, to Partitioning, format string) error {
	var top disk.Object[any]
	if format == SARFormat {
		top.Set("format", partitionFormat)
		top.Set("partitioning", of.Partitioning)
	}
	top.Set("graph_name", to.Name)
	top.Set("num_nodes", of.Nodes)
	top.Set("num_edges", of.Edges)
	top.Set("part_method", to.Method)
	top.Set("num_parts", to.Parts)
	top.Set("halo_hops", 1)
	top.Set("node_map", of.NodeMap)
	top.Set("edge_map", of.EdgeMap)
	top.Set("ntypes", of.NodeTypes)
	top.Set("etypes", of.EdgeTypes)
	for p := range to.Parts {
		in := func(file string) string { return fmt.Sprintf("part%d/%s", p, file) }
		var files disk.Object[string]
		if format == SARFormat {
			files.Set(partKey, in(sar.Description))
		} else {
			for _, of := range dgl.Files {
				files.Set(of.Key, in(of.Name))
			}
		}
		files.Set(disk.SumsKey, in(disk.SumsFile))
		top.Set(fmt.Sprintf("part-%d", p), files)
	}
	return disk.WriteSealed(filepath.Join(to.Dir, descriptionFile), top)
}

// publish moves what was written to its place, the JSON last.
func publish(to Partitioning, scratch string) {
	there := func(err error) error { // but for what was not there before
		if os.IsNotExist(err) {
			return nil
		}
		return err
	}
	description := filepath.Join(to.Dir, to.Name+".json")
	must.Do(there(os.Remove(description)))
	for p := range to.Parts {
		name := fmt.Sprintf("part%d", p)
		from, final := filepath.Join(scratch, name), filepath.Join(to.Dir, name)
		if to.Format == SARFormat {
			// What was there goes with what is left of the scratch directory.
			must.Do(there(os.Rename(final, from+".before")))
			must.Do(os.Rename(from, final))
			continue
		}
		must.Do(os.MkdirAll(final, 0o775))
		for _, file := range must.Get(os.ReadDir(from)) {
			must.Do(os.Rename(filepath.Join(from, file.Name()), filepath.Join(final, file.Name())))
		}
	}
	must.Do(os.Rename(filepath.Join(scratch, descriptionFile), description))
}
