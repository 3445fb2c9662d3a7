package comm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/gorpc"

	"sar/core/internal/limits"
	"sar/core/trust"
)

// Calls of the rendezvous travel by gorpc, which encodes with gob, over connections that
// have proved that they belong to the job. Nothing longer than maxMessage is
// read, and nothing that is compressed: gorpc leaves compression to the client,
// and a few bytes that decompress to gigabytes cost rank 0 those.

const (
	maxMessage = 4 << 20
	// quietTime ends a connection on which nothing is asked: workers call again and
	// again (patience), and one that was stopped connects again.
	quietTime = 60 * time.Second
	// stuckTime ends a connection whose other end does not read.
	stuckTime = 20 * time.Second
)

// refusal is the reply to a call that cannot be served.
type refusal struct{ Text string }

func init() {
	for _, t := range []any{&joinRequest{}, &joinReply{}, &refusal{}} {
		gorpc.RegisterType(t)
	}
	gorpc.SetErrorLogger(gorpc.NilErrorLogger)
}

// bounded reads a stream of gob messages and stops at one that is too long.
type bounded struct {
	net.Conn
	first bool          // gorpc's first byte, 0 where nothing is compressed, is still to come
	idle  time.Duration // within which something must come, 0: no limit
	left  uint64        // of the current message
	count int           // bytes of its length still to come
}

var (
	errTooLong    = errors.New("message is longer than the protocol allows")
	errCompressed = errors.New("calls must not be compressed")
)

func (b *bounded) Write(p []byte) (int, error) {
	_ = b.SetWriteDeadline(time.Now().Add(stuckTime))
	return b.Conn.Write(p)
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.idle > 0 {
		_ = b.SetReadDeadline(time.Now().Add(b.idle))
	}
	n, err := b.Conn.Read(p)
	for data := p[:n]; len(data) > 0; {
		switch {
		case b.first:
			if data[0] != 0 {
				return 0, errCompressed
			}
			b.first = false
			data = data[1:]
		case b.count > 0: // a length is big-endian
			b.left = b.left<<8 | uint64(data[0])
			b.count--
			data = data[1:]
			if b.left > maxMessage {
				return 0, errTooLong
			}
		case b.left > 0:
			k := min(b.left, uint64(len(data)))
			b.left -= k
			data = data[k:]
		case data[0] < 0x80: // a length below 128 is one byte
			b.left = uint64(data[0])
			data = data[1:]
		default: // otherwise the negated number of bytes that follow
			if b.count = -int(int8(data[0])); b.count > 8 {
				return 0, errTooLong
			}
			data = data[1:]
		}
	}
	return n, err
}

// server is rank 0's end.
type server struct {
	rpc    *gorpc.Server
	proven chan proven
	mu     sync.Mutex
	conns  map[net.Conn]struct{}
	done   chan struct{} // closed by stop
}

// proven is a connection of a worker of this job.
type proven struct {
	net.Conn
	caller string
}

// caller names who has proved what to gorpc, which hands it to the handler.
func caller(rank, world int) string { return fmt.Sprintf("%d/%d", rank, world) }

// serve answers the calls on connections that take is handed.
func serve(handle func(caller string, request any) any) (*server, error) {
	s := &server{proven: make(chan proven), conns: map[net.Conn]struct{}{}, done: make(chan struct{})}
	s.rpc = &gorpc.Server{
		Listener: s, LogError: gorpc.NilErrorLogger, Handler: handle,
		PendingResponses: 64, SendBufferSize: 4096, RecvBufferSize: 4096,
	}
	return s, s.rpc.Start()
}

// take hands a proven connection to gorpc. It may be of a worker with another
// world size, whom join tells so.
func (s *server) take(conn net.Conn, c trust.Claim) {
	select {
	case s.proven <- proven{conn, caller(c.Rank, c.World)}:
	case <-s.done:
		_ = conn.Close()
	}
}

// Init, Accept, Close and ListenAddr make the server gorpc's listener.
func (s *server) Init(string) error    { return nil }
func (s *server) ListenAddr() net.Addr { return nil }
func (s *server) Close() error         { return nil }

func (s *server) Accept() (io.ReadWriteCloser, string, error) {
	select {
	case p := <-s.proven:
		s.mu.Lock()
		s.conns[p.Conn] = struct{}{}
		s.mu.Unlock()
		return &bounded{Conn: &tracked{p.Conn, s}, first: true, idle: quietTime}, p.caller, nil
	case <-s.done:
		return nil, "", net.ErrClosed
	}
}

// tracked leaves the server's list when it is closed.
type tracked struct {
	net.Conn
	s *server
}

func (t *tracked) Close() error {
	t.s.mu.Lock()
	delete(t.s.conns, t.Conn)
	t.s.mu.Unlock()
	return t.Conn.Close()
}

// stop ends the server and its connections.
func (s *server) stop() {
	close(s.done)
	s.mu.Lock()
	for c := range s.conns {
		_ = c.Close()
	}
	s.mu.Unlock()
	s.rpc.Stop()
}

// client is the end of the other ranks.
type client struct {
	addr    string
	id      *trust.Identity
	rpc     *gorpc.Client
	ctx     context.Context
	cancel  context.CancelFunc
	last    atomic.Pointer[error] // why it is not connected
	final   chan struct{}         // closed when last will not change
	once    sync.Once
	stopped sync.Once
}

// connect starts to reach the server and goes on whenever the connection ends,
// until stop.
func connect(addr string, id *trust.Identity, timeout time.Duration) *client {
	c := &client{addr: addr, id: id, final: make(chan struct{})}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.rpc = &gorpc.Client{
		Addr: addr, Dial: c.dial, LogError: gorpc.NilErrorLogger, DisableCompression: true,
		PendingRequests: 64, SendBufferSize: 4096, RecvBufferSize: 4096, RequestTimeout: timeout,
	}
	c.rpc.Start()
	return c
}

const (
	// redialTime is between two attempts, and also before the first of a new
	// connection, so that a server that hangs up at once is not hammered.
	redialTime = 50 * time.Millisecond
	// otherJobTime is how long another job at the master's address is given to
	// end: it may be the run before this one.
	otherJobTime = 3 * time.Second
)

// dial is called by gorpc from one goroutine and returns when connected or stopped.
func (c *client) dial(string) (io.ReadWriteCloser, error) {
	var since time.Duration // another job has answered since
	for {
		conn, err := c.reach()
		if err == nil {
			c.last.Store(nil)
			return &bounded{Conn: conn}, nil
		}
		if c.ctx.Err() == nil {
			c.last.Store(&err)
		}
		var no *trust.Refused
		switch isNo := errors.As(err, &no); {
		case errors.Is(err, trust.ErrStranger), isNo && !no.OtherJob, isNo && since > 0 && now()-since > otherJobTime:
			c.once.Do(func() { close(c.final) })
		case isNo && since == 0:
			since = now()
		case !isNo:
			since = 0
		}
		select {
		case <-c.ctx.Done():
			return nil, c.ctx.Err()
		case <-time.After(redialTime):
		}
	}
}

// reach makes one attempt.
func (c *client) reach() (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: trust.ProofTime}).DialContext(c.ctx, "tcp", c.addr)
	if err != nil {
		return nil, limits.Explain(err)
	}
	stop := context.AfterFunc(c.ctx, func() { _ = conn.Close() })
	defer stop()
	_ = conn.SetDeadline(time.Now().Add(trust.ProofTime))
	proven, err := c.id.Dial(conn, trust.Target{Purpose: trust.Calls})
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return proven, proven.SetDeadline(time.Time{})
}

// why is the reason that there is no connection, nil where there may be one.
func (c *client) why() error {
	if e := c.last.Load(); e != nil {
		return *e
	}
	return nil
}

// stop ends the connection and the attempts to have one. It may be called again.
func (c *client) stop() {
	c.stopped.Do(func() {
		c.cancel()
		c.rpc.Stop()
	})
}

// join calls rank 0. It answers at once without patience, else when there is news. Unlike gorpc's
// own calls this one ends at once when c is stopped.
func (c *client) join(r joinRequest, patience time.Duration) (none joinReply, err error) {
	r.Patience = max(0, patience)
	timeout := r.Patience + time.Second
	result, err := c.rpc.CallAsync(&r)
	if err != nil {
		return none, err
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-result.Done:
	case <-timer.C:
		result.Cancel()
		return none, fmt.Errorf("no answer from rank 0 at %s within %g s", c.addr, timeout.Seconds())
	case <-c.final:
		result.Cancel()
		return none, errors.New("the connection was refused")
	case <-c.ctx.Done():
		return none, c.ctx.Err()
	}
	if result.Error != nil {
		return none, result.Error
	}
	switch r := result.Response.(type) {
	case *joinReply:
		return *r, nil
	case *refusal:
		return none, errors.New(r.Text)
	default:
		return none, fmt.Errorf("rank 0 answered with %T", r)
	}
}
