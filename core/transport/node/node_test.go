package node

import (
	"errors"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"sar/core/mem"
	"sar/core/transport"
	"sar/core/transport/shm"
	"sar/core/transport/tcp"
	"sar/core/trust"
)

const patience = 10 * time.Second

// identity is that of a rank of one job.
func identity(rank, world int) *trust.Identity { return identityOver(rank, world, false) }

func identityOver(rank, world int, encrypted bool) *trust.Identity {
	job, err := trust.NewJob("the token of all jobs of these tests")
	if err != nil {
		panic(err)
	}
	id, err := trust.NewIdentity(job, rank, world, encrypted)
	if err != nil {
		panic(err)
	}
	return id
}

// open makes nodes that know each other, within this process.
func open(t testing.TB, transports ...string) []*Node {
	t.Helper()
	return openOver(t, false, transports...)
}

// openOver is open with or without TLS.
func openOver(t testing.TB, encrypted bool, transports ...string) []*Node {
	t.Helper()
	var nodes []*Node
	var ends []transport.Endpoint
	for r, kind := range transports {
		n, err := Listen(Config{Rank: r, World: len(transports), BindAddr: "127.0.0.1", Transport: kind,
			Identity: identityOver(r, len(transports), encrypted)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := n.Close(); err != nil {
				t.Error(err)
			}
		})
		nodes = append(nodes, n)
		ends = append(ends, n.Endpoint())
	}
	for _, n := range nodes {
		if err := n.SetPeers([16]byte{1, 2, 3}, ends); err != nil {
			t.Fatal(err)
		}
	}
	return nodes
}

func repeat(kind string, n int) []string {
	return strings.Split(strings.TrimSuffix(strings.Repeat(kind+" ", n), " "), " ")
}

// mesh calls Mesh on all nodes at once.
func mesh(nodes []*Node, id uint32, bytes int, wait time.Duration) ([][]transport.Link, []error) {
	links := make([][]transport.Link, len(nodes))
	errs := make([]error, len(nodes))
	done := make(chan struct{})
	for r, n := range nodes {
		go func() {
			links[r], errs[r] = n.Mesh(id, bytes, time.Now().Add(wait))
			done <- struct{}{}
		}()
	}
	for range nodes {
		<-done
	}
	return links, errs
}

func mustMesh(t testing.TB, nodes []*Node, id uint32, bytes int) [][]transport.Link {
	t.Helper()
	links, errs := mesh(nodes, id, bytes, patience)
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return links
}

func closeLinks(links [][]transport.Link) {
	for _, row := range links {
		for _, l := range row {
			if l != nil {
				_ = l.Close()
			}
		}
	}
}

func control(t *testing.T, nodes []*Node) [][]net.Conn {
	t.Helper()
	conns := make([][]net.Conn, len(nodes))
	errs := make(chan error)
	for r, n := range nodes {
		go func() {
			var err error
			conns[r], err = n.Control(func(int) bool { return true }, time.Now().Add(patience))
			errs <- err
		}()
	}
	for range nodes {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	return conns
}

// TestControlWithoutOne has rank 1 end before connections are made: the others blame it and
// not each other, and have the connection over which to say so.
func TestControlWithoutOne(t *testing.T) {
	nodes := open(t, repeat(tcp.Transport.Name, 3)...)
	if err := nodes[1].Close(); err != nil {
		t.Fatal(err)
	}
	type result struct {
		rank  int
		conns []net.Conn
		err   error
	}
	results := make(chan result)
	for _, r := range []int{2, 0} {
		go func() {
			if r == 0 {
				time.Sleep(100 * time.Millisecond) // rank 2 has found rank 1 gone
			}
			conns, err := nodes[r].Control(func(int) bool { return true }, time.Now().Add(time.Second))
			results <- result{r, conns, err}
		}()
	}
	for range 2 {
		got := <-results
		if got.err == nil || !strings.Contains(got.err.Error(), "rank 1") {
			t.Errorf("rank %d: %v", got.rank, got.err)
		}
		if other := got.conns[2-got.rank]; other == nil {
			t.Errorf("rank %d has no connection to rank %d", got.rank, 2-got.rank)
		} else {
			_ = other.Close()
		}
	}
}

func TestControl(t *testing.T) {
	for _, kind := range []string{Auto, tcp.Transport.Name} {
		nodes := open(t, repeat(kind, 3)...)
		for range 2 {
			conns := control(t, nodes)
			for a, row := range conns {
				for b, c := range row {
					if (c == nil) != (a == b) {
						t.Fatalf("connection %d-%d: %v", a, b, c)
					}
					if c != nil {
						if _, err := c.Write([]byte{byte(10*a + b)}); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
			for a, row := range conns {
				for b, c := range row {
					if c == nil {
						continue
					}
					var got [1]byte
					if _, err := c.Read(got[:]); err != nil || int(got[0]) != 10*b+a {
						t.Fatalf("connection %d-%d carried %d, %v", a, b, got[0], err)
					}
					_ = c.Close()
				}
			}
		}
	}
}

// TestParked has one rank come late to two meshes, in the other order.
func TestParked(t *testing.T) {
	nodes := open(t, Auto, Auto)
	type result struct {
		id    uint32
		links []transport.Link
		err   error
	}
	early := make(chan result, 2)
	for _, id := range []uint32{1, 2} {
		go func() {
			l, err := nodes[1].Mesh(id, 1<<16, time.Now().Add(patience))
			early <- result{id, l, err}
		}()
	}
	time.Sleep(50 * time.Millisecond)
	late := map[uint32]transport.Link{}
	for _, id := range []uint32{2, 1} {
		l, err := nodes[0].Mesh(id, 1<<16, time.Now().Add(patience))
		if err != nil {
			t.Fatal(err)
		}
		late[id] = l[1]
		defer closeLinks([][]transport.Link{l})
	}
	for range 2 {
		r := <-early
		if r.err != nil {
			t.Fatal(r.err)
		}
		defer closeLinks([][]transport.Link{r.links})
		if _, err := r.links[0].Reserve(0, time.Time{}); err != nil {
			t.Fatal(err)
		}
		if err := r.links[0].Commit(transport.Tag{Comm: uint16(r.id)}, time.Time{}); err != nil {
			t.Fatal(err)
		}
		f, err := late[r.id].Next(time.Now().Add(patience))
		if err != nil || f.Tag.Comm != uint16(r.id) {
			t.Fatalf("mesh %d carried %+v, %v", r.id, f.Tag, err)
		}
	}
}

func TestLateAndClosed(t *testing.T) {
	nodes := open(t, Auto, Auto)
	for r, n := range nodes {
		start := time.Now()
		_, err := n.Mesh(1, 1<<16, start.Add(50*time.Millisecond))
		var late *transport.TimeoutError
		if !errors.As(err, &late) || late.Peer != 1-r || time.Since(start) > time.Second {
			t.Errorf("rank %d alone: %v after %v", r, err, time.Since(start))
		}
	}
	// What the first attempts left behind does not spoil another.
	closeLinks(mustMesh(t, nodes, 2, 1<<16))
	errs := make(chan error)
	go func() {
		_, err := nodes[0].Mesh(3, 1<<16, time.Time{})
		errs <- err
	}()
	time.Sleep(20 * time.Millisecond)
	_ = nodes[0].Close()
	if err := <-errs; !errors.Is(err, transport.ErrClosed) {
		t.Errorf("Mesh on a closed node: %v", err)
	}
	_, err := nodes[1].Mesh(4, 1<<16, time.Now().Add(patience))
	var gone *transport.PeerGone
	if !errors.As(err, &gone) {
		t.Errorf("Mesh with a closed peer: %v", err)
	}
}

func TestDisagreement(t *testing.T) {
	nodes := open(t, Auto, Auto)
	errs := make(chan error)
	for r, n := range nodes {
		go func() {
			_, err := n.Mesh(1, (r+1)<<16, time.Now().Add(patience))
			errs <- err
		}()
	}
	for range nodes {
		if err := <-errs; err == nil || !strings.Contains(err.Error(), "65536") || !strings.Contains(err.Error(), "131072") {
			t.Errorf("got %v, want both sizes", err)
		}
	}
	nodes = open(t, shm.Transport.Name, tcp.Transport.Name)
	_, both := mesh(nodes, 1, 1<<16, patience)
	for _, err := range both {
		if err == nil {
			t.Error("shm on one side and tcp on the other went through")
		}
	}
}

// TestNothingLeft counts what nodes, meshes and refused connections leave.
func TestNothingLeft(t *testing.T) {
	count := func() (int, int, int64) {
		fds, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return runtime.NumGoroutine(), len(fds), mem.Stats()[mem.Window].Live
	}
	g0, f0, m0 := count()
	t.Run("use", func(t *testing.T) {
		TestAutoChooses(t)
		TestLateAndClosed(t)
		TestDisagreement(t)
		TestStrangers(t)
		TestOddHellos(t)
	})
	for end := time.Now().Add(3 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		g, f, m := count()
		if g <= g0 && f <= f0 && m == m0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d goroutines, %d descriptors, %d bytes; before %d, %d, %d", g, f, m, g0, f0, m0)
		}
	}
}
