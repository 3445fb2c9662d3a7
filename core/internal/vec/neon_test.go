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
		if m := regexp.MustCompile(`vec\.(\w+)\(SB\)`).FindStringSubmatch(function); m != nil && code[m[1]] == "" {
			code[m[1]] = function
		}
	}
	for _, group := range []struct {
		loops, instruction string
		fuses              bool
	}{
		{"dotHeads dotHeads1 dotHeads2 dotRows dotPairs dotSum dotSum1 dotSum2 dotSumRows", "FMLA", true},
		{"leakyHeads leakyRows exp tanh elu", "FMLA", true},
		{"sum1 sum2 sum4 sum5 sum6 sum8 heads1 heads8 scatter1 scatter8", "FADD", false},
		{"scatterSlopes4 axpy add columnSums", "FADD", false},
		{"sum8 heads8 scatter8 scatterSlopes4 axpy scale affine products gradient", "FMUL", false},
	} {
		for name := range strings.FieldsSeq(group.loops) {
			for suffix, lanes := range map[string]string{"F32": "S4", "F64": "D2"} {
				loop := name + suffix
				if !regexp.MustCompile(group.instruction + ` V\d+\.` + lanes).MatchString(code[loop]) {
					t.Errorf("%s has no vector %s:\n%s", loop, group.instruction, code[loop])
				}
				if !group.fuses && regexp.MustCompile(`F(MLA|MLS|N?MADD|N?MSUB)`).MatchString(code[loop]) {
					t.Errorf("%s fuses:\n%s", loop, code[loop])
				}
			}
		}
	}
}
