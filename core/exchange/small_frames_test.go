package exchange

import (
	"net"
	"sync"
	"testing"
	"time"

	"sar/core/comm"
	"sar/core/transport"
	"sar/core/transport/tcp"
)

// overLoopback joins two ranks of this process by tcp links.
func overLoopback(a, b, linkBytes int) (la, lb transport.Link, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	ca, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return nil, nil, err
	}
	cb, err := l.Accept()
	if err != nil {
		return nil, nil, err
	}
	if la, err = tcp.NewLink(ca, b, linkBytes); err != nil {
		return nil, nil, err
	}
	lb, err = tcp.NewLink(cb, a, linkBytes)
	return la, lb, err
}

// Two workers send each other more than their connections hold, in frames so small
// that who commits them writes them. Each takes what comes only after Local, which
// begins once its link is full: that must not wait for the other to read.
func TestSmallFramesDoNotLockUp(t *testing.T) {
	groups, err := comm.LocalOver(comm.Config{World: 2, Operation: 15 * time.Second}, overLoopback)
	if err != nil {
		t.Fatal(err)
	}
	const rows, rowBytes = 32 << 10, 1 << 10
	var wg sync.WaitGroup
	for _, g := range groups {
		wg.Go(func() {
			defer g.Close()
			c, err := g.NewCommunicator("small frames", 32<<10)
			if err != nil {
				t.Error(err)
				return
			}
			op, err := c.Begin(comm.KindAggregate, comm.Forward)
			if err != nil {
				t.Error(err)
				return
			}
			got := 0
			m := &Movement{
				Op: op, RowBytes: rowBytes, Send: []int{0, rows}, Recv: []int{0, rows},
				Produce: func(_, first, n int, dst []byte) error {
					for i := range n {
						dst[i*rowBytes] = byte(first + i)
					}
					return nil
				},
				Local: func() error { return nil },
				Consume: func(_, first, n int, src []byte) error {
					for i := range n {
						if src[i*rowBytes] == byte(first+i) {
							got++
						}
					}
					return nil
				},
			}
			_, err = m.Move(g.Rank(), 2)
			if err = op.End(err); err != nil || got != rows {
				t.Errorf("rank %d has %d of %d rows: %v", g.Rank(), got, rows, err)
			}
		})
	}
	wg.Wait()
}
