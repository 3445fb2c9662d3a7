package node

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"sar/core/transport"
	"sar/core/transport/shm"
	"sar/core/transport/tcp"
	"sar/core/trust"
)

// knock connects to a node as rank `as` of two, and proves that.
func knock(t *testing.T, network, addr string, as int, to trust.Target) net.Conn {
	t.Helper()
	c, err := net.Dial(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	proven, err := identity(as, 2).Dial(c, to)
	if err != nil {
		t.Fatal(err)
	}
	return proven
}

// TestStrangers sends a node everything but a peer's proof while a mesh forms.
func TestStrangers(t *testing.T) {
	nodes := open(t, Auto, Auto)
	end := nodes[0].Endpoint()
	good := hello{Purpose: tcp.Transport.Purpose, Session: [16]byte{1, 2, 3}, Rank: 1, World: 2, Mesh: 1, Bytes: 1 << 16}
	for _, say := range [][]byte{
		[]byte("GET / HTTP/1.1\r\nHost: x\r\nUser-Agent: a scanner, which has much to say\r\n\r\n"),
		good.encode(), // a hello without a proof
		{1, 2, 3},     // and nothing more
		nil,
	} {
		for _, addr := range [][2]string{{"tcp", end.TCP}, {"unix", end.Unix}} {
			c, err := net.Dial(addr[0], addr[1])
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
			if _, err := c.Write(say); err != nil {
				t.Fatal(err)
			}
			if len(say) < helloSize {
				continue // stays open and silent
			}
			_ = c.SetDeadline(time.Now().Add(patience))
			if n, err := c.Read(make([]byte, 1)); err == nil {
				t.Errorf("%q over %s: answered with %d bytes", say, addr[0], n)
			}
		}
	}
	closeLinks(mustMesh(t, nodes, 1, 1<<16))
}

// TestOddHellos has a worker that is of the job say what it should not.
func TestOddHellos(t *testing.T) {
	nodes := open(t, Auto, Auto)
	end := nodes[0].Endpoint()
	good := hello{Purpose: tcp.Transport.Purpose, Session: [16]byte{1, 2, 3}, Rank: 1, World: 2, Mesh: 1, Bytes: 1 << 16}
	session := good
	session.Session[15] = 9
	rank, mesh, other := good, good, good
	rank.Rank = 7
	mesh.Mesh = 2
	other.Purpose = trust.Control
	version := good.encode()
	version[4] = 77
	segment := good
	segment.Purpose = shm.Transport.Purpose
	for _, say := range []struct {
		what   string
		bytes  []byte
		answer answer // answerNone: the connection is closed without
	}{
		{"another session", session.encode(), answerSession},
		{"another rank than was proved", rank.encode(), answerNone},
		{"another mesh than was proved", mesh.encode(), answerNone},
		{"another kind than was proved", other.encode(), answerNone},
		{"another version", version, answerVersion},
		{"shared memory without any", segment.encode(), answerNone},
		{"no hello", make([]byte, helloSize), answerNone},
	} {
		network, addr, to := "tcp", end.TCP, trust.Target{Purpose: tcp.Transport.Purpose, Mesh: 1}
		if say.what == "shared memory without any" {
			network, addr, to.Purpose = "unix", end.Unix, shm.Transport.Purpose
		}
		c := knock(t, network, addr, 1, to)
		if _, err := c.Write(say.bytes); err != nil {
			t.Fatal(err)
		}
		got, _, err := receiveHello(c)
		if say.answer == answerNone && err == nil || say.answer != answerNone && (err != nil || got.Answer != say.answer) {
			t.Errorf("%s: answer %+v, %v", say.what, got, err)
		}
	}
	closeLinks(mustMesh(t, nodes, 1, 1<<16))
}

// TestSiege opens more connections than a node keeps unproven, at both of its
// listeners, and leaves them open: meshes are made all the same.
func TestSiege(t *testing.T) {
	nodes := open(t, Auto, tcp.Transport.Name, Auto)
	for _, n := range nodes {
		for _, addr := range [][2]string{{"tcp", n.Endpoint().TCP}, {"unix", n.Endpoint().Unix}} {
			for range 200 {
				c, err := net.Dial(addr[0], addr[1])
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = c.Close() })
			}
		}
	}
	for id := range uint32(3) {
		closeLinks(mustMesh(t, nodes, id, 1<<16))
	}
	for _, row := range control(t, nodes) {
		for _, c := range row {
			if c != nil {
				_ = c.Close()
			}
		}
	}
}

// TestEarlyStranger parks hellos before the node knows its session.
func TestEarlyStranger(t *testing.T) {
	var nodes []*Node
	var ends []transport.Endpoint
	for r := range 2 {
		n, err := Listen(Config{Rank: r, World: 2, BindAddr: "127.0.0.1", Identity: identity(r, 2)})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = n.Close() }()
		nodes, ends = append(nodes, n), append(ends, n.Endpoint())
	}
	if _, err := nodes[0].Mesh(1, 1<<16, time.Time{}); err == nil {
		t.Error("Mesh before SetPeers went through")
	}
	c := knock(t, "tcp", ends[0].TCP, 1, trust.Target{Purpose: tcp.Transport.Purpose, Mesh: 1})
	h := hello{Purpose: tcp.Transport.Purpose, Session: [16]byte{66}, Rank: 1, World: 2, Mesh: 1, Bytes: 1 << 16}
	if _, err := c.Write(h.encode()); err != nil {
		t.Fatal(err)
	}
	if err := nodes[1].SetPeers([16]byte{5}, ends); err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		l, err := nodes[1].Mesh(1, 1<<16, time.Now().Add(patience))
		closeLinks([][]transport.Link{l})
		done <- err
	}()
	time.Sleep(50 * time.Millisecond)
	if err := nodes[0].SetPeers([16]byte{5}, ends); err != nil {
		t.Fatal(err)
	}
	l, err := nodes[0].Mesh(1, 1<<16, time.Now().Add(patience))
	if err != nil {
		t.Fatal(err)
	}
	closeLinks([][]transport.Link{l})
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(patience))
	if got, _, err := receiveHello(c); err != nil || got.Answer != answerSession {
		t.Errorf("the stranger got %+v, %v", got, err)
	}
}

// TestEncrypted looks at what passes between two nodes: with TLS no frame can be
// read, and a node that is told of another certificate than its peer's does not
// connect.
func TestEncrypted(t *testing.T) {
	for _, encrypted := range []bool{false, true} {
		nodes := openOver(t, encrypted, tcp.Transport.Name, tcp.Transport.Name)
		wire := newTap(t, nodes[0].endpoint.TCP)
		nodes[1].peers[0].TCP = wire.Addr().String()
		links := mustMesh(t, nodes, 1, 1<<16)
		secret := "what nobody is to read"
		b, err := links[1][0].Reserve(len(secret), time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		copy(b, secret)
		if err := links[1][0].Commit(transport.Tag{}, time.Time{}); err != nil {
			t.Fatal(err)
		}
		f, err := links[0][1].Next(time.Now().Add(patience))
		if err != nil || string(f.Payload) != secret {
			t.Fatalf("%q, %v", f.Payload, err)
		}
		closeLinks(links)
		if seen := wire.seen(); strings.Contains(seen, secret) == encrypted {
			t.Errorf("encrypted %v: the wire carried %q", encrypted, seen)
		}
	}
	nodes := openOver(t, true, tcp.Transport.Name, tcp.Transport.Name)
	nodes[1].peers[0].Certificate[3] ^= 1
	if _, errs := mesh(nodes, 1, 1<<16, time.Second); errs[1] == nil ||
		!strings.Contains(errs[1].Error(), "another certificate") {
		t.Errorf("%v", errs)
	}
	nodes = openOver(t, true, tcp.Transport.Name, tcp.Transport.Name)
	nodes[0].peers[1].Certificate[3] ^= 1
	if _, errs := mesh(nodes, 1, 1<<16, time.Second); errs[0] == nil || errs[1] == nil {
		t.Errorf("%v", errs)
	}
}

// tap forwards connections and keeps what they carry.
type tap struct {
	net.Listener
	mu   sync.Mutex
	text []byte
}

func newTap(t *testing.T, to string) *tap {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &tap{Listener: l}
	t.Cleanup(func() { _ = l.Close() })
	carry := func(dst, src net.Conn) {
		_, _ = io.Copy(dst, io.TeeReader(src, p))
		_ = dst.Close()
	}
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			if out, err := net.Dial("tcp", to); err == nil {
				go carry(in, out)
				go carry(out, in)
			}
		}
	}()
	return p
}

func (p *tap) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.text = append(p.text, b...)
	return len(b), nil
}

func (p *tap) seen() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return string(p.text)
}
