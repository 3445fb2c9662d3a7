package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"sort"
	"strings"

	"sar/core/graph"
	"sar/core/internal/argument"
	"sar/core/store/dgl"
	"sar/core/store/disk"
)

// partFiles are the paths of one partition, relative to the JSON file. DGL knows
// the first three; SAR's format has a description of the part in their place.
type partFiles struct {
	NodeFeats string `json:"node_feats,omitempty"`
	EdgeFeats string `json:"edge_feats,omitempty"`
	PartGraph string `json:"part_graph,omitempty"`
	Part      string `json:"part,omitempty"`
	Checksums string `json:"checksums,omitempty"` // "" where there are none
}

const partKey = "part" // of the path of a description of a part

// at is the path of a key.
func (p *partFiles) at(key string) *string {
	switch key {
	case dgl.GraphKey:
		return &p.PartGraph
	case dgl.NodeKey:
		return &p.NodeFeats
	case dgl.EdgeKey:
		return &p.EdgeFeats
	case partKey:
		return &p.Part
	}
	return &p.Checksums
}

// keys are those of the paths that there are.
func (p *partConfig) keys() []string {
	keys := []string{dgl.GraphKey, dgl.NodeKey, dgl.EdgeKey}
	if p.partitioning != "" {
		keys = []string{partKey}
	}
	if p.files.Checksums != "" {
		keys = append(keys, disk.SumsKey)
	}
	return keys
}

// partConfig is what the JSON file of a partitioned graph says.
type partConfig struct {
	graphName string
	book      *graph.Book
	files     partFiles // of the partition that was asked for
	// partitioning is a number that all parts of one run of sar partition have in common. ""
	// in DGL's format.
	partitioning string
	size         int64 // of the file
	sealed       bool  // it has a checksum of its own
}

// ErrPart is wrapped by the error for a partition number that the graph does not have.
var ErrPart = errors.New("no such partition")

// parsePartConfig reads the JSON file of a partitioned graph.
func parsePartConfig(name string, data []byte, part int) (*partConfig, error) {
	bad := func(off int64, want, got string, args ...any) error {
		return &disk.FormatError{File: name, Offset: off, Want: want, Got: fmt.Sprintf(got, args...)}
	}
	var top map[string]json.RawMessage
	if err := json.Unmarshal(data, &top); err != nil {
		return nil, disk.JSONError(name, 0, "a JSON object", err)
	}
	if top == nil {
		return nil, bad(0, "a JSON object", "null")
	}
	get := func(key string, into any, want string) error {
		raw, ok := top[key]
		if !ok {
			return bad(-1, fmt.Sprintf("the key %q, %s", key, want), "no such key")
		}
		if string(raw) == "null" {
			return bad(-1, fmt.Sprintf("%q to be %s", key, want), "null")
		}
		if err := json.Unmarshal(raw, into); err != nil {
			return disk.JSONError(name, -1, fmt.Sprintf("%q to be %s", key, want), err)
		}
		return nil
	}

	cfg := &partConfig{}
	if _, own := top["format"]; own {
		var format string
		if err := errors.Join(get("format", &format, "a string"), get("partitioning", &cfg.partitioning, "a string")); err != nil {
			return nil, first(err)
		}
		if format != partitionFormat || cfg.partitioning == "" {
			return nil, bad(-1, fmt.Sprintf("DGL's partition format, or %q", partitionFormat), "%q", format)
		}
	}
	var parts, nodes, edges int64
	if err := errors.Join(
		get("graph_name", &cfg.graphName, "a string"),
		get("num_parts", &parts, "a whole number"),
		get("num_nodes", &nodes, "a whole number"),
		get("num_edges", &edges, "a whole number"),
	); err != nil {
		return nil, first(err)
	}
	if parts < 1 || parts > math.MaxInt32 {
		return nil, bad(-1, `"num_parts" to be at least 1`, "%d", parts)
	}
	if part < 0 || int64(part) >= parts {
		if _, err := disk.CheckSeal(name, data); err != nil {
			return nil, err // the number of parts is what is damaged
		}
		return nil, argument.Errorf("%s: partition %d asked for: %w, the graph has %d (0 to %d). Each worker loads the partition of its rank: "+
			"start %d workers, or partition the graph into as many parts as there are workers", name, part, ErrPart, parts, parts-1, parts)
	}

	b := &graph.Book{Parts: int(parts)}
	ntypes, err := typeNames(name, "ntypes", top["ntypes"], graph.OnlyNodeType)
	if err != nil {
		return nil, err
	}
	etypes, err := typeNames(name, "etypes", top["etypes"], graph.OnlyEdgeType.String())
	if err != nil {
		return nil, err
	}
	b.NodeTypes = ntypes
	for _, s := range etypes {
		t, err := graph.ParseEdgeType(s)
		if err != nil {
			return nil, bad(-1, `the keys of "etypes" to be source:relation:destination`, "%q", s)
		}
		if _, err := b.NodeType(t.Src); err != nil {
			return nil, bad(-1, fmt.Sprintf("the node types of relation %q among %q", s, ntypes), "%q", t.Src)
		}
		if _, err := b.NodeType(t.Dst); err != nil {
			return nil, bad(-1, fmt.Sprintf("the node types of relation %q among %q", s, ntypes), "%q", t.Dst)
		}
		b.EdgeTypes = append(b.EdgeTypes, t)
	}

	var nodeMap, edgeMap json.RawMessage
	if err := errors.Join(get("node_map", &nodeMap, "the ranges of node ids"), get("edge_map", &edgeMap, "the ranges of edge ids")); err != nil {
		return nil, first(err)
	}
	if b.NodeStart, b.NodeEnd, err = ranges(name, "node_map", nodeMap, ntypes, int(parts), nodes); err != nil {
		return nil, err
	}
	if b.EdgeStart, b.EdgeEnd, err = ranges(name, "edge_map", edgeMap, etypes, int(parts), edges); err != nil {
		return nil, err
	}
	if err := b.Finish(); err != nil {
		return nil, bad(-1, "ranges of ids that fit together", "%v", err)
	}
	cfg.book = b

	key := fmt.Sprintf("part-%d", part)
	if err := get(key, &cfg.files, "the files of a partition"); err != nil {
		return nil, err
	}
	dir := filepath.Dir(name)
	for _, k := range cfg.keys() {
		path := cfg.files.at(k)
		if *path == "" {
			return nil, bad(-1, fmt.Sprintf("the path %q in %q", k, key), "none")
		}
		if strings.ContainsRune(*path, 0) {
			return nil, bad(-1, fmt.Sprintf("the path %q in %q", k, key), "%q", *path)
		}
		if !filepath.IsAbs(*path) {
			*path = filepath.Join(dir, filepath.FromSlash(*path))
		}
	}
	// Last, so that what is plainly wrong is called by its name.
	cfg.size = int64(len(data))
	if cfg.sealed, err = disk.CheckSeal(name, data); err != nil {
		return nil, err
	}
	return cfg, nil
}

// first returns the first of joined errors, so that a message names one thing.
func first(err error) error {
	if j, ok := err.(interface{ Unwrap() []error }); ok {
		return j.Unwrap()[0]
	}
	return err
}

// typeNames orders the names of types by their numbers, which must be 0, 1, ….
func typeNames(file, key string, raw json.RawMessage, only string) ([]string, error) {
	if raw == nil {
		return []string{only}, nil
	}
	want := fmt.Sprintf("%q to give each type its number, from 0 on", key)
	var m map[string]int64
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, disk.JSONError(file, -1, want, err)
	}
	if len(m) == 0 {
		return nil, &disk.FormatError{File: file, Offset: -1, Want: want, Got: "no types"}
	}
	names := make([]string, len(m))
	set := make([]bool, len(m))
	for n, i := range m {
		if i < 0 || i >= int64(len(m)) || set[i] {
			return nil, &disk.FormatError{File: file, Offset: -1, Want: want, Got: fmt.Sprintf("number %d for %q", i, n)}
		}
		names[i], set[i] = n, true
	}
	return names, nil
}

// ranges reads a node_map or edge_map: {type: [[start, end], …]}, or, as older
// versions of DGL wrote it, {type: [end, …]} or the list of the only type. All
// ranges together, by partition and then type, must cover 0..total-1 in order.
func ranges(file, key string, raw json.RawMessage, types []string, parts int, total int64) (start, end [][]int64, err error) {
	bad := func(want, got string, args ...any) error {
		return &disk.FormatError{File: file, Offset: -1, Want: want, Got: fmt.Sprintf(got, args...)}
	}
	var byType map[string]json.RawMessage
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) == nil {
		byType = map[string]json.RawMessage{types[0]: raw}
	} else if err := json.Unmarshal(raw, &byType); err != nil {
		return nil, nil, disk.JSONError(file, -1, fmt.Sprintf("%q as ranges of ids for each type (a graph partitioned with reshuffle=True)", key), err)
	}
	known := append([]string(nil), types...)
	sort.Strings(known)
	for name := range byType {
		if i := sort.SearchStrings(known, name); i == len(known) || known[i] != name {
			return nil, nil, bad(fmt.Sprintf("the types of %q among %q", key, known), "%q", name)
		}
	}
	for _, name := range types {
		rawType, ok := byType[name]
		if !ok {
			return nil, nil, bad(fmt.Sprintf("ranges of type %q in %q", name, key), "none")
		}
		var pairs [][]int64
		var ends []int64
		if json.Unmarshal(rawType, &ends) == nil {
			var at int64
			for _, e := range ends {
				pairs = append(pairs, []int64{at, e})
				at = e
			}
		} else if err := json.Unmarshal(rawType, &pairs); err != nil {
			return nil, nil, disk.JSONError(file, -1, fmt.Sprintf("%q of type %q as a list of [start, end]", key, name), err)
		}
		if len(pairs) != parts {
			return nil, nil, bad(fmt.Sprintf("%d ranges of type %q in %q, one for each partition", parts, name, key), "%d", len(pairs))
		}
		s, e := make([]int64, parts), make([]int64, parts)
		for i, p := range pairs {
			if len(p) != 2 {
				return nil, nil, bad(fmt.Sprintf("[start, end] as range %d of type %q in %q", i, name, key), "%v", p)
			}
			s[i], e[i] = p[0], p[1]
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
				return nil, nil, bad(fmt.Sprintf("the range of type %q, partition %d in %q to begin at %d, where the one before it ends", name, p, key, at), "[%d, %d]", *s, *e)
			}
			at = *e
		}
	}
	if at != total {
		return nil, nil, bad(fmt.Sprintf("the ranges in %q to cover all %d ids", key, total), "%d", at)
	}
	return start, end, nil
}

// partitionFormat is what the description of all parts calls their format.
const partitionFormat = "SAR partition 1"
