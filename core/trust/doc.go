// Package trust lets the workers of one job in, and nobody else.
//
// A job has a token, a secret that all its workers are given. Whoever connects
// and whoever is connected to prove to each other that they know it, before
// either believes another byte (Identity.Dial, Gate). The token itself never
// travels.
//
//	dialer                                            listener
//	  hello:  purpose, ranks, world, mesh, nonce D  ->
//	                            <-  challenge: nonce L
//	  proof D = HMAC(key, hello, challenge)         ->  checks it
//	        checks it  <-  verdict, HMAC(key, hello, challenge, proof D, verdict)
//	  with TLS: the handshake, in which each side accepts one certificate alone,
//	  the one whose fingerprint the other side's part of the proof carried
//
// All four messages have a fixed size. The nonces make a recorded proof
// worthless. The ranks, the size of the world and the purpose are part of what
// is proved, so a proof that is relayed to another rank, or meant for another
// kind of connection, is worthless too.
//
// The first two messages carry a fingerprint of the token. It is no secret: it
// lets a worker of another job be refused with an error that says so.
//
// Without TLS the bytes after the proof are neither hidden nor protected: who
// controls a router on the way can read and change them. docs/security.md has
// the whole threat model.
package trust
