package vec

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestNEON reads the loops that the compiler makes for arm64, on whatever processor the test runs: products of
// rows and exponentials fuse in vectors, and sums of rows, whose bits are those of every processor, add and
// multiply in vectors and fuse nothing.
func TestNEON(t *testing.T) {
	archive := filepath.Join(t.TempDir(), "vec.a")
	build := exec.Command("go", "build", "-o", archive, ".")
	build.Env = append(os.Environ(), "GOARCH=arm64", "GOEXPERIMENT=simd", "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build for arm64: %v\n%s", err, out)
	}
	out, err := exec.Command("go", "tool", "objdump", archive).CombinedOutput()
	if err != nil {
		t.Fatalf("go tool objdump: %v\n%s", err, out)
	}
	code := map[string]string{} // instructions of each loop
	for function := range strings.SplitSeq(string(out), "TEXT ") {
		m := regexp.MustCompile(`vec\.(\w+)\(SB\)`).FindStringSubmatch(function)
		if m != nil && code[m[1]] == "" {
			code[m[1]] = function
		}
	}
	const wide, double = "S4", "D2"
	for _, group := range []struct {
		loops, instruction, lanes string
		fuses                     bool
	}{
		{"dotHeadsF32 dotHeads1F32 dotHeads2F32 dotRowsF32 dotPairsF32 dotSumF32 dotSum1F32 dotSum2F32 dotSumRowsF32", "FMLA",
			wide, true},
		{"leakyHeadsF32 leakyRowsF32 expF32 tanhF32 eluF32", "FMLA", wide, true},
		{"sum1F32 sum2F32 sum4F32 sum6F32 sum8F32 heads4F32 heads44F32 scatter1F32 scatter4F32", "FADD", wide, false},
		{"scatterSlopes4F32 axpyF32 addF32 columnSumsF32 narrowBF16 sum1BF16 sum2BF16 sum3BF16", "FADD", wide, false},
		{"sum8F32 heads44F32 scatter4F32 scatterSlopes4F32 axpyF32 scaleF32 affineF32 productsF32 gradientF32", "FMUL", wide,
			false},
		{"dot4F64 leakyDotF64 wholeExpF64", "FMLA", double, true},
		{"axpy4F64 axpyF64 addF64 addLeakyF64 addSlopesF64 columnSumsF64", "FADD", double, false},
		{"axpy4F64 axpyF64 scaleF64 addLeakyF64 addSlopesF64 affineF64 productsF64 gradientF64", "FMUL", double, false},
	} {
		for loop := range strings.FieldsSeq(group.loops) {
			if !regexp.MustCompile(group.instruction + ` V\d+\.` + group.lanes).MatchString(code[loop]) {
				t.Errorf("%s has no vector %s:\n%s", loop, group.instruction, code[loop])
			}
			if !group.fuses && regexp.MustCompile(`F(MLA|MLS|N?MADD|N?MSUB)`).MatchString(code[loop]) {
				t.Errorf("%s fuses:\n%s", loop, code[loop])
			}
		}
	}
}
