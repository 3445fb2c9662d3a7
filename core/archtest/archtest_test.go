// Package archtest holds the module to its architecture: who may import whom.
package archtest

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "sar"

// allowed are the only imports inside the module. A component is a directory
// with all below it that is not a component of its own; within one, imports are
// free. What a component may use it need not use.
var allowed = map[string][]string{
	"core/internal/vec":       {"core/internal/dtypes"},
	"core/internal/limits":    {},
	"core/internal/must":      {},
	"core/internal/argument":  {},
	"core/internal/ascending": {},
	"core/internal/view":      {},
	"core/internal/freeport":  {},
	"core/internal/parallel":  {},
	"core/internal/dtypes":    {},
	"core/mem":                {"core/internal/view"},
	"core/trace":              {},
	"core/internal/bitset":    {"core/mem"},
	"core/trust":              {"core/internal/limits"},
	"core/graph":              {"core/mem", "core/internal/ascending", "core/internal/bitset", "core/internal/parallel"},
	"core/kernel":             {"core/mem", "core/internal/vec", "core/internal/ascending", "core/internal/view"},
	"core/transport":          {"core/trust", "core/mem", "core/internal/limits", "core/internal/freeport"},
	"core/comm": {"core/transport", "core/trust", "core/mem", "core/internal/vec", "core/internal/limits",
		"core/internal/argument", "core/internal/dtypes", "core/internal/freeport", "core/internal/view", "core/trace"},
	"core/expr": {"core/graph", "core/kernel", "core/mem", "core/internal/vec", "core/internal/ascending",
		"core/internal/view"},
	"core/exchange": {"core/graph", "core/kernel", "core/expr", "core/comm", "core/mem", "core/internal/view",
		"core/trace"},
	"core/topology": {"core/exchange", "core/graph", "core/kernel", "core/comm", "core/mem"},
	"core/sample": {"core/exchange", "core/graph", "core/kernel", "core/comm", "core/mem",
		"core/internal/argument", "core/internal/view"},
	"core/store/disk": {"core/mem", "core/internal/argument", "core/internal/dtypes", "core/internal/must",
		"core/internal/parallel", "core/internal/view"},
	"core/store/npy": {"core/store/disk", "core/internal/dtypes", "core/internal/must", "core/internal/view"},
	"core/store/input": {"core/store/npy", "core/store/disk", "core/graph", "core/mem", "core/internal/argument",
		"core/internal/bitset", "core/internal/dtypes", "core/internal/must", "core/internal/view"},
	"core/store/sar": {"core/store/input", "core/store/npy", "core/store/disk", "core/graph", "core/mem",
		"core/internal/argument", "core/internal/bitset", "core/internal/dtypes", "core/internal/must",
		"core/internal/parallel", "core/internal/view"},
	"core/store/dgl": {"core/store/disk", "core/graph", "core/mem", "core/internal/bitset", "core/internal/dtypes",
		"core/internal/must"},
	"core/store": {"core/store/sar", "core/store/dgl", "core/store/input", "core/store/npy", "core/store/disk",
		"core/graph", "core/mem",
		"core/internal/argument", "core/internal/bitset", "core/internal/dtypes", "core/internal/must"},
	"core/store/storetest": {"core/store/disk"},
	"core/partition": {"core/graph", "core/mem", "core/internal/argument", "core/internal/bitset",
		"core/internal/parallel", "core/internal/view"},
	"core/session": {"core/topology", "core/exchange", "core/expr", "core/sample", "core/kernel", "core/graph",
		"core/comm", "core/transport",
		"core/store", "core/partition", "core/mem", "core/internal/vec", "core/internal/argument", "core/internal/bitset",
		"core/internal/dtypes", "core/internal/view", "core/internal/freeport", "core/trace"},
	"core/archtest": {},
	"capi":          {"core/session", "capi/foreign"},
	"capi/foreign":  {"core/transport"},
	"pybind":        {"core/session", "capi/export"},
	"examples/go":   {"core/session"},
	"bench/many":    {"core/session"},
}

// testRooms are what only tests may import, by the directory whose tests may.
var testRooms = map[string]string{"core/store": "core/store/storetest"}

// cgo may be used below these directories only.
var cgo = []string{"capi"}

func under(dir, parent string) bool { return dir == parent || strings.HasPrefix(dir, parent+"/") }

// component is the longest entry of the table that holds dir, "" if none does.
func component(dir string) string {
	best := ""
	for c := range allowed {
		if under(dir, c) && len(c) > len(best) {
			best = c
		}
	}
	return best
}

// forTests adds what the allowed components may use themselves: a test has to
// make the things that its package is handed, such as a link for a communicator.
func forTests(list []string) []string {
	out := map[string]bool{}
	var add func([]string)
	add = func(list []string) {
		for _, c := range list {
			if !out[c] {
				out[c] = true
				add(allowed[component(c)])
			}
		}
	}
	add(list)
	return slices.Sorted(maps.Keys(out))
}

// passedOver tells of a directory that the go command passes over, or that builds leave.
func passedOver(rel, name string) bool {
	return rel != "." && strings.ContainsAny(name[:1], "._") || name == "testdata" || rel == "build"
}

// goFiles calls visit with every Go file below root, whatever its build tags.
func goFiles(root string, visit func(path, rel string) error) error {
	return filesOf(root, visit, ".go")
}

// filesOf calls visit with every file below root that has one of the extensions: its path, and the
// path from root with slashes.
func filesOf(root string, visit func(path, rel string) error, extensions ...string) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if d.IsDir() {
			if passedOver(rel, d.Name()) {
				return filepath.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() || !slices.Contains(extensions, filepath.Ext(rel)) {
			return nil
		}
		return visit(path, rel)
	})
}

// violations checks the imports of every Go file below root.
func violations(root string) (found []string, files int, err error) {
	err = goFiles(root, func(path, rel string) error {
		files++
		bad, err := check(path, rel)
		found = append(found, bad...)
		return err
	})
	return found, files, err
}

func check(path, rel string) (found []string, err error) {
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
	if err != nil {
		return nil, err
	}
	dir := rel[:max(0, strings.LastIndexByte(rel, '/'))]
	own := component(dir)
	list := allowed[own]
	if strings.HasSuffix(rel, "_test.go") {
		list = forTests(list)
		for parent, room := range testRooms {
			if under(dir, parent) {
				list = append(list, room)
			}
		}
	}
	for _, spec := range f.Imports {
		name, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return nil, err
		}
		if name == "C" && !slices.ContainsFunc(cgo, func(c string) bool { return under(dir, c) }) {
			found = append(found, fmt.Sprintf("%s uses cgo; only %v may", rel, cgo))
		}
		if !under(name, module) {
			continue
		}
		target := strings.TrimPrefix(strings.TrimPrefix(name, module), "/")
		switch {
		case own == "":
			found = append(found, fmt.Sprintf("%s imports %s, and no line of the table in core/archtest says what %q may import",
				rel, name, dir))
		case component(target) == own:
		case !slices.ContainsFunc(list, func(c string) bool { return under(target, c) }):
			found = append(found, fmt.Sprintf("%s imports %s; %s may import %v of the module", rel, name, own, list))
		}
	}
	return found, nil
}

func TestImports(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(root, "go.mod")); err != nil {
		t.Fatal(err)
	}
	found, files, err := violations(root)
	if err != nil {
		t.Fatal(err)
	}
	if files < 10 {
		t.Fatalf("only %d Go files found below %s", files, root)
	}
	for _, v := range found {
		t.Error(v)
	}
}

// TestCheckFinds makes sure that the test above can fail.
func TestCheckFinds(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"core/graph/a.go":             `package graph; import ("fmt"; "sar/core/mem"; "golang.org/x/sys/unix")`,
		"core/graph/b.go":             `package graph; import _ "sar/core/kernel"`,
		"core/graph/sub/c.go":         `package sub; import ("sar/core/graph"; "sar/core/comm")`,
		"core/comm/d_test.go":         `package comm; import ("sar/core/transport/inproc"; "sar/core/graph")`,
		"core/exchange/e.go":          `package exchange; import "sar/core/transport"`,
		"core/exchange/e_test.go":     `package exchange; import "sar/core/transport/inproc"`,
		"core/mem/f.go":               `package mem; import "C"`,
		"capi/export/g.go":            `package main; import ("C"; "sar/core/session"; "sar/core/graph")`,
		"pybind/h.go":                 `package pybind; import (_ "sar/capi/export"; _ "sar/capi/libsar")`,
		"core/new/i.go":               `package new; import "sar/core/mem"`,
		"core/store/testdata/skip.go": `package broken; import "sar/core/session"`,
		"build/_gopy/skip.go":         `package broken; import "sar/core/session"`,
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	found, files, err := violations(root)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"capi/export/g.go imports sar/core/graph;",
		"core/comm/d_test.go imports sar/core/graph;",
		"core/exchange/e.go imports sar/core/transport; core/exchange may import [core/graph core/kernel core/expr " +
			"core/comm core/mem core/internal/view core/trace]",
		"core/graph/b.go imports sar/core/kernel; core/graph may import [core/mem core/internal/ascending " +
			"core/internal/bitset core/internal/parallel]",
		"core/graph/sub/c.go imports sar/core/comm;",
		"core/mem/f.go uses cgo",
		"core/new/i.go imports sar/core/mem, and no line",
		"pybind/h.go imports sar/capi/libsar;",
	}
	slices.Sort(found)
	if len(found) != len(want) || files != 10 {
		t.Fatalf("%d files, found\n%s", files, strings.Join(found, "\n"))
	}
	for i := range want {
		if !strings.HasPrefix(found[i], want[i]) {
			t.Errorf("found %q, expected %q", found[i], want[i])
		}
	}
}
