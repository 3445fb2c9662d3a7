package trust

import (
	"bufio"
	"crypto/tls"
	"net"
	"sync"
)

// A TLS record holds 16 KiB at most, and crypto/tls writes each by a system call
// of its own. encrypted collects the records of one Write.
type encrypted struct {
	*tls.Conn
	batch *batch
	mu    sync.Mutex
}

// Write encrypts p and returns when the kernel has taken it.
func (e *encrypted) Write(p []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.batch.hold()
	n, err := e.Conn.Write(p)
	if failed := e.batch.flush(); err == nil && failed != nil {
		return 0, failed
	}
	return n, err
}

// batchBytes is what is collected before it is written in the middle of a Write,
// and what is read at once.
const batchBytes = 128 << 10

// batch is the connection below TLS.
type batch struct {
	net.Conn
	in      *bufio.Reader
	mu      sync.Mutex
	holding bool
	out     []byte
	failed  error // of a write: what follows would not be whole records
}

func newBatch(conn net.Conn) *batch {
	return &batch{Conn: conn, in: bufio.NewReaderSize(conn, batchBytes)}
}

func (b *batch) Read(p []byte) (int, error) { return b.in.Read(p) }

func (b *batch) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.holding {
		return b.Conn.Write(p)
	}
	if len(b.out)+len(p) > batchBytes {
		if err := b.writeOut(); err != nil {
			return 0, err
		}
	}
	b.out = append(b.out, p...)
	return len(p), nil
}

func (b *batch) hold() {
	b.mu.Lock()
	b.holding = true
	b.mu.Unlock()
}

func (b *batch) flush() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.holding = false
	return b.writeOut()
}

// writeOut runs with mu held.
func (b *batch) writeOut() error {
	if b.failed == nil && len(b.out) > 0 {
		_, b.failed = b.Conn.Write(b.out)
	}
	b.out = b.out[:0]
	return b.failed
}
