package expr

import (
	"math"
	"testing"
)

// Logits that spread so widely that references rise, along rows that span blocks: the
// result and the weights that backward takes are those of a softmax in two steps.
func TestReferencesRise(t *testing.T) {
	rel := benchRelation(t, 30, 20000) // more edges a row than a block holds
	for _, text := range []string{benchPrograms["gat"], benchPrograms["gat_odd"]} {
		r := newRun(t, rel, text)
		p := r.Program
		heads, width := p.Operands[0].Width, p.Width()
		for i := range r.Operands[0] {
			r.Operands[0][i] *= float32(20 * (1 + i%heads*10))
		}
		forward(r)
		logit := func(row, k, h int) float64 {
			x := float64(r.Operands[0][int(rel.Col.Data[k])*heads+h] + r.Operands[1][row*heads+h])
			return max(x, 0) + 0.2*min(x, 0)
		}
		for row := range rel.NumDst {
			k0, k1 := int(rel.RowPtr.Data[row]), int(rel.RowPtr.Data[row+1])
			for j := range width {
				h := j / (width / heads)
				most, sum, want := math.Inf(-1), 0.0, 0.0
				for k := k0; k < k1; k++ {
					most = max(most, logit(row, k, h))
				}
				for k := k0; k < k1; k++ {
					w := math.Exp(logit(row, k, h) - most)
					sum += w
					want += w * float64(r.Operands[2][int(rel.Col.Data[k])*width+j])
				}
				if got := float64(r.Out[row*width+j]); !(math.Abs(got-want/sum) < 1e-4) {
					t.Fatalf("out[%d, %d] = %v, want %v", row, j, got, want/sum)
				}
			}
		}
		if err := backwardWhole(r); err != nil {
			t.Fatal(err)
		}
		// Weights sum to 1, so a shift of all logits of a row changes nothing.
		for i, g := range r.Grads[1] {
			if !(math.Abs(float64(g)) < 1) {
				t.Fatalf("gradient of destination logit %d is %v", i, g)
			}
		}
	}
}
