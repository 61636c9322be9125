package conformance_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/interlock-go/lock"
)

func init() { lock.Register(openStore, "teststore") }

// storeClient is the Backend of a store: it dials for each request, and polls.
type storeClient struct {
	addr, user, pass string
	g                lock.Guarantees
}

func openStore(ctx context.Context, u *lock.URL) (lock.Backend, error) {
	flaw := u.Str("flaw", "")
	if len(u.Hosts) != 1 || u.Path != "" {
		u.Mistake("want teststore://user:password@host:port")
	}
	if err := u.Check(); err != nil {
		return nil, err
	}
	b := &storeClient{addr: u.Addrs("")[0], g: lock.Guarantees{
		Backend: "teststore", Fencing: lock.FencingDurable, Ends: lock.EndsClock,
		MinTTL: 100 * time.Millisecond, MaxTTL: time.Hour, Extend: true, Survives: lock.FaultRestart | lock.FaultClock,
	}}
	b.user = u.User
	b.pass, _ = u.Password()
	if _, err := b.ask(ctx, question{Op: "ping"}); err != nil {
		return nil, err
	}
	return flawed(b, flaw), nil
}

// ask makes one request. Its error is ErrUnavailable.
func (b *storeClient) ask(ctx context.Context, q question) (a answerLine, err error) {
	bound := 900 * time.Millisecond // below what the checks of outages have the network or the server silent for
	if q.Op == "ping" {
		bound = 5 * time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w: %w", lock.ErrUnavailable, err)
		}
	}()
	q.User, q.Pass = b.user, b.pass
	c, err := new(net.Dialer).DialContext(ctx, "tcp", b.addr)
	if err != nil {
		return a, errors.Join(errNotSent, err)
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	if err := json.NewEncoder(c).Encode(q); err != nil {
		return a, err
	}
	line, err := bufio.NewReader(c).ReadBytes('\n')
	if err != nil {
		return a, err
	}
	if err := json.Unmarshal(line, &a); err != nil {
		return a, err
	}
	if a.Outcome == "denied" {
		return a, errors.New("wrong user or password")
	}
	return a, nil
}

var errNotSent = errors.New("nothing was sent")

func (b *storeClient) Acquire(ctx context.Context, req lock.Request) (lock.Grant, error) {
	l := &storeLease{b, req.Name, req.ID}
	a, err := b.ask(ctx, question{Op: "acquire", Key: []byte(req.Name), ID: req.ID, Owner: req.Owner, TTL: req.TTL, Wait: req.Wait})
	switch {
	case errors.Is(err, errNotSent):
		return lock.Grant{}, err
	case err != nil:
		return lock.Grant{Lease: l}, err
	case a.Outcome == "held":
		return lock.Grant{Retry: 80 * time.Millisecond}, &lock.HeldError{Owner: a.Owner, Left: a.Left}
	case a.Outcome == "lost":
		return lock.Grant{}, fmt.Errorf("%w: the request came after its release", lock.ErrUnavailable)
	}
	return lock.Grant{Lease: l, Token: lock.Token(a.Token)}, nil
}

func (b *storeClient) Guarantees() lock.Guarantees { return b.g }

func (b *storeClient) Close() error { return nil }

type storeLease struct {
	b        *storeClient
	name, id string
}

func (l *storeLease) Renew(ctx context.Context, ttl time.Duration) error {
	return l.tell(ctx, question{Op: "renew", Key: []byte(l.name), ID: l.id, TTL: ttl})
}

func (l *storeLease) Release(ctx context.Context) error {
	return l.tell(ctx, question{Op: "release", Key: []byte(l.name), ID: l.id})
}

func (l *storeLease) tell(ctx context.Context, q question) error {
	a, err := l.b.ask(ctx, q)
	if err == nil && a.Outcome == "lost" {
		err = lock.ErrLost
	}
	return err
}
