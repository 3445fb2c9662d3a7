package trust

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"io"
	"net"
)

// The first 16 bytes of hello and challenge keep their layout in every version,
// so that workers of two versions can tell each other so.
//
//	hello and challenge, 96 bytes, little-endian
//	 0  u32   magic "SARP" (hello) or "SARC" (challenge)
//	 4  u8    version
//	 5  u8    hello: purpose. Challenge: status
//	 6  u8    1 where TLS follows
//	 7  u8    zero
//	 8  [8]   fingerprint of the job
//	16  [32]  nonce
//	48  u32   rank of the sender
//	52  u32   number of ranks
//	56  u32   hello: the rank that it wants to reach. Challenge: zero
//	60  u32   hello: mesh. Challenge: zero
//	64  [32]  SHA-256 of the sender's certificate, zero without TLS
//
//	proof, 32 bytes: the dialer's MAC
//
//	verdict, 40 bytes
//	 0  u32   status
//	 4  u32   what the status is about
//	 8  [32]  the listener's MAC
const (
	helloSize   = 96
	proofSize   = sha256.Size
	verdictSize = 8 + sha256.Size

	helloMagic     = 'S' | 'A'<<8 | 'R'<<16 | 'P'<<24
	challengeMagic = 'S' | 'A'<<8 | 'R'<<16 | 'C'<<24

	// Version is that of the messages of this package.
	Version = 1
)

// Purpose is what a connection is for. Each transport numbers its own: 1 is tcp's, 2 is
// shm's, 5 that of all libraries (transport/foreign), from 6 on they are free.
type Purpose uint8

// The purposes that are no link's.
const (
	Control Purpose = 3 // a control connection between two ranks
	Calls   Purpose = 4 // calls to rank 0
)

// status is the listener's answer.
type status uint8

const (
	welcome    status = iota
	otherJob          // the fingerprints differ
	badVersion        // the versions differ
	badTLS            // one side wants TLS and the other does not
	badPeer           // the listener has another rank than the dialer wants; detail: its rank
	badWorld          // the sizes of the world differ; detail: the listener's
	badPurpose        // the listener takes no such connections
)

// message is a hello or a challenge, laid out as above.
type message struct {
	Magic       uint32
	Version     uint8
	Code        uint8 // purpose or status
	TLS         bool
	_           uint8
	Job         Fingerprint
	Nonce       [32]byte
	Rank, World uint32
	Peer, Mesh  uint32
	Certificate [sha256.Size]byte
}

func (m *message) encode() []byte {
	b, err := binary.Append(nil, binary.LittleEndian, m)
	if err != nil {
		panic(err) // it is of fixed size
	}
	return b
}

// decode reads what encode has written. A message of another version is decoded
// as far as its layout is known. ok is false for what is no message at all.
func decode(b []byte, magic uint32) (m message, ok bool) {
	n, err := binary.Decode(b, binary.LittleEndian, &m)
	if err != nil || n != len(b) || m.Magic != magic {
		return message{}, false
	}
	if m.Version != Version {
		return message{Magic: m.Magic, Version: m.Version, Code: m.Code, TLS: m.TLS, Job: m.Job}, true
	}
	return m, b[6] <= 1 && b[7] == 0
}

// read reads a hello or a challenge, and of what does not begin as one 4 bytes, since no more may come. ok is
// false for that.
func read(conn net.Conn, magic uint32) (raw []byte, m message, ok bool, err error) {
	raw = make([]byte, helloSize)
	if _, err := io.ReadFull(conn, raw[:4]); err != nil || binary.LittleEndian.Uint32(raw) != magic {
		return nil, m, false, err
	}
	if _, err := io.ReadFull(conn, raw[4:]); err != nil {
		return nil, m, false, err
	}
	m, ok = decode(raw, magic)
	return raw, m, ok, nil
}

// begin makes this worker's hello or challenge.
func (id *Identity) begin(magic uint32, code uint8, encrypted bool) message {
	m := message{Magic: magic, Version: Version, Code: code, TLS: encrypted, Job: id.Job.print,
		Rank: uint32(id.Rank), World: uint32(id.World)}
	if encrypted {
		m.Certificate = id.tls.print
	}
	rand.Read(m.Nonce[:])
	return m
}

func (id *Identity) dialerProof(hello, challenge []byte) []byte {
	return mac(id.Job.key[:], "sar proof of the dialer", hello, challenge)
}

func (id *Identity) listenerProof(hello, challenge, proof, head []byte) []byte {
	return mac(id.Job.key[:], "sar proof of the listener", hello, challenge, proof, head)
}
