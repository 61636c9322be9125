package benchmarks

import (
	"bytes"
	"context"
	"net"
	"strconv"
	"sync/atomic"
)

// wire counts what clients send, so that requests mean the same for all of
// them: the server's own statistics also count what scripts call.
type wire struct {
	requests atomic.Int64
	writes   atomic.Int64 // to sockets
}

func (w *wire) dial(ctx context.Context, addr string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &wiredConn{Conn: c, w: w}, nil
}

// wiredConn follows the protocol: "*2\r\n$4\r\nPING\r\n$1\r\nx\r\n" is a request of
// two words.
type wiredConn struct {
	net.Conn
	w     *wire
	words int    // left of the request
	skip  int    // bytes left of the word
	line  []byte // begun and not ended
}

func (c *wiredConn) Write(p []byte) (int, error) {
	c.w.writes.Add(1)
	c.count(p)
	return c.Conn.Write(p)
}

func (c *wiredConn) count(p []byte) {
	for len(p) > 0 {
		if c.skip > 0 {
			n := min(c.skip, len(p))
			c.skip -= n
			p = p[n:]
			continue
		}
		end := bytes.IndexByte(p, '\n')
		if end < 0 {
			c.line = append(c.line, p...)
			return
		}
		line := append(c.line, bytes.TrimSuffix(p[:end], []byte("\r"))...)
		c.line = c.line[:0]
		p = p[end+1:]
		n, err := strconv.Atoi(string(bytes.TrimSpace(line[1:])))
		if err != nil {
			panic("not a request: " + strconv.Quote(string(line)))
		}
		if line[0] == '*' {
			c.words = n
			c.w.requests.Add(1)
		} else {
			c.words--
			c.skip = n + len("\r\n")
		}
	}
}
