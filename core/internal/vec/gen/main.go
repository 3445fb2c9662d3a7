// Command gen writes the SIMD loops of package vec from loops.go.tmpl: one
// file for each element type and register width. The loops differ in nothing
// but the names of types, the lanes of a register, and how a mask is made;
// Go's generics cannot express that without a call for each instruction.
package main

import (
	"bytes"
	"embed"
	"fmt"
	"go/format"
	"log"
	"os"
	"path/filepath"
	"text/template"
)

//go:embed loops.go.tmpl
var source embed.FS

// file is the parameters of one file.
type file struct {
	Elem  string // element type
	Bytes int    // of an element
	Lanes int    // elements of a register
	ISA   string // "avx2" or "avx512"
	Bits  int    // bits of an element
	// Max is the registers of the widest tile of GatherSum. The compiler keeps
	// at most 15 vectors in registers across a loop.
	Max int
}

func (f file) Vec() string  { return fmt.Sprintf("Float%dx%d", f.Bits, f.Lanes) }
func (f file) Mask() string { return fmt.Sprintf("Mask%dx%d", f.Bits, f.Lanes) }
func (f file) Name() string { return fmt.Sprintf("F%dx%d", f.Bits, f.Lanes) }

// Int names the integer vector of the same shape, which makes AVX2 masks.
func (f file) Int() string { return fmt.Sprintf("Int%dx%d", f.Bits, f.Lanes) }

// Tiles are the register counts, above one, that have a loop of their own.
func (f file) Tiles() []int {
	var out []int
	for n := 2; n <= f.Max; n++ {
		out = append(out, n)
	}
	return out
}

// Half are the vector types that a register is folded into, down to 128 bits.
func (f file) Half() []string {
	var out []string
	for n := f.Lanes / 2; n*f.Bits >= 128; n /= 2 {
		out = append(out, fmt.Sprintf("Float%dx%d", f.Bits, n))
	}
	return out
}

var files = []file{
	{"float32", 4, 8, "avx2", 32, 8},
	{"float64", 8, 4, "avx2", 64, 8},
	{"float32", 4, 16, "avx512", 32, 8},
	{"float64", 8, 8, "avx512", 64, 8},
}

func main() {
	dir := "."
	if len(os.Args) > 1 {
		dir = os.Args[1]
	}
	funcs := template.FuncMap{
		"to": func(n int) []int {
			out := make([]int, n)
			for i := range out {
				out[i] = i
			}
			return out
		},
		"list": func(s ...string) []string { return s },
		"sub":  func(a, b int) int { return a - b },
		"mul":  func(a, b int) int { return a * b },
	}
	t := template.Must(template.New("loops.go.tmpl").Funcs(funcs).ParseFS(source, "loops.go.tmpl"))
	for _, f := range files {
		var b bytes.Buffer
		if err := t.Execute(&b, f); err != nil {
			log.Fatal(err)
		}
		text, err := format.Source(b.Bytes())
		if err != nil {
			log.Fatalf("%s: %v", f.Name(), err)
		}
		name := filepath.Join(dir, fmt.Sprintf("loops_%s_f%d.go", f.ISA, f.Bits))
		if err := os.WriteFile(name, text, 0o644); err != nil {
			log.Fatal(err)
		}
	}
}
