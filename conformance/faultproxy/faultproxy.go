// Package faultproxy is a TCP proxy that does to connections what networks do:
// it delays, cuts, refuses, and swallows one way or both in silence.
package faultproxy

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Mode is what the proxy does with connections and their bytes.
type Mode struct {
	fault string
	delay time.Duration
}

// Modes. A connection that has lost bytes is reset when the mode changes, since
// a stream with a hole in it is no fault that a network has.
var (
	Pass        = Mode{}
	Refuse      = Mode{fault: "refuse"}       // new connections are reset at once; present ones live on (see Cut)
	Reset       = Mode{fault: "reset"}        // connections are reset when bytes come through
	Blackhole   = Mode{fault: "blackhole"}    // nothing passes either way, not even the end of a connection
	DropReplies = Mode{fault: "drop replies"} // requests reach the server, its replies are lost
	HoldReplies = Mode{fault: "hold replies"} // requests reach the server, its replies wait for the next mode
)

// Delay passes everything on d later, each way.
func Delay(d time.Duration) Mode { return Mode{delay: d} }

// Proxy listens on a port and passes on to a server what comes there. Its methods may be called from
// any goroutine.
type Proxy struct {
	target   string
	listener *net.TCPListener
	requests atomic.Int64
	running  sync.WaitGroup

	mu      sync.Mutex
	mode    Mode
	changed chan struct{} // closed when mode changes
	pairs   map[*pair]struct{}
	closed  bool
}

// pair is one client's connection and the server's that belongs to it.
type pair struct {
	client, server *net.TCPConn
	open           atomic.Int32 // directions that have not ended
	lost           atomic.Bool  // bytes of a direction, or its proper end, were lost
	gone           chan struct{}
	once           sync.Once
}

// New starts a proxy before target, a host:port, on a free port of 127.0.0.1.
func New(target string) (*Proxy, error) { return Listen("127.0.0.1:0", target) }

// Listen is New on an address of the caller's.
func Listen(addr, target string) (*Proxy, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("fault proxy: %w", err)
	}
	p := &Proxy{target: target, listener: l.(*net.TCPListener), changed: make(chan struct{}), pairs: make(map[*pair]struct{})}
	p.running.Go(p.accept)
	return p, nil
}

// Addr is the host:port on which the proxy listens.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Requests is how many pieces clients have sent so far. A client that sends one
// request at a time sends one piece a request.
func (p *Proxy) Requests() int64 { return p.requests.Load() }

// SetMode changes what happens to all bytes that are not yet passed on.
func (p *Proxy) SetMode(m Mode) {
	p.mu.Lock()
	p.mode = m
	close(p.changed)
	p.changed = make(chan struct{})
	p.mu.Unlock()
	p.cut(func(c *pair) bool { return c.lost.Load() })
}

// Cut resets all live connections (RST, not FIN).
func (p *Proxy) Cut() { p.cut(func(*pair) bool { return true }) }

// Close stops listening, resets all connections and waits for the proxy's
// goroutines.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.listener.Close()
	p.Cut()
	p.running.Wait()
}

func (p *Proxy) cut(which func(*pair) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.pairs {
		if which(c) {
			c.reset()
			delete(p.pairs, c)
		}
	}
}

func (p *Proxy) drop(c *pair) { p.cut(func(o *pair) bool { return o == c }) }

func (c *pair) reset() {
	c.once.Do(func() {
		close(c.gone)
		for _, conn := range []*net.TCPConn{c.client, c.server} {
			if conn != nil {
				conn.SetLinger(0)
				conn.Close()
			}
		}
	})
}

func (p *Proxy) now() (Mode, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mode, p.changed
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.AcceptTCP()
		if err != nil {
			return
		}
		p.running.Go(func() { p.serve(&pair{client: client, gone: make(chan struct{})}) })
	}
}

// serve joins a new client to the server; in a black hole the server never
// hears of it.
func (p *Proxy) serve(c *pair) {
	if mode, _ := p.now(); mode != Blackhole && mode != Refuse {
		if server, err := net.DialTimeout("tcp", p.target, 5*time.Second); err == nil {
			c.server = server.(*net.TCPConn)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed, p.mode == Refuse, c.server == nil && p.mode != Blackhole:
		c.reset()
		return
	case c.server == nil:
		c.lost.Store(true)
	default:
		c.open.Store(2)
		p.running.Go(func() { p.pump(c, c.client, c.server, false) })
		p.running.Go(func() { p.pump(c, c.server, c.client, true) })
	}
	p.pairs[c] = struct{}{}
}

// pump carries one direction until it ends.
func (p *Proxy) pump(c *pair, from, to *net.TCPConn, replies bool) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 && !replies {
			p.requests.Add(1)
		}
		if err != nil && !errors.Is(err, io.EOF) {
			c.lost.Store(true) // a reset: no proper end of the stream follows
		}
		if !p.carry(c, buf[:n], to, replies) || err != nil {
			return
		}
	}
}

// carry passes bytes on as the mode says, or the end of the direction if there
// are none, and reports whether more may follow.
func (p *Proxy) carry(c *pair, bytes []byte, to *net.TCPConn, replies bool) bool {
	for came := time.Now(); ; {
		mode, changed := p.now()
		var wait <-chan time.Time
		switch {
		case mode == Blackhole, mode == DropReplies && replies:
			c.lost.Store(true)
			return true
		case mode == HoldReplies && replies:
		case time.Since(came) < mode.delay:
			wait = time.After(mode.delay - time.Since(came))
		case mode == Reset:
			p.drop(c)
			return false
		case len(bytes) > 0:
			if _, err := to.Write(bytes); err != nil {
				p.drop(c)
				return false
			}
			return true
		default:
			if c.lost.Load() || to.CloseWrite() != nil || c.open.Add(-1) == 0 {
				p.drop(c)
			}
			return false
		}
		select {
		case <-wait:
		case <-changed:
		case <-c.gone:
			return false
		}
	}
}
