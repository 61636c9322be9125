package testserver

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
)

// awaitUp returns when the server answers, or with the reason why it does not.
func (r *Redis) awaitUp(ctx context.Context) error {
	ended := r.host.ended()
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for {
		err := r.probe(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ended:
			words := r.host.tail()
			if portTaken(words) {
				return fmt.Errorf("%s: %w", r.addr, errPortTaken)
			}
			return fmt.Errorf("redis on %s ended at its start: %s", r.addr, words)
		case <-ctx.Done():
			return fmt.Errorf("redis on %s does not answer (%w): %w; it printed: %s", r.addr, err, context.Cause(ctx), r.host.tail())
		case <-poll.C:
		}
	}
}

// probe sends one PING in the protocol's own words: client libraries wait about
// a second after a refused first dial. Any answer will do, an error too, except
// that the server loads its data still.
func (r *Redis) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", r.addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return err
		}
	}
	if r.certs != nil {
		cfg, err := r.certs.Client()
		if err != nil {
			return err
		}
		conn = tls.Client(conn, cfg)
	}
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	switch {
	case err != nil:
		return err
	case strings.HasPrefix(line, "-LOADING"):
		return errors.New("it loads its data")
	case line[0] != '+' && line[0] != '-':
		return fmt.Errorf("this is no redis: PING was answered with %q", line)
	}
	return nil
}
