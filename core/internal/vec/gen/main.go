// Command gen writes the AVX-512 loops of package vec from its templates, one file
// of each for each element type, and the float64 loops of the files *_f32.go
// (float64.go). They differ in nothing but the names of types and the lanes of a
// register; Go's generics cannot express that without a call for each instruction.
package main

import (
	"bytes"
	"embed"
	"fmt"
	"go/format"
	"log"
	"os"
	"path/filepath"
	"strings"
	"text/template"
)

//go:embed *.go.tmpl
var source embed.FS

// file is the parameters of one file.
type file struct {
	Elem  string // element type
	Bytes int    // of an element
	Lanes int    // elements of a register
	Bits  int    // bits of an element
	// Max is the registers of the widest tile of GatherSum. The compiler keeps
	// at most 15 vectors in registers across a loop.
	Max int
}

func (f file) Vec() string  { return fmt.Sprintf("Float%dx%d", f.Bits, f.Lanes) }
func (f file) Mask() string { return fmt.Sprintf("Mask%dx%d", f.Bits, f.Lanes) }
func (f file) Name() string { return fmt.Sprintf("F%dx%d", f.Bits, f.Lanes) }

// Int names the integer vector of the same shape.
func (f file) Int() string { return fmt.Sprintf("Int%dx%d", f.Bits, f.Lanes) }

// Tiles are the register counts, above one, that have a loop of their own.
func (f file) Tiles() []int {
	var out []int
	for n := 2; n <= f.Max; n++ {
		out = append(out, n)
	}
	return out
}

// Powers are the tiles of GatherSumHeads.
func (f file) Powers() []int { return []int{1, 2, 4, 8} }

// Narrow are the widths of rows that are one register, of 128 bits or more.
func (f file) Narrow() []int {
	var out []int
	for n := 128 / f.Bits; n <= f.Lanes; n *= 2 {
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

// Uint names the vector of unsigned integers of the same shape.
func (f file) Uint() string { return fmt.Sprintf("Uint%dx%d", f.Bits, f.Lanes) }

// WordLanes are the 32-bit lanes of a register.
func (f file) WordLanes() int { return f.Lanes * f.Bits / 32 }

// Words names the vector of unsigned 32-bit integers of the same width.
func (f file) Words() string { return fmt.Sprintf("Uint32x%d", f.WordLanes()) }

// Inverses are 1/n! from the highest power on, of a polynomial of (e^x - 1)/x for small x.
func (f file) Inverses() []string {
	n := 9
	if f.Bits == 64 {
		n = 16
	}
	out := make([]string, n)
	factorial := 1.0
	for i := range out {
		factorial *= float64(i + 1)
		out[n-1-i] = fmt.Sprintf("1.0 / %.0f", factorial)
	}
	return out
}

// logarithm is the constants of the natural logarithm, from Cephes: P (over Q, whose first
// coefficient is 1), the least normal number, and by what numbers below it are scaled.
type logarithm struct {
	P, Q                   []string
	Least, Scale, LogScale string
}

func (f file) Log() logarithm {
	if f.Bits == 32 {
		return logarithm{
			P: []string{
				"7.0376836292e-2", "-1.1514610310e-1", "1.1676998740e-1", "-1.2420140846e-1", "1.4249322787e-1",
				"-1.6668057665e-1", "2.0000714765e-1", "-2.4999993993e-1", "3.3333331174e-1",
			},
			Least: "0x1p-126", Scale: "0x1p25", LogScale: "17.32867951399863",
		}
	}
	return logarithm{
		P: []string{
			"1.01875663804580931796e-4", "4.97494994976747001425e-1", "4.70579119878881725854", "1.44989225341610930846e1",
			"1.79368678507819816313e1", "7.70838733755885391666",
		},
		Q: []string{
			"1.12873587189167450590e1", "4.52279145837532221105e1", "8.29875266912776603211e1", "7.11544750618563894466e1",
			"2.31251620126765340583e1",
		},
		Least: "0x1p-1022", Scale: "0x1p54", LogScale: "37.42994775023704",
	}
}

// Does names the methods of vectors behind loops over elements.
func (f file) Does() map[string]string {
	return map[string]string{"Plus": "Add", "Minus": "Sub", "Times": "Mul", "Over": "Div"}
}

// exponential is the constants of the exponential function. Hi + Lo is ln 2, Hi with
// so few bits that its products with small integers are exact.
type exponential struct {
	Log2e, Magic, Hi, Lo, Most, Least string
	Bias, Shift                       int
	Poly                              []string // highest power first
}

func (f file) Exp() exponential {
	if f.Bits == 32 {
		return exponential{
			Log2e: "1.44269504088896341", Magic: "0x1.8p23", Hi: "0.693359375", Lo: "-2.12194440e-4", Most: "90", Least: "-106",
			Bias: 127, Shift: 23,
			// minimax, from Cephes
			Poly: []string{"1.9875691500e-4", "1.3981999507e-3", "8.3334519073e-3", "4.1665795894e-2", "1.6666665459e-1",
				"5.0000001201e-1", "1", "1"},
		}
	}
	poly := make([]string, 14) // Taylor: what is left out is below 2^-57
	factorial := 1.0
	for i := range poly {
		poly[len(poly)-1-i] = fmt.Sprintf("1.0 / %.0f", factorial)
		factorial *= float64(i + 1)
	}
	return exponential{
		Log2e: "1.44269504088896341", Magic: "0x1.8p52", Hi: "6.93147180369123816490e-01", Lo: "1.90821492927058770002e-10",
		Most: "711", Least: "-747", Bias: 1023, Shift: 52, Poly: poly,
	}
}

var files = []file{
	{"float32", 4, 16, 32, 8},
	{"float64", 8, 8, 64, 8},
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
		"list":  func(s ...any) []any { return s },
		"lower": func(s string) string { return strings.ToLower(s[:1]) + s[1:] },
		"add":   func(a, b int) int { return a + b },
		"sub":   func(a, b int) int { return a - b },
		"mul":   func(a, b int) int { return a * b },
		"div":   func(a, b int) int { return a / b },
	}
	for _, what := range []string{"loops", "elements", "functions", "scatter", "runs", "dotsum", "columns"} {
		t := template.Must(template.New(what+".go.tmpl").Funcs(funcs).ParseFS(source, what+".go.tmpl"))
		for _, f := range files {
			var b bytes.Buffer
			if err := t.Execute(&b, f); err != nil {
				log.Fatal(err)
			}
			text, err := format.Source(b.Bytes())
			if err != nil {
				log.Fatalf("%s: %v", f.Name(), err)
			}
			name := filepath.Join(dir, fmt.Sprintf("%s_avx512_f%d.go", what, f.Bits))
			if err := os.WriteFile(name, text, 0o644); err != nil {
				log.Fatal(err)
			}
		}
	}
	if err := float64s(dir); err != nil {
		log.Fatal(err)
	}
}
