package store

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"sar/core/graph"
	"sar/core/internal/argument"
	"sar/core/internal/must"
	"sar/core/store/dgl"
	"sar/core/store/disk"
)

// partKey is the key of the path of a part's description, in SAR's format.
const partKey = "part"

// partConfig is what the JSON file of a partitioned graph says.
type partConfig struct {
	graphName string
	book      *graph.Book
	files     map[string]string // paths of the partition that was asked for, by key
	// partitioning is a number that all parts of one run of sar partition have in common. ""
	// in DGL's format.
	partitioning string
	size         int64 // of the file
	sealed       bool  // it has a checksum of its own
}

// partitionFormat is what the description of all parts calls their format.
const partitionFormat = "SAR partition 1"

// description is the JSON file of a partitioned graph while it is read, section by section.
type description struct {
	name string
	data []byte
	keys map[string]json.RawMessage
}

// parseDescription reads the JSON file of a partitioned graph.
func parseDescription(name string, data []byte, part int) (cfg *partConfig, err error) {
	defer must.Return(&err)
	d := &description{name: name, data: data}
	cfg = &partConfig{book: &graph.Book{}, size: int64(len(data))}
	d.open()
	d.format(cfg)
	d.parts(cfg.book, part)
	d.types(cfg.book)
	cfg.book.NodeStart, cfg.book.NodeEnd = d.ranges("node_map", "num_nodes", cfg.book.NodeTypes, cfg.book.Parts)
	cfg.book.EdgeStart, cfg.book.EdgeEnd = d.ranges("edge_map", "num_edges", relationNames(cfg.book), cfg.book.Parts)
	err = cfg.book.Finish()
	d.want(err == nil, "ranges of ids that fit together", "%v", err)
	d.paths(cfg, fmt.Sprintf("part-%d", part))
	cfg.sealed, err = disk.CheckSeal(name, data) // last, so that what is plainly wrong is called by its name
	return cfg, err
}

// want holds what was read against what it has to be.
func (d *description) want(ok bool, want, got string, args ...any) {
	disk.Want(ok, d.name, -1, want, got, args...)
}

// decode decodes what want says into a value.
func (d *description) decode(raw json.RawMessage, into any, want string) {
	must.Do(disk.Decode(d.name, -1, raw, into, want))
}

// get decodes the value of a key that has to be there.
func (d *description) get(key string, into any, want string) {
	raw, ok := d.keys[key]
	d.want(ok, fmt.Sprintf("the key %q, %s", key, want), "no such key")
	d.want(string(raw) != "null", fmt.Sprintf("%q to be %s", key, want), "null")
	d.decode(raw, into, fmt.Sprintf("%q to be %s", key, want))
}

func (d *description) open() {
	must.Do(disk.Decode(d.name, 0, d.data, &d.keys, "a JSON object"))
	d.want(d.keys != nil, "a JSON object", "null")
}

func (d *description) format(cfg *partConfig) {
	if _, own := d.keys["format"]; own {
		var format string
		d.get("format", &format, "a string")
		d.get("partitioning", &cfg.partitioning, "a string")
		d.want(format == partitionFormat && cfg.partitioning != "",
			fmt.Sprintf("DGL's partition format, or %q", partitionFormat), "%q", format)
	}
	d.get("graph_name", &cfg.graphName, "a string")
}

func (d *description) parts(b *graph.Book, part int) {
	d.get("num_parts", &b.Parts, "a whole number")
	d.want(b.Parts >= 1 && b.Parts <= math.MaxInt32, `"num_parts" to be at least 1`, "%d", b.Parts)
	if part < 0 || part >= b.Parts {
		must.Get(disk.CheckSeal(d.name, d.data)) // else the number of parts is what is damaged
		must.Do(argument.Errorf("%s: partition %d asked for: no such partition, the graph has %d (0 to %d). Each worker "+
			"loads the partition of its rank: start %d workers, or partition the graph into as many parts as there are "+
			"workers", d.name, part, b.Parts, b.Parts-1, b.Parts))
	}
}

func (d *description) types(b *graph.Book) {
	b.NodeTypes = d.typeNames("ntypes", graph.OnlyNodeType)
	for _, s := range d.typeNames("etypes", graph.OnlyEdgeType.String()) {
		t, err := graph.ParseEdgeType(s)
		d.want(err == nil, `the keys of "etypes" to be source:relation:destination`, "%q", s)
		for _, end := range []string{t.Src, t.Dst} {
			d.want(slices.Contains(b.NodeTypes, end), fmt.Sprintf("the node types of relation %q among %q", s, b.NodeTypes),
				"%q", end)
		}
		b.EdgeTypes = append(b.EdgeTypes, t)
	}
}

// typeNames orders the names of types by their numbers, which must be 0, 1, ….
func (d *description) typeNames(key, only string) []string {
	raw, ok := d.keys[key]
	if !ok {
		return []string{only}
	}
	want := fmt.Sprintf("%q to give each type its number, from 0 on", key)
	var numbers map[string]int
	d.decode(raw, &numbers, want)
	d.want(len(numbers) > 0, want, "no types")
	names := make([]string, len(numbers))
	set := make([]bool, len(numbers))
	for name, i := range numbers {
		d.want(i >= 0 && i < len(numbers) && !set[i], want, "number %d for %q", i, name)
		names[i], set[i] = name, true
	}
	return names
}

func relationNames(b *graph.Book) (names []string) {
	for _, t := range b.EdgeTypes {
		names = append(names, t.String())
	}
	return names
}

// idRanges are [start, end] of each part. Older versions of DGL wrote the ends alone.
type idRanges [][]int64

// UnmarshalJSON implements json.Unmarshaler.
func (r *idRanges) UnmarshalJSON(data []byte) error {
	var ends []int64
	if json.Unmarshal(data, &ends) != nil {
		return json.Unmarshal(data, (*[][]int64)(r))
	}
	var at int64
	for _, e := range ends {
		*r = append(*r, []int64{at, e})
		at = e
	}
	return nil
}

// ranges reads a node_map or edge_map: the ranges of each type, or the list of the only type.
// All ranges together, by partition and then type, must cover the ids in order, of which the
// key count has the number.
func (d *description) ranges(key, count string, types []string, parts int) (start, end [][]int64) {
	var total int64
	var raw json.RawMessage
	d.get(count, &total, "a whole number")
	d.get(key, &raw, "ranges of ids")
	var byType map[string]json.RawMessage
	if bytes.HasPrefix(bytes.TrimSpace(raw), []byte("[")) {
		byType = map[string]json.RawMessage{types[0]: raw}
	} else {
		d.decode(raw, &byType, fmt.Sprintf("%q as ranges of ids for each type (a graph partitioned with reshuffle=True)",
			key))
	}
	for name := range byType {
		d.want(slices.Contains(types, name), fmt.Sprintf("the types of %q among %q", key, types), "%q", name)
	}
	for _, name := range types {
		var list idRanges
		raw, ok := byType[name]
		d.want(ok, fmt.Sprintf("ranges of type %q in %q", name, key), "none")
		d.decode(raw, &list, fmt.Sprintf("%q of type %q as a list of [start, end]", key, name))
		d.want(len(list) == parts, fmt.Sprintf("%d ranges of type %q in %q, one for each partition", parts, name, key),
			"%d", len(list))
		s, e := make([]int64, parts), make([]int64, parts)
		for i, r := range list {
			if len(r) != 2 {
				d.want(false, fmt.Sprintf("[start, end] as range %d of type %q in %q", i, name, key), "%v", r)
			}
			s[i], e[i] = r[0], r[1]
		}
		start, end = append(start, s), append(end, e)
	}
	var at int64
	for p := range parts {
		for t, name := range types {
			s, e := &start[t][p], &end[t][p]
			if *s == *e {
				*s, *e = at, at // where nothing is, it does not matter where
			}
			if *s != at || *e < *s {
				d.want(false, fmt.Sprintf("the range of type %q, partition %d in %q to begin at %d, where the one before it "+
					"ends", name, p, key, at), "[%d, %d]", *s, *e)
			}
			at = *e
		}
	}
	d.want(at == total, fmt.Sprintf("the ranges in %q to cover all %d ids", key, total), "%d", at)
	return start, end
}

// paths finds the files of a part.
func (d *description) paths(cfg *partConfig, part string) {
	var found map[string]any
	d.get(part, &found, "the files of a partition")
	keys := []string{dgl.GraphKey, dgl.NodeKey, dgl.EdgeKey}
	if cfg.partitioning != "" {
		keys = []string{partKey}
	}
	if sums, _ := found[disk.SumsKey].(string); sums != "" {
		keys = append(keys, disk.SumsKey)
	}
	cfg.files = map[string]string{}
	for _, key := range keys {
		path, _ := found[key].(string)
		d.want(path != "" && !strings.ContainsRune(path, 0), fmt.Sprintf("the path %q in %q", key, part), "%q", path)
		if !filepath.IsAbs(path) {
			path = filepath.Join(filepath.Dir(d.name), filepath.FromSlash(path))
		}
		cfg.files[key] = path
	}
}
