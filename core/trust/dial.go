package trust

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
)

// Target is whom a dialer wants to reach, and what for.
type Target struct {
	Purpose     Purpose
	Peer        int
	Mesh        uint32            // of a link or a control connection
	Certificate [sha256.Size]byte // with TLS: the peer's, zero where it is not known yet
}

// Claim is what a dialer has proved besides knowing the token.
type Claim struct {
	Purpose     Purpose
	Rank, World int
	Mesh        uint32
	Certificate [sha256.Size]byte // zero where the connection is not encrypted
}

// ErrStranger is returned where what answers does not speak this protocol.
var ErrStranger = errors.New("what answers there is not a SAR worker")

// Refused is a listener's no, which trying again does not change.
type Refused struct {
	Ours, Theirs Fingerprint // where the jobs differ
	text         string
	OtherJob     bool // the listener belongs to another job
}

func (e *Refused) Error() string { return e.text }

// Dial proves this worker's identity over conn, which it has just opened, and
// has the listener prove its own. What it returns carries what follows. Errors
// other than *Refused and ErrStranger may pass: the listener may have had too
// many connections. The caller bounds the time by a deadline of conn, and closes
// conn after an error.
func (id *Identity) Dial(conn net.Conn, to Target) (net.Conn, error) {
	if err := sameUser(conn); err != nil {
		return nil, err
	}
	encrypted := id.tls != nil && !isUnix(conn)
	hello := id.begin(helloMagic, uint8(to.Purpose), encrypted)
	hello.Peer, hello.Mesh = uint32(to.Peer), to.Mesh
	sent := hello.encode()
	if _, err := conn.Write(sent); err != nil {
		return nil, proving(err)
	}
	got, challenge, ok, err := read(conn, challengeMagic)
	if err != nil {
		return nil, proving(err)
	}
	if !ok {
		return nil, ErrStranger
	}
	if err := id.judge(&hello, &challenge); err != nil {
		return nil, err
	}
	proof := id.dialerProof(sent, got)
	if _, err := conn.Write(proof); err != nil {
		return nil, proving(err)
	}
	var verdict [verdictSize]byte
	if _, err := io.ReadFull(conn, verdict[:]); err != nil {
		return nil, proving(err)
	}
	if !hmac.Equal(verdict[8:], id.listenerProof(sent, got, proof, verdict[:8])) {
		return nil, fmt.Errorf("what answers did not prove that it knows the job token")
	}
	code, detail := binary.LittleEndian.Uint32(verdict[:]), binary.LittleEndian.Uint32(verdict[4:])
	if code != uint32(welcome) {
		return nil, id.explain(status(code), detail, to.Peer)
	}
	if encrypted {
		if to.Certificate != [sha256.Size]byte{} && to.Certificate != challenge.Certificate {
			return nil, fmt.Errorf("rank %d has another certificate than rank 0 told of", to.Peer)
		}
		return id.tls.secure(conn, tls.Client, challenge.Certificate, transcript(sent, got))
	}
	return conn, nil
}

// proving says during what a connection ended.
func proving(err error) error { return fmt.Errorf("while proving the job token: %w", err) }

// judge says what a challenge refuses, before anything is proved.
func (id *Identity) judge(hello, challenge *message) error {
	switch {
	case challenge.Version != Version || status(challenge.Code) == badVersion:
		return &Refused{text: fmt.Sprintf("it speaks version %d of the protocol and this rank version %d: install one "+
			"version of SAR on every worker",
			challenge.Version, Version)}
	case challenge.Job != hello.Job || status(challenge.Code) == otherJob:
		return &Refused{Ours: hello.Job, Theirs: challenge.Job, OtherJob: true, text: fmt.Sprintf(
			"it belongs to another job (job %s, this worker is of job %s)", challenge.Job, hello.Job)}
	case challenge.TLS != hello.TLS || status(challenge.Code) == badTLS:
		return &Refused{text: fmt.Sprintf("it runs %s TLS and this rank %s: set SAR_TLS to the same value on every worker",
			with(challenge.TLS), with(hello.TLS))}
	case status(challenge.Code) != welcome:
		return &Refused{text: fmt.Sprintf("it answered %d, which this version does not know", challenge.Code)}
	}
	return nil
}

func with(yes bool) string {
	if yes {
		return "with"
	}
	return "without"
}

// explain says what a proven listener refuses.
func (id *Identity) explain(code status, detail uint32, peer int) error {
	switch code {
	case badPeer:
		return &Refused{text: fmt.Sprintf("rank %d answers where rank %d was expected", detail, peer)}
	case badWorld:
		return &Refused{text: fmt.Sprintf("rank %d did not expect rank %d of %d, its world size is %d: start every worker "+
			"with one world size and a rank of its own",
			peer, id.Rank, id.World, detail)}
	case badPurpose:
		return &Refused{text: fmt.Sprintf("rank %d takes no such connection there", peer)}
	}
	return &Refused{text: fmt.Sprintf("rank %d answered %d", peer, code)}
}
