package trust

import (
	"crypto/hmac"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
)

// Policy says whom a listener lets in among those who know the token.
type Policy struct {
	Purposes []Purpose
	AnyWorld []Purpose // taken from workers with another world size too: the caller tells them so
}

func (p Policy) takes(purpose Purpose) bool {
	return slices.Contains(p.Purposes, purpose) || slices.Contains(p.AnyWorld, purpose)
}

var (
	errNotSAR    = errors.New("no worker of SAR")
	errRefused   = errors.New("refused")
	errUnproven  = errors.New("the proof is wrong")
	errOtherJob  = errors.New("a worker of another job")
	errOtherUser = errors.New("a process of another user")
)

// Admit is the other side of Dial, for a connection that did not come through a Gate.
func (id *Identity) Admit(conn net.Conn, p Policy) (net.Conn, Claim, error) {
	return id.admit(conn, p, func() {})
}

// admit is the listener's side of Dial. spoke is called when the dialer's first
// message is one of this job, which is no proof of anything.
func (id *Identity) admit(conn net.Conn, p Policy, spoke func()) (net.Conn, Claim, error) {
	none := Claim{}
	if err := sameUser(conn); err != nil {
		return nil, none, err
	}
	got, hello, ok, err := read(conn, helloMagic)
	if err != nil {
		return nil, none, err
	}
	if !ok {
		return nil, none, errNotSAR
	}
	encrypted := id.tls != nil && !isUnix(conn)
	answer := id.firstLook(&hello, encrypted)
	challenge := id.begin(challengeMagic, uint8(answer), encrypted)
	sent := challenge.encode()
	if _, err := conn.Write(sent); err != nil {
		return nil, none, err
	}
	switch answer {
	case welcome:
		spoke()
	case otherJob:
		return nil, none, errOtherJob
	default:
		return nil, none, errRefused
	}
	var proof [proofSize]byte
	if _, err := io.ReadFull(conn, proof[:]); err != nil {
		return nil, none, err
	}
	if !hmac.Equal(proof[:], id.dialerProof(got, sent)) {
		return nil, none, errUnproven
	}
	var head [8]byte
	code, detail := id.verdict(&hello, p)
	binary.LittleEndian.PutUint32(head[:], uint32(code))
	binary.LittleEndian.PutUint32(head[4:], detail)
	if _, err := conn.Write(append(head[:], id.listenerProof(got, sent, proof[:], head[:])...)); err != nil {
		return nil, none, err
	}
	if code != welcome {
		return nil, none, errRefused
	}
	claim := Claim{Purpose: Purpose(hello.Code), Rank: int(hello.Rank), World: int(hello.World), Mesh: hello.Mesh,
		Certificate: hello.Certificate}
	if encrypted {
		conn, err = id.tls.secure(conn, tls.Server, hello.Certificate, transcript(got, sent))
	}
	return conn, claim, err
}

// firstLook answers what is no secret.
func (id *Identity) firstLook(hello *message, encrypted bool) status {
	switch {
	case hello.Version != Version:
		return badVersion
	case hello.Job != id.Job.print:
		return otherJob
	case hello.TLS != encrypted:
		return badTLS
	}
	return welcome
}

// verdict judges a dialer that knows the token.
func (id *Identity) verdict(hello *message, p Policy) (status, uint32) {
	switch {
	case !p.takes(Purpose(hello.Code)):
		return badPurpose, 0
	case int64(hello.Peer) != int64(id.Rank):
		return badPeer, uint32(id.Rank)
	case slices.Contains(p.AnyWorld, Purpose(hello.Code)):
		return welcome, 0
	case int64(hello.World) != int64(id.World), hello.Rank >= hello.World:
		return badWorld, uint32(id.World)
	}
	return welcome, 0
}
