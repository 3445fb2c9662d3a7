package kernel

import (
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/mat"
)

// dense is the matrix with weights w [slots], or ones, by rows and columns.
// Slots that share a row and a column add up.
func (m matrix) dense(w []float64) *mat.Dense {
	a := mat.NewDense(m.Rows(), m.cols, nil)
	for i := range m.Rows() {
		for k := m.Ptr[i]; k < m.Ptr[i+1]; k++ {
			v := 1.0
			if w != nil {
				v = w[m.edge(k)]
			}
			a.Set(i, int(m.Col[k]), a.At(i, int(m.Col[k]))+v)
		}
	}
	return a
}

// TestProductsAreDenseProducts holds the sparse products against gonum's dense ones:
// SpMM is A x, and SDDMM the entries of g xᵀ at the slots.
func TestProductsAreDenseProducts(t *testing.T) {
	everyPath(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(4, 2))
		for _, width := range []int{1, 7, 16, 47, 130} {
			for _, weighted := range []bool{false, true} {
				m := randomMatrix(rng, 40, 30, 1, 200, weighted)
				x, g := randoms[float64](rng, m.cols*width), randoms[float64](rng, m.Rows()*width)
				var w []float64
				if weighted {
					w = randoms[float64](rng, len(m.Col))
				}
				y := make([]float64, m.Rows()*width)
				SpMM(NewPool(2), y, productOf(x, width, m.CSR, w, 1, nil))
				var want mat.Dense
				want.Mul(m.dense(w), mat.NewDense(m.cols, width, x))
				if got := mat.NewDense(m.Rows(), width, y); !mat.EqualApprox(got, &want, 1e-11) {
					t.Fatalf("width %d, weighted %v: SpMM is not the dense product", width, weighted)
				}

				dw := make([]float64, len(m.Col))
				SDDMM(NewPool(2), dw, g, productOf(x, width, m.CSR, nil, 1, nil))
				var pairs mat.Dense
				pairs.Mul(mat.NewDense(m.Rows(), width, g), mat.NewDense(m.cols, width, x).T())
				entries := make([]float64, len(dw))
				for i := range m.Rows() {
					for k := m.Ptr[i]; k < m.Ptr[i+1]; k++ {
						entries[m.edge(k)] = pairs.At(i, int(m.Col[k]))
					}
				}
				if !mat.EqualApprox(mat.NewVecDense(len(dw), dw), mat.NewVecDense(len(dw), entries), 1e-11) {
					t.Fatalf("width %d, weighted %v: SDDMM is not the dense product at the slots", width, weighted)
				}
			}
		}
	})
}
