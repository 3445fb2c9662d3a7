//go:build goexperiment.simd && (amd64 || arm64)

package vec

func opsF32() Ops[float32] {
	return Ops[float32]{
		GatherSum:      gatherSumF32,
		GatherSums:     gatherSumsF32,
		GatherSumHeads: gatherSumHeadsF32,
		GatherDot:      gatherDotF32,
		GatherDotHeads: gatherDotHeadsF32,
		DotPairs:       dotPairsF32,
		DotSums:        dotSumsF32,
		LeakyDots:      leakyDotsF32,
		LeakySums:      leakySumsF32,
		LeakyBoth:      leakyBothF32,
		ScatterSum:     scatterSumF32,
		ScatterSlopes:  scatterSlopesF32,
		ScatterAdd:     scatterAddF32,
		Rows:           rowsSIMD[float32],
		SumRows:        sumRowsF32,
		MostRows:       mostRowsF32,
		LessRow:        lessRowF32,
		Axpy:           axpyF32,
		Add:            addF32,
		Scale:          scaleF32,
		Plus:           plusF32,
		Minus:          minusF32,
		Times:          timesF32,
		Over:           overF32,
		TimesEach:      timesEachF32,
		Leaky:          leakyF32,
		Gate:           gateF32,
		Win:            winF32,
		Pick:           pickF32,
		Exp:            expF32,
		Log:            logF32,
		Sigmoid:        sigmoidF32,
		Tanh:           tanhF32,
		Softplus:       softplusF32,
		ELU:            eluF32,
	}
}
