package disk

// fortranRows reads rows of an array in Fortran order into dst in row-major
// order: dst[i, j, k] = data[first + i + rows * (j + shape[1] * k)]. Every
// column is one read, so that callers want many rows at a time.
func (a *Array) fortranRows(first int64, dst []byte) error {
	size, rows, cols := int64(a.DType.Size()), a.Shape[0], int64(1)
	for _, d := range a.Shape[1:] {
		cols *= d
	}
	if len(dst) == 0 {
		return nil
	}
	n := int64(len(dst)) / (cols * size)
	column := make([]byte, n*size)
	index := make([]int64, len(a.Shape)) // of the column, in row-major order
	for c := range cols {
		at, stride := int64(0), int64(1)
		for d := 1; d < len(a.Shape); d++ {
			at += index[d] * stride
			stride *= a.Shape[d]
		}
		if err := a.File.ReadAt(column, a.Offset+(at*rows+first)*size, a.Name); err != nil {
			return err
		}
		scatterColumn(dst[c*size:], column, cols*size, size)
		for d := len(index) - 1; d > 0; d-- {
			if index[d]++; index[d] < a.Shape[d] {
				break
			}
			index[d] = 0
		}
	}
	return nil
}

// scatterColumn does dst[i*row : i*row+size] = src[i*size : (i+1)*size].
func scatterColumn(dst, src []byte, row, size int64) {
	if size == 1 {
		for i, v := range src {
			dst[int64(i)*row] = v
		}
		return
	}
	for i := int64(0); i*size < int64(len(src)); i++ {
		copy(dst[i*row:i*row+size], src[i*size:])
	}
}
