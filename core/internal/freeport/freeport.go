// Package freeport finds ports for tests.
package freeport

import (
	"fmt"
	"math/rand/v2"
	"net"
)

// Ports below those that Linux gives to outgoing connections (from 32768 on): one of
// these could be taken by a connection between the search and its use.
const first, last = 20000, 29999

// Find returns a TCP port of the loopback that nothing listens on. It panics if
// there is none.
func Find() int {
	var err error
	for range 100 {
		var l net.Listener
		port := first + rand.IntN(last-first+1)
		if l, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			_ = l.Close()
			return port
		}
	}
	panic(err)
}
