package conformance_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/conformance"
)

// The shortest backend: a map with times to live. Between the lines of dashes
// are forty lines.

// ----------------------------------------------------------------------------

type tiny struct {
	sync.Mutex
	locks map[string]*tinyLock
	last  lock.Token
}

type tinyLock struct {
	s     *tiny
	req   lock.Request
	token lock.Token
	until time.Time
}

func (s *tiny) Acquire(_ context.Context, req lock.Request) (lock.Grant, error) {
	s.Lock()
	defer s.Unlock()
	l := s.locks[req.Name]
	if l == nil || time.Until(l.until) <= 0 {
		s.last++
		l = &tinyLock{s: s, req: req, token: s.last}
		s.locks[req.Name] = l
	}
	if l.req.ID != req.ID {
		return lock.Grant{Retry: 20 * time.Millisecond}, &lock.HeldError{Owner: l.req.Owner, Left: time.Until(l.until)}
	}
	l.until = time.Now().Add(req.TTL)
	return lock.Grant{Lease: l, Token: l.token}, nil
}

func (l *tinyLock) Renew(_ context.Context, ttl time.Duration) error {
	l.s.Lock()
	defer l.s.Unlock()
	if l.s.locks[l.req.Name] != l || time.Until(l.until) <= 0 {
		return lock.ErrLost
	}
	l.until = time.Now().Add(ttl)
	return nil
}

func (l *tinyLock) Release(ctx context.Context) error { return l.Renew(ctx, 0) }

var tinyGuarantees = lock.Guarantees{Backend: "tiny", Fencing: lock.FencingVolatile, MinTTL: 100 * time.Millisecond, MaxTTL: time.Hour, Extend: true}

func (s *tiny) Guarantees() lock.Guarantees { return tinyGuarantees }
func (s *tiny) Close() error                { return nil }

// ----------------------------------------------------------------------------

func TestFortyLines(t *testing.T) {
	s := &tiny{locks: make(map[string]*tinyLock)}
	conformance.Run(t, conformance.Subject{
		InProcess: true,
		Start: func(context.Context) (*conformance.Server, error) {
			return &conformance.Server{
				Steal: func(_ context.Context, name string) error {
					s.Lock()
					defer s.Unlock()
					delete(s.locks, name)
					return nil
				},
				Residue: func(_ context.Context, name string) ([]string, error) {
					s.Lock()
					defer s.Unlock()
					if l := s.locks[name]; l != nil && time.Until(l.until) > 0 {
						return []string{name}, nil
					}
					return nil, nil
				},
			}, nil
		},
		Open: func(_ context.Context, _ string, opts ...lock.SetupOption) (lock.Locker, error) {
			return lock.New(s, opts...)
		},
		Without: []string{"URL"},
	})
}
