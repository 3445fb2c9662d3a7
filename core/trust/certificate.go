package trust

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"
)

// certificate is what a worker makes when it starts and forgets when it ends.
// Nobody signs it: it is believed because its fingerprint was part of a proof.
type certificate struct {
	pair  tls.Certificate
	print [sha256.Size]byte
}

func newCertificate() (*certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	// Nobody looks at the dates, so clocks need not agree.
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1<<32, 0)}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("making a certificate: %w", err)
	}
	return &certificate{pair: tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}, print: sha256.Sum256(raw)}, nil
}

// transcript names one exchange of hello and challenge. Both sides must offer it
// as the application protocol (ALPN) of the TLS connection: so the handshake is
// bound to this proof, and cannot be spliced to another connection of the same
// two workers.
func transcript(hello, challenge []byte) string {
	h := sha256.New()
	h.Write(hello)
	h.Write(challenge)
	return "sar-" + hex.EncodeToString(h.Sum(nil))
}

func (c *certificate) config(theirs [sha256.Size]byte, transcript string) *tls.Config {
	return &tls.Config{
		Certificates: []tls.Certificate{c.pair}, MinVersion: tls.VersionTLS13, NextProtos: []string{transcript},
		ClientAuth: tls.RequireAnyClientCert, SessionTicketsDisabled: true, DynamicRecordSizingDisabled: true,
		InsecureSkipVerify: true, // VerifyConnection is stricter: it accepts one certificate
		VerifyConnection: func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) == 0 || sha256.Sum256(s.PeerCertificates[0].Raw) != theirs {
				return errors.New("the certificate is not the one that was proved")
			}
			if s.NegotiatedProtocol != transcript {
				return errors.New("the handshake belongs to another proof")
			}
			return nil
		},
	}
}

// secure runs the handshake of one side, tls.Client or tls.Server, under the connection's deadline.
func (c *certificate) secure(conn net.Conn, side func(net.Conn, *tls.Config) *tls.Conn, theirs [sha256.Size]byte,
	transcript string) (net.Conn, error) {
	b := newBatch(conn)
	made := side(b, c.config(theirs, transcript))
	if err := made.Handshake(); err != nil {
		return nil, fmt.Errorf("TLS handshake: %w", err)
	}
	return &encrypted{Conn: made, batch: b}, nil
}
