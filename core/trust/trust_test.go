package trust

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

const token = "a token of these tests"

func identity(t testing.TB, token string, rank, world int, encrypted bool) *Identity {
	t.Helper()
	job, err := NewJob(token)
	if err != nil {
		t.Fatal(err)
	}
	id, err := NewIdentity(job, rank, world, encrypted)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// sockets joins two connections of a kind.
func sockets(t testing.TB, network string) (dialer, listener net.Conn) {
	t.Helper()
	addr := map[string]string{"tcp": "127.0.0.1:0", "unix": "@" + strings.ReplaceAll(t.Name(), "/", "-")}[network]
	l, err := net.Listen(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if dialer, err = net.Dial(network, l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if listener, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []net.Conn{dialer, listener} {
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		t.Cleanup(func() { _ = c.Close() })
	}
	return dialer, listener
}

type admitted struct {
	conn  net.Conn
	claim Claim
	err   error
}

// admit runs the listener's side.
func admit(id *Identity, conn net.Conn, p Policy) <-chan admitted {
	done := make(chan admitted, 1)
	go func() {
		c, claim, err := id.admit(conn, p, func() {})
		if err != nil {
			_ = conn.Close()
		}
		done <- admitted{c, claim, err}
	}()
	return done
}

// linkPurpose is that of a transport.
const linkPurpose Purpose = 1

var links = Policy{Purposes: []Purpose{linkPurpose, Control}}

func TestProof(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		for _, encrypted := range []bool{false, true} {
			dialer, listener := sockets(t, network)
			done := admit(identity(t, token, 1, 4, encrypted), listener, links)
			id := identity(t, token, 3, 4, encrypted)
			c, err := id.Dial(dialer, Target{Purpose: Control, Peer: 1, Mesh: 7})
			got := <-done
			if err != nil || got.err != nil {
				t.Fatal(err, got.err)
			}
			want := Claim{Purpose: Control, Rank: 3, World: 4, Mesh: 7}
			if encrypted && network == "tcp" {
				want.Certificate = id.Certificate()
			}
			if got.claim != want {
				t.Errorf("proved %+v, want %+v", got.claim, want)
			}
			go func() { _, _ = c.Write([]byte("what follows")) }()
			b := make([]byte, 12)
			if _, err := io.ReadFull(got.conn, b); err != nil || string(b) != "what follows" {
				t.Errorf("%q, %v", b, err)
			}
		}
	}
}

func TestRefusals(t *testing.T) {
	us := identity(t, token, 1, 4, false)
	for name, c := range map[string]struct {
		dialer *Identity
		to     Target
		says   string
		other  bool
	}{
		"another job": {identity(t, "another token, of another job", 3, 4, false), Target{Purpose: Control, Peer: 1},
			"belongs to another job", true},
		"another world": {identity(t, token, 3, 5, false), Target{Purpose: Control, Peer: 1},
			"rank 1 did not expect rank 3 of 5", false},
		"a rank outside": {identity(t, token, 9, 4, false), Target{Purpose: Control, Peer: 1}, "did not expect rank 9 of 4",
			false},
		"another peer": {identity(t, token, 3, 4, false), Target{Purpose: Control, Peer: 2}, "rank 1 answers where rank 2",
			false},
		"the purpose": {identity(t, token, 3, 4, false), Target{Purpose: Calls, Peer: 1}, "takes no such connection",
			false},
		"TLS": {identity(t, token, 3, 4, true), Target{Purpose: Control, Peer: 1},
			"without TLS and this rank with", false},
	} {
		dialer, listener := sockets(t, "tcp")
		done := admit(us, listener, links)
		_, err := c.dialer.Dial(dialer, c.to)
		var no *Refused
		if !errors.As(err, &no) || !strings.Contains(err.Error(), c.says) || no.OtherJob != c.other {
			t.Errorf("%s: %v", name, err)
		}
		if got := <-done; got.err == nil {
			t.Errorf("%s: let in as %+v", name, got.claim)
		}
	}
	if _, err := NewJob("too short"); err == nil || !strings.Contains(err.Error(), "secrets.token_hex") {
		t.Errorf("a short token: %v", err)
	}
}

// tap notes what the dialer sends and what it hears.
type tap struct {
	net.Conn
	sent, heard []byte
}

func (c *tap) Write(p []byte) (int, error) {
	c.sent = append(c.sent, p...)
	return c.Conn.Write(p)
}

func (c *tap) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.heard = append(c.heard, p[:n]...)
	return n, err
}

// What a sniffer recorded opens nothing, at either end, and holds no secret.
func TestReplay(t *testing.T) {
	us, them := identity(t, token, 0, 2, false), identity(t, token, 1, 2, false)
	dialer, listener := sockets(t, "tcp")
	done := admit(us, listener, links)
	rec := &tap{Conn: dialer}
	if _, err := them.Dial(rec, Target{Purpose: Control}); err != nil {
		t.Fatal(err)
	}
	<-done
	if len(rec.sent) != helloSize+proofSize || len(rec.heard) != helloSize+verdictSize {
		t.Errorf("%d bytes sent, %d heard", len(rec.sent), len(rec.heard))
	}
	if all := string(rec.sent) + string(rec.heard); strings.Contains(all, token) ||
		strings.Contains(all, string(us.Job.key[:])) {
		t.Error("a secret travels")
	}

	dialer, listener = sockets(t, "tcp")
	done = admit(us, listener, links)
	if _, err := dialer.Write(rec.sent); err != nil {
		t.Fatal(err)
	}
	if got := <-done; got.err != errUnproven {
		t.Errorf("a replayed proof: %v, %+v", got.err, got.claim)
	}

	dialer, listener = sockets(t, "tcp")
	go func() {
		_, _ = io.ReadFull(listener, make([]byte, helloSize))
		_, _ = listener.Write(rec.heard)
	}()
	if _, err := them.Dial(dialer, Target{Purpose: Control}); err == nil ||
		!strings.Contains(err.Error(), "did not prove") {
		t.Errorf("a replayed verdict: %v", err)
	}
}

// relay carries bytes both ways, and changes the first message of the dialer.
func relay(dialer, listener net.Conn, change func([]byte)) {
	go func() {
		b := make([]byte, helloSize)
		if _, err := io.ReadFull(dialer, b); err != nil {
			return
		}
		change(b)
		_, _ = listener.Write(b)
		_, _ = io.Copy(listener, dialer)
	}()
	go func() {
		_, _ = io.Copy(dialer, listener)
		_ = dialer.Close()
	}()
}

// Who stands between two workers can neither send one to another rank, nor turn
// it into another one, nor change what the connection is for.
func TestRelay(t *testing.T) {
	for name, change := range map[string]func([]byte){
		"rank":        func(b []byte) { b[48] = 3 },
		"world":       func(b []byte) { b[52] = 5 },
		"peer":        func(b []byte) { b[56] = 1 },
		"mesh":        func(b []byte) { b[60] = 9 },
		"purpose":     func(b []byte) { b[5] = uint8(linkPurpose) },
		"nonce":       func(b []byte) { b[20] ^= 1 },
		"certificate": func(b []byte) { b[70] ^= 1 },
	} {
		a, b := sockets(t, "tcp")
		c, d := sockets(t, "tcp")
		relay(b, c, change)
		done := admit(identity(t, token, 1, 4, false), d, links)
		_, err := identity(t, token, 2, 4, false).Dial(a, Target{Purpose: Control, Peer: 0})
		if got := <-done; err == nil || got.err == nil {
			t.Errorf("%s: %v, %v", name, err, got.err)
		}
	}
}

// With TLS the handshake belongs to the proof: one that is spliced to the proof
// of another connection of the same two workers fails, as do other certificates.
func TestTLSIsBoundToTheProof(t *testing.T) {
	us, them := identity(t, token, 0, 2, true), identity(t, token, 1, 2, true)
	for name, c := range map[string]struct {
		client, server *Identity
		to, from       string
	}{
		"the same":               {them, us, "sar-1", "sar-1"},
		"another proof":          {them, us, "sar-1", "sar-2"},
		"another client":         {identity(t, token, 1, 2, true), us, "sar-1", "sar-1"},
		"another server":         {them, identity(t, token, 0, 2, true), "sar-1", "sar-1"},
		"no proof at the server": {them, us, "sar-1", ""},
	} {
		dialer, listener := sockets(t, "tcp")
		server := make(chan error, 1)
		go func() {
			config := c.server.tls.config(them.Certificate(), c.from)
			if c.from == "" {
				config.NextProtos = nil
			}
			s := tls.Server(listener, config)
			err := s.Handshake()
			if err == nil {
				_, err = s.Write([]byte("x"))
			} else {
				_ = listener.Close()
			}
			server <- err
		}()
		s, err := c.client.tls.secure(dialer, tls.Client, us.Certificate(), c.to)
		if err == nil {
			_, err = io.ReadFull(s, make([]byte, 1))
		}
		if err != nil {
			_ = dialer.Close()
		}
		if fails := <-server != nil || err != nil; fails == (name == "the same") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A worker's certificate is the one that everybody was told of.
func TestPinned(t *testing.T) {
	dialer, listener := sockets(t, "tcp")
	admit(identity(t, token, 0, 2, true), listener, links)
	other := identity(t, token, 0, 2, true).Certificate()
	if _, err := identity(t, token, 1, 2, true).Dial(dialer, Target{Purpose: Control, Certificate: other}); err == nil ||
		!strings.Contains(err.Error(), "another certificate") {
		t.Error(err)
	}
}

func TestStrangeListener(t *testing.T) {
	dialer, listener := sockets(t, "tcp")
	go func() { _, _ = io.WriteString(listener, "220 mail.example.org ESMTP") }()
	if _, err := identity(t, token, 0, 2, false).Dial(dialer, Target{Purpose: Calls}); err != ErrStranger {
		t.Error(err)
	}
}
