package lock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

var schemes atomic.Int64

// registerTest registers open under a scheme of the test's own.
func registerTest(t *testing.T, open Opener) (scheme string) {
	t.Helper()
	scheme = fmt.Sprintf("test-%d", schemes.Add(1))
	Register(open, scheme)
	t.Cleanup(func() {
		openers.Lock()
		defer openers.Unlock()
		delete(openers.of, scheme)
	})
	return scheme
}

// shutCounter returns a fake that counts the calls of its Close.
func shutCounter() (*fake, *atomic.Int64) {
	f, n := newFake(), new(atomic.Int64)
	f.shut = func() error { n.Add(1); return nil }
	return f, n
}

// soon waits until the condition holds, for 5 s.
func soon(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 5 s: %s", what)
		}
	}
}

func TestOpen(t *testing.T) {
	f, shut := shutCounter()
	var got *URL
	scheme := registerTest(t, func(_ context.Context, u *URL) (Backend, error) {
		got = u
		u.Str("prefix", "")
		return f, u.Check()
	})
	l, err := Open(t.Context(), scheme+"://u:p@h:1/a?prefix=x&ttl=7s&grace=2s&owner=from+url&token_base=100&renew=false", Owner("from code"))
	if err != nil {
		t.Fatal(err)
	}
	if got.User != "u" || got.Path != "a" || got.Hosts[0] != "h:1" {
		t.Errorf("the Opener got %v", got)
	}
	h, err := l.Acquire(t.Context(), "name")
	if err != nil {
		t.Fatal(err)
	}
	if token, _ := h.Token(); token != 101 {
		t.Errorf("token %d, want 101: token_base=100", token)
	}
	if req := f.requests[0]; h.TTL() != 7*time.Second || req.TTL != 9*time.Second || req.Owner != "from code" {
		t.Errorf("TTL %v; the backend was asked for %v as %q", h.TTL(), req.TTL, req.Owner)
	}
	if !h.noRenew {
		t.Error("renew=false was not heeded")
	}
	h2, err := l.Acquire(t.Context(), "another", TTL(8*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	if h2.TTL() != 8*time.Second {
		t.Errorf("TTL %v of an acquisition with its own, want 8s", h2.TTL())
	}
	if err := l.Close(); err != nil || shut.Load() != 1 {
		t.Errorf("Close: %v; the backend was closed %d times", err, shut.Load())
	}
}

func TestOpenCallersOptionsWin(t *testing.T) {
	f := newFake()
	scheme := registerTest(t, func(_ context.Context, u *URL) (Backend, error) { return f, u.Check() })
	l, err := Open(t.Context(), scheme+"://h?ttl=7s&max_hold=1h&min_hold=5ms", TTL(9*time.Second), MaxHold(2*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	h, err := l.Acquire(t.Context(), "name")
	if err != nil {
		t.Fatal(err)
	}
	if h.TTL() != 9*time.Second || h.maxHold != 2*time.Hour || h.minHold != 5*time.Millisecond {
		t.Errorf("TTL %v, MaxHold %v, MinHold %v", h.TTL(), h.maxHold, h.minHold)
	}
}

// Every mistake that can be found without a connection is found before the
// Opener is called.
func TestOpenRefusesBeforeDialling(t *testing.T) {
	scheme := registerTest(t, func(context.Context, *URL) (Backend, error) {
		t.Error("the Opener was called")
		return nil, errors.New("called")
	})
	for _, c := range []struct{ query, want string }{
		{"ttl=120", `parameter "ttl": a duration needs a unit`},
		{"ttl=1e3", `parameter "ttl"`},
		{"ttl=", `parameter "ttl"`},
		{"ttl=-5s", `parameter "ttl" is negative`},
		{"ttl=0s", `parameter "ttl"`},
		{"ttl=10y", `parameter "ttl"`},
		{"ttl=5s&ttl=6s", `parameter "ttl" is given twice`},
		{"grace=5", `parameter "grace"`},
		{"max_hold=0s", `parameter "max_hold"`},
		{"min_hold=x", `parameter "min_hold"`},
		{"renew=1", `parameter "renew"`},
		{"token_base=-1", `parameter "token_base"`},
		{"token_base=9223372036854775808", `parameter "token_base"`},
		{"owner=" + strings.Repeat("o", MaxOwnerLen+1), `parameter "owner"`},
	} {
		l, err := Open(t.Context(), scheme+"://h?"+c.query)
		if l != nil || !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("?%s: %v, %v; want ErrInvalid with %s", c.query, l, err, c.want)
		}
		if n := strings.Count(err.Error(), ErrInvalid.Error()); n != 1 {
			t.Errorf("?%s: says %q %d times: %v", c.query, ErrInvalid, n, err)
		}
	}
	for what, open := range map[string]func() (Locker, error){
		"nil context": func() (Locker, error) { return Open(nil, scheme+"://h") }, //nolint:staticcheck // the point
		"nil option":  func() (Locker, error) { return Open(t.Context(), scheme+"://h", nil) },
		"nil Option":  func() (Locker, error) { return Open(t.Context(), scheme+"://h", Option(nil)) },
		"bad option":  func() (Locker, error) { return Open(t.Context(), scheme+"://h", TTL(-1)) },
		"bad URL":     func() (Locker, error) { return Open(t.Context(), scheme+"://h:0") },
		"empty URL":   func() (Locker, error) { return Open(t.Context(), "") },
	} {
		if l, err := open(); l != nil || !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v, %v", what, l, err)
		}
	}
	if b, err := OpenBackend(nil, scheme+"://h"); b != nil || !errors.Is(err, ErrInvalid) { //nolint:staticcheck // the point
		t.Errorf("OpenBackend with a nil context: %v, %v", b, err)
	}
	for _, name := range lockerParams {
		b, err := OpenBackend(t.Context(), scheme+"://h?"+name+"=5s")
		if b != nil || !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "use Open") {
			t.Errorf("OpenBackend with %s: %v, %v", name, b, err)
		}
	}
}

func TestOpenUnknownScheme(t *testing.T) {
	one := registerTest(t, func(context.Context, *URL) (Backend, error) { return newFake(), nil })
	two := registerTest(t, func(context.Context, *URL) (Backend, error) { return newFake(), nil })
	_, err := Open(t.Context(), "redsi://h")
	if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), `unknown scheme "redsi" (forgotten import? have `) ||
		!strings.Contains(err.Error(), one) || !strings.Contains(err.Error(), two) {
		t.Errorf("got %v", err)
	}
}

func TestOpenErrors(t *testing.T) {
	cause := errors.New("connection refused")
	for _, c := range []struct {
		err  error
		want []error
	}{
		{cause, []error{cause, ErrUnavailable}},
		{context.DeadlineExceeded, []error{context.DeadlineExceeded, ErrUnavailable}},
		{fmt.Errorf("%w: %w", ErrUnsupported, cause), []error{cause, ErrUnsupported}},
		{fmt.Errorf("%w: a path", ErrInvalid), []error{ErrInvalid}},
	} {
		scheme := registerTest(t, func(context.Context, *URL) (Backend, error) { return nil, c.err })
		l, err := Open(t.Context(), scheme+"://h")
		if l != nil || !strings.HasPrefix(err.Error(), "open "+scheme+": ") {
			t.Errorf("%v: %v, %v", c.err, l, err)
		}
		for _, want := range c.want {
			if !errors.Is(err, want) {
				t.Errorf("%v is not %v", err, want)
			}
		}
		if errors.Is(err, ErrUnavailable) != errors.Is(errors.Join(c.want...), ErrUnavailable) {
			t.Errorf("%v: whether it is ErrUnavailable is wrong", err)
		}
	}
	scheme := registerTest(t, func(context.Context, *URL) (Backend, error) { return (*fake)(nil), nil })
	if l, err := Open(t.Context(), scheme+"://h"); l != nil || err == nil {
		t.Errorf("a nil Backend: %v, %v", l, err)
	}
}

// An Opener that does not call Check lets no unknown parameter through, and what
// it opened does not stay open.
func TestOpenUnreadParameter(t *testing.T) {
	f, shut := shutCounter()
	scheme := registerTest(t, func(_ context.Context, u *URL) (Backend, error) {
		u.Str("prefix", "")
		return f, nil
	})
	if l, err := Open(t.Context(), scheme+"://h?tll=5s"); l != nil || !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), `"tll" is unknown (did you mean "ttl"?`) {
		t.Errorf("got %v, %v", l, err)
	}
	if b, err := OpenBackend(t.Context(), scheme+"://h?tll=5s"); b != nil || !errors.Is(err, ErrInvalid) {
		t.Errorf("OpenBackend: %v, %v", b, err)
	}
	if shut.Load() != 2 {
		t.Errorf("the backends were closed %d times, want 2", shut.Load())
	}
}

func TestOpenClosesWhatNewRefuses(t *testing.T) {
	f, shut := shutCounter()
	scheme := registerTest(t, func(context.Context, *URL) (Backend, error) { return f, nil })
	if l, err := Open(t.Context(), scheme+"://h?ttl=2h"); l != nil || !errors.Is(err, ErrInvalid) {
		t.Errorf("a TTL above MaxTTL: %v, %v", l, err)
	}
	if shut.Load() != 1 {
		t.Errorf("the backend was closed %d times, want once", shut.Load())
	}
}

func TestOpenBackend(t *testing.T) {
	f, shut := shutCounter()
	scheme := registerTest(t, func(_ context.Context, u *URL) (Backend, error) { return f, u.Check() })
	b, err := OpenBackend(t.Context(), scheme+"://h")
	if err != nil || b != Backend(f) || shut.Load() != 0 {
		t.Errorf("got %v, %v, closed %d times", b, err, shut.Load())
	}
}

// An Opener that hangs does not hold up Open, and what it returns in the end is
// closed.
func TestOpenObeysContext(t *testing.T) {
	f, shut := shutCounter()
	called, goOn := make(chan struct{}, 2), make(chan struct{})
	scheme := registerTest(t, func(context.Context, *URL) (Backend, error) {
		called <- struct{}{}
		<-goOn
		return f, nil
	})
	for what, open := range map[string]func(context.Context) error{
		"Open":        func(ctx context.Context) error { _, err := Open(ctx, scheme+"://h"); return err },
		"OpenBackend": func(ctx context.Context) error { _, err := OpenBackend(ctx, scheme+"://h"); return err },
	} {
		ctx, cancel := context.WithCancel(t.Context())
		errs := make(chan error, 1)
		go func() { errs <- open(ctx) }()
		<-called
		cancelled := time.Now()
		cancel()
		select {
		case err := <-errs:
			if took := time.Since(cancelled); took > 100*time.Millisecond {
				t.Errorf("%s returned %v after its ctx ended", what, took)
			}
			if !errors.Is(err, context.Canceled) || !errors.Is(err, ErrUnavailable) {
				t.Errorf("%s: %v", what, err)
			}
		case <-time.After(5 * time.Second):
			t.Fatalf("%s did not return within 5 s", what)
		}
		if err := open(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("%s with a ctx that is over: %v", what, err)
		}
	}
	close(goOn)
	soon(t, "what the Openers returned late is closed", func() bool { return shut.Load() == 2 })
	if len(called) != 0 {
		t.Error("an Opener was called although the ctx was over")
	}
}

func TestRegisterPanics(t *testing.T) {
	open := func(context.Context, *URL) (Backend, error) { return newFake(), nil }
	taken := registerTest(t, open)
	for what, register := range map[string]func(){
		"nil Opener":  func() { Register(nil, "test-nil") },
		"no scheme":   func() { Register(open) },
		"taken":       func() { Register(open, taken) },
		"upper case":  func() { Register(open, "Test") },
		"empty":       func() { Register(open, "") },
		"with colon":  func() { Register(open, "test:") },
		"digit first": func() { Register(open, "1test") },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", what)
				}
			}()
			register()
		}()
	}
}
