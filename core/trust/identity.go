package trust

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// MinToken is the length of the shortest token. A token that can be guessed
// can be guessed from a recorded proof.
const MinToken = 16

// Job is what a worker knows of the job it belongs to.
type Job struct {
	key   [sha256.Size]byte
	print Fingerprint
}

// Fingerprint names a job without giving its token away.
type Fingerprint [8]byte

func (f Fingerprint) String() string { return hex.EncodeToString(f[:4]) }

// NewJob makes a job of its token.
func NewJob(token string) (*Job, error) {
	if len(token) < MinToken {
		return nil, fmt.Errorf("the job token has %d characters, at least %d are needed: use random ones, as %s prints them",
			len(token), MinToken, MakeToken)
	}
	return derive("token", token), nil
}

// MakeToken is a command for error messages, which prints a token.
const MakeToken = `python -c "import secrets; print(secrets.token_hex(32))"`

// Insecure is the job that everybody belongs to who asks for no proof.
func Insecure() *Job { return derive("insecure", "") }

func derive(kind, token string) *Job {
	j := new(Job)
	copy(j.key[:], mac([]byte(token), "sar job key 1", []byte(kind)))
	copy(j.print[:], mac([]byte(token), "sar job fingerprint 1", []byte(kind)))
	return j
}

// mac is HMAC-SHA256 of a label and parts of fixed sizes.
func mac(key []byte, label string, parts ...[]byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(label))
	h.Write([]byte{0})
	for _, p := range parts {
		h.Write(p)
	}
	return h.Sum(nil)
}

// Identity is one worker of a job.
type Identity struct {
	Job         *Job
	Rank, World int
	tls         *certificate // nil: connections are not encrypted
}

// NewIdentity makes the identity of a worker; encrypted asks for TLS on every
// TCP connection.
func NewIdentity(job *Job, rank, world int, encrypted bool) (*Identity, error) {
	id := &Identity{Job: job, Rank: rank, World: world}
	if !encrypted {
		return id, nil
	}
	var err error
	id.tls, err = newCertificate()
	return id, err
}

// Certificate is the fingerprint of this worker's certificate, zero without TLS.
func (id *Identity) Certificate() [sha256.Size]byte {
	if id.tls == nil {
		return [sha256.Size]byte{}
	}
	return id.tls.print
}
