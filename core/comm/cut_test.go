package comm

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sar/core/internal/dtypes"
	"sar/core/internal/freeport"
)

// line forwards connections until it is cut; then it keeps them open and
// carries nothing, as a network does that has failed.
type line struct {
	net.Listener
	cut atomic.Bool
}

func newLine(t *testing.T, to func() string) *line {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	p := &line{Listener: l}
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to())
			if err != nil {
				_ = in.Close()
				continue
			}
			go p.carry(in, out)
			go p.carry(out, in)
		}
	}()
	return p
}

func (p *line) carry(dst, src net.Conn) {
	buf := make([]byte, 64<<10)
	for {
		n, err := src.Read(buf)
		if p.cut.Load() {
			return // leaves both open
		}
		if n > 0 {
			if _, err := dst.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			_ = dst.Close()
			return
		}
	}
}

// The network between two workers stops carrying anything.
func TestCutOff(t *testing.T) {
	port := freeport.Find()
	control := newLine(t, func() string { return fmt.Sprintf("127.0.0.1:%d", port) })
	var listener atomic.Value
	data := newLine(t, func() string { return listener.Load().(string) })
	cfgs := configs(port, 2, func(c *Config) { c.Transport, c.Liveness = "tcp", 2*time.Second })
	cfgs[1].MasterPort = control.Addr().(*net.TCPAddr).Port
	var cutAt atomic.Int64
	errs := joinBy(t, cfgs, func(cfg Config) (*Group, error) {
		cfg = cfg.withDefaults()
		at, id, err := prepare(cfg)
		if err != nil {
			return nil, err
		}
		n, m, err := listen(cfg, at, id)
		if err != nil {
			return nil, err
		}
		end := n.Endpoint()
		if cfg.Rank == 0 { // whom rank 1 dials
			listener.Store(end.TCP)
			end.TCP = data.Addr().String()
		}
		return join(cfg, id, n, m, end)
	}, func(g *Group) error {
		c, err := g.NewCommunicator("c", 1<<20)
		if err != nil {
			return err
		}
		if err := c.Barrier(); err != nil {
			return err
		}
		for k := 0; err == nil; k++ {
			if k == 30 && g.Rank() == 0 {
				cutAt.Store(time.Now().UnixNano())
				control.cut.Store(true)
				data.cut.Store(true)
			}
			err = c.AllReduce(make([]byte, 800), dtypes.Float64, Sum)
			time.Sleep(time.Millisecond)
		}
		return err
	})
	for r, err := range errs {
		var lost *PeerLost
		if !errors.As(err, &lost) || lost.Rank != 1-r || !strings.Contains(lost.Phase, "all-reduce") {
			t.Errorf("rank %d: %v", r, err)
		}
	}
	if d := time.Since(time.Unix(0, cutAt.Load())); d > 6*time.Second {
		t.Errorf("took %v", d)
	}
	nothingLeft(t)
}

// A rank that is cut off while it waits for others says so, whatever rank 0 said
// before: it cannot know who has come since.
func TestCutOffInTheRendezvous(t *testing.T) {
	t.Parallel()
	port := freeport.Find()
	control := newLine(t, func() string { return fmt.Sprintf("127.0.0.1:%d", port) })
	cfgs := configs(port, 3, func(c *Config) { c.Start = 5 * time.Second })[:2] // rank 2 never comes
	cfgs[1].MasterPort = control.Addr().(*net.TCPAddr).Port
	time.AfterFunc(1500*time.Millisecond, func() { control.cut.Store(true) })
	errs := joinAll(t, cfgs, nil)
	if text := fmt.Sprint(errs[0]); !strings.Contains(text, "rank 2 of 3 did not come") {
		t.Errorf("rank 0: %s", text)
	}
	text := fmt.Sprint(errs[1])
	for _, part := range []string{"rank 1 met rank 0 at 127.0.0.1:", "has not answered for",
		"until then rank 2 of 3 had not come"} {
		if !strings.Contains(text, part) {
			t.Errorf("rank 1: %q is not in %s", part, text)
		}
	}
}
