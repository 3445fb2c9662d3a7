package comm

import (
	"errors"
	"io"
	"net"
	"strings"
	"testing"
)

// arrived is a connection on which a stream has arrived.
type arrived struct {
	net.Conn
	*strings.Reader
}

func (a arrived) Read(b []byte) (int, error) { return a.Reader.Read(b) }

func readBounded(stream string) error {
	_, err := io.Copy(io.Discard, struct{ io.Reader }{&bounded{Conn: arrived{Reader: strings.NewReader(stream)},
		first: true}})
	return err
}

func TestBoundedStopsAtLongMessages(t *testing.T) {
	for stream, ok := range map[string]bool{
		"\x00\x05hello\x01x": true,
		"\x00\xfe\x01\x00" + strings.Repeat("x", 256) + "\x03abc": true,
		"\x00\xfc\x7f\xff\xff\xff":                                false, // 2^31 bytes
		"\x00\x05hello\xfd\xff\xff\xff":                           false,
		"\x00\x81" + strings.Repeat("1", 200):                     false, // a length of 127 bytes
		"\x01\x05hello":                                           false, // compressed
	} {
		if err := readBounded(stream); (err == nil) != ok {
			t.Errorf("%.20q: %v", stream, err)
		}
	}
}

// Any stream is read to its end or refused.
func FuzzBounded(f *testing.F) {
	f.Add("\x00\x05hello\x01x")
	f.Add("\x00\xfe\x01\x00abc")
	f.Add("\x00\xf8\xff\xff\xff\xff\xff\xff\xff\xff")
	f.Fuzz(func(t *testing.T, stream string) {
		if err := readBounded(stream); err != nil && !errors.Is(err, errTooLong) && !errors.Is(err, errCompressed) {
			t.Error(err)
		}
	})
}
