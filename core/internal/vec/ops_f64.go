//go:build goexperiment.simd && (amd64 || arm64)

package vec

// opsF64 is the loops of plain Go, and others for most of them.
func opsF64() Ops[float64] {
	o := scalarOps[float64]()
	o.GatherSum, o.GatherSums, o.GatherSumHeads = gatherSumF64, gatherSumsF64, gatherSumHeadsF64
	o.GatherDotHeads, o.DotPairs, o.DotSums = gatherDotHeadsF64, dotPairsF64, dotSumsF64
	o.LeakyDots, o.LeakySums, o.LeakyBoth = leakyDotsF64, leakySumsF64, leakyBothF64
	o.ScatterSum, o.ScatterSlopes, o.ScatterAdd = scatterSumF64, scatterSlopesF64, scatterAddF64
	o.Rows = rowsSIMD[float64]
	o.Axpy, o.Add, o.Scale, o.TimesEach = axpyF64, addF64, scaleF64, timesEachF64
	o.Plus, o.Minus, o.Times, o.Over = plusF64, minusF64, timesF64, overF64
	o.Leaky, o.Gate = leakyF64, gateF64
	o.Exp, o.Sigmoid, o.Tanh, o.Softplus, o.ELU = expF64, sigmoidF64, tanhF64, softplusF64, eluF64
	return o
}
