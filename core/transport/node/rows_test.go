package node

import "unsafe"

const (
	rowFloats  = 256
	rowBytes   = 4 * rowFloats
	sourceRows = 16 << 10
)

// work is what a benchmark puts into frames and does with those it gets.
type work struct {
	rows   bool
	row    int
	source []float32
	target []float32
	sum    [rowFloats]float32
}

func newWork(rows bool) *work {
	w := &work{rows: rows, source: make([]float32, exchangeSize/4)}
	if rows {
		w.source = make([]float32, sourceRows*rowFloats)
	} else {
		w.target = make([]float32, exchangeSize/4)
	}
	for i := range w.source {
		w.source[i] = float32(i % 7)
	}
	for i := range w.target {
		w.target[i] = 1
	}
	return w
}

// put fills a frame that begins `done` bytes into the exchange.
func (w *work) put(frame []byte, done int) {
	out := floats(frame)
	if !w.rows {
		copy(out, w.source[done/4:])
		return
	}
	for ; len(out) >= rowFloats; out = out[rowFloats:] {
		at := w.row % sourceRows * rowFloats // an order that no prefetcher guesses at once
		copy(out[:rowFloats], w.source[at:at+rowFloats])
		w.row += 4097
	}
}

// take consumes a frame. Rows are read as a kernel that adds them up reads
// them, but only every 16th float is added, so that this measures the link.
func (w *work) take(frame []byte, done int) {
	in := floats(frame)
	if !w.rows {
		copy(w.target[done/4:], in)
		return
	}
	for ; len(in) >= rowFloats; in = in[rowFloats:] {
		for i := 0; i < rowFloats; i += 16 {
			w.sum[i] += in[i]
		}
	}
}

func floats(b []byte) []float32 {
	if len(b) == 0 {
		return nil
	}
	return unsafe.Slice((*float32)(unsafe.Pointer(&b[0])), len(b)/4)
}
