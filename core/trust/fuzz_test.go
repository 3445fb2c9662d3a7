package trust

import (
	"bytes"
	"net"
	"testing"
)

// Everything that the parsers take is what encode writes.
func FuzzMessage(f *testing.F) {
	id := identity(f, token, 1, 2, false)
	for _, magic := range []uint32{helloMagic, challengeMagic} {
		m := id.begin(magic, uint8(Control), false)
		f.Add(m.encode())
	}
	f.Add([]byte("GET / HTTP/1.1\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, magic := range []uint32{helloMagic, challengeMagic} {
			m, ok := decode(b, magic)
			if !ok || m.Version != Version {
				continue
			}
			if string(m.encode()) != string(b) {
				t.Errorf("%x became %x", b, m.encode())
			}
		}
	})
}

// script is a connection whose other end has said all that it will say.
type script struct {
	net.Conn
	bytes.Reader
	written int
}

func says(b []byte) *script {
	s := new(script)
	s.Reset(b)
	return s
}

func (s *script) Read(p []byte) (int, error) { return s.Reader.Read(p) }

func (s *script) Write(p []byte) (int, error) {
	s.written += len(p)
	return len(p), nil
}

// Whatever a stranger sends, it is not let in, and is answered with a challenge
// at most.
func FuzzAdmit(f *testing.F) {
	us, them := identity(f, token, 0, 2, false), identity(f, token, 1, 2, false)
	hello := them.begin(helloMagic, uint8(Control), false)
	f.Add(append(hello.encode(), make([]byte, proofSize)...))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, sent []byte) {
		c := says(sent)
		_, claim, err := us.admit(c, links, func() {})
		if err == nil || c.written > helloSize || len(sent)-c.Len() > helloSize+proofSize {
			t.Errorf("let in as %+v, after %d bytes, of %d answered: %v", claim, len(sent)-c.Len(), c.written, err)
		}
	})
}

// Whatever a listener answers, a dialer does not take it for a rank of its job.
func FuzzDial(f *testing.F) {
	us, them := identity(f, token, 0, 2, false), identity(f, token, 1, 2, false)
	challenge := us.begin(challengeMagic, 0, false)
	f.Add(append(challenge.encode(), make([]byte, verdictSize)...))
	challenge.Code = uint8(otherJob)
	f.Add(challenge.encode())
	f.Add([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
	f.Fuzz(func(t *testing.T, answer []byte) {
		c := says(answer)
		if _, err := them.Dial(c, Target{Purpose: Control}); err == nil || c.written > helloSize+proofSize {
			t.Errorf("%x was believed: %v", answer, err)
		}
	})
}
