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
)

// Control calls travel by gorpc, which encodes with gob. A connection begins
// with a greeting of each side, so that whatever else listens on a port or
// knocks at ours is recognized; after it nothing longer than maxMessage is read.

const (
	greeting   = "SARrpc01"
	greetTime  = 10 * time.Second
	maxMessage = 4 << 20
)

// refusal is the reply to a call that cannot be served.
type refusal struct{ Text string }

func init() {
	for _, t := range []any{&joinRequest{}, &joinReply{}, &meetRequest{}, &meetReply{}, &beatRequest{}, &beatReply{}, &refusal{}} {
		gorpc.RegisterType(t)
	}
	gorpc.SetErrorLogger(gorpc.NilErrorLogger)
}

// bounded reads a stream of gob messages and stops at one that is too long.
type bounded struct {
	net.Conn
	skip  int    // bytes before the first message
	left  uint64 // of the current message
	count int    // bytes of its length still to come
}

var errTooLong = errors.New("message is longer than the protocol allows")

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.Conn.Read(p)
	for data := p[:n]; len(data) > 0; {
		switch {
		case b.skip > 0:
			b.skip--
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
	rpc      *gorpc.Server
	listener net.Listener
	mu       sync.Mutex
	conns    map[net.Conn]struct{}
	closed   bool
}

func serve(l net.Listener, handle func(request any) any) (*server, error) {
	s := &server{listener: l, conns: map[net.Conn]struct{}{}}
	s.rpc = &gorpc.Server{
		Addr: l.Addr().String(), Listener: s, LogError: gorpc.NilErrorLogger,
		OnConnect:        s.greet,
		Handler:          func(_ string, request any) any { return handle(request) },
		PendingResponses: 64, SendBufferSize: 4096, RecvBufferSize: 4096,
	}
	if err := s.rpc.Start(); err != nil {
		return nil, err
	}
	return s, nil
}

// Init, Accept, Close and ListenAddr make the server gorpc's listener.
func (s *server) Init(string) error    { return nil }
func (s *server) ListenAddr() net.Addr { return s.listener.Addr() }
func (s *server) Close() error         { return s.listener.Close() }

func (s *server) Accept() (io.ReadWriteCloser, string, error) {
	conn, err := s.listener.Accept()
	if err != nil {
		return nil, "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = conn.Close()
		return nil, "", net.ErrClosed
	}
	s.conns[conn] = struct{}{}
	return &tracked{conn, s}, conn.RemoteAddr().String(), nil
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

func (s *server) greet(_ string, rwc io.ReadWriteCloser) (io.ReadWriteCloser, error) {
	conn := rwc.(*tracked)
	_ = conn.SetDeadline(time.Now().Add(greetTime))
	if _, err := io.WriteString(conn, greeting); err != nil {
		return nil, err
	}
	if err := readGreeting(conn); err != nil {
		return nil, err
	}
	return &bounded{Conn: conn, skip: 1}, conn.SetDeadline(time.Time{}) // gorpc's first byte is about compression
}

func readGreeting(conn net.Conn) error {
	b := make([]byte, len(greeting))
	if _, err := io.ReadFull(conn, b); err != nil {
		return err
	}
	if string(b) != greeting {
		return errStrangeServer
	}
	return nil
}

var errStrangeServer = errors.New("what answers there is not a SAR worker")

// stop ends the server and its connections.
func (s *server) stop() {
	s.mu.Lock()
	s.closed = true
	for c := range s.conns {
		_ = c.Close()
	}
	s.mu.Unlock()
	s.rpc.Stop()
}

// client is the end of the other ranks. It is a coordinator.
type client struct {
	addr    string
	rpc     *gorpc.Client
	timeout time.Duration
	ctx     context.Context
	cancel  context.CancelFunc
	last    atomic.Pointer[error] // why it is not connected
	strange chan struct{}         // closed when something else than SAR answers
	once    sync.Once
	stopped sync.Once
}

// connect starts to reach the server and goes on whenever the connection ends,
// until stop.
func connect(addr string, timeout time.Duration) *client {
	c := &client{addr: addr, timeout: timeout, strange: make(chan struct{})}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.rpc = &gorpc.Client{
		Addr: addr, Dial: c.dial, LogError: gorpc.NilErrorLogger, DisableCompression: true,
		PendingRequests: 64, SendBufferSize: 4096, RecvBufferSize: 4096, RequestTimeout: timeout,
	}
	c.rpc.Start()
	return c
}

// redialTime is between two attempts, and also before the first of a new
// connection, so that a server that hangs up at once is not hammered.
const redialTime = 50 * time.Millisecond

// dial is called by gorpc from one goroutine and returns when connected or stopped.
func (c *client) dial(string) (io.ReadWriteCloser, error) {
	for {
		conn, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(c.ctx, "tcp", c.addr)
		if err == nil {
			_ = conn.SetDeadline(time.Now().Add(greetTime))
			if _, err = io.WriteString(conn, greeting); err == nil {
				err = readGreeting(conn)
			}
			if err == nil {
				c.last.Store(nil)
				return &bounded{Conn: conn}, conn.SetDeadline(time.Time{})
			}
			_ = conn.Close()
			if errors.Is(err, errStrangeServer) {
				c.once.Do(func() { close(c.strange) })
			}
		}
		if c.ctx.Err() == nil {
			c.last.Store(&err)
		}
		select {
		case <-c.ctx.Done():
			return nil, c.ctx.Err()
		case <-time.After(redialTime):
		}
	}
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

// call makes one call. Unlike gorpc's own it ends at once when c is stopped.
func call[Reply any](c *client, request any, timeout time.Duration) (Reply, error) {
	var none Reply
	result, err := c.rpc.CallAsync(request)
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
	case <-c.ctx.Done():
		return none, c.ctx.Err()
	}
	if result.Error != nil {
		return none, result.Error
	}
	switch r := result.Response.(type) {
	case *Reply:
		return *r, nil
	case *refusal:
		return none, errors.New(r.Text)
	default:
		return none, fmt.Errorf("rank 0 answered with %T", r)
	}
}

func (c *client) meet(r meetRequest) (meetReply, error) { return call[meetReply](c, &r, c.timeout) }
func (c *client) beat(r beatRequest) (beatReply, error) { return call[beatReply](c, &r, c.timeout) }

func (c *client) join(r joinRequest, deadline time.Time) (joinReply, error) {
	return call[joinReply](c, &r, min(time.Second, max(redialTime, time.Until(deadline))))
}
