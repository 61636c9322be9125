package lock

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

func fakeLocker(t *testing.T, f *fake) Locker {
	t.Helper()
	l, err := New(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func TestFenced(t *testing.T) {
	f := newFake()
	fenced, err := Fenced(fakeLocker(t, f), FencingConsensus)
	if err != nil {
		t.Fatal(err)
	}
	// The caller's slice has room for one more: it must not be written to.
	opts := make([]Option, 1, 2)
	opts[0] = Owner("me")
	h, err := fenced.Acquire(t.Context(), "a", opts...)
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := h.Handle.Token(); h.Token() != 1 || got != 1 || h.Name() != "a" {
		t.Errorf("token %d, of the Handle %d, name %q", h.Token(), got, h.Name())
	}
	if opts[:2][1] != nil {
		t.Error("the caller's options were written to")
	}
	h2, err := fenced.TryAcquire(t.Context(), "b", opts...)
	if err != nil || h2.Token() != 2 {
		t.Errorf("token %d, %v", h2.Token(), err)
	}
	errWork := errors.New("work")
	for what, do := range map[string]func(context.Context, string, func(context.Context, *FencedHandle) error, ...Option) error{
		"Do": fenced.Do, "TryDo": fenced.TryDo,
	} {
		err = do(t.Context(), "c", func(ctx context.Context, h *FencedHandle) error {
			if h.Token() <= 2 || h.Err() != nil {
				t.Errorf("%s: token %d, %v", what, h.Token(), h.Err())
			}
			if inner, ok := FromContext(ctx); !ok || inner != h.Handle {
				t.Errorf("%s: ctx does not carry the handle", what)
			}
			return errWork
		}, opts...)
		if err != errWork { //nolint:errorlint // as it is
			t.Errorf("%s: %v, want the function's error as it is", what, err)
		}
	}
	for _, req := range f.requests {
		if !req.Token || req.Owner != "me" {
			t.Errorf("a request for %q: with token %v, owner %q", req.Name, req.Token, req.Owner)
		}
	}
	for _, h := range []*FencedHandle{h, h2} {
		if err := h.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if len(f.released) != len(f.requests) {
		t.Errorf("%d acquired, %d released", len(f.requests), len(f.released))
	}
}

func TestFencedReleasesOnPanicAndGoexit(t *testing.T) {
	f := newFake()
	fenced, err := Fenced(fakeLocker(t, f), FencingVolatile)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		fenced.Do(t.Context(), "a", func(context.Context, *FencedHandle) error { runtime.Goexit(); return nil })
	}()
	<-done
	func() {
		defer func() {
			if recover() != "oops" {
				t.Error("the panic did not pass")
			}
		}()
		fenced.Do(t.Context(), "a", func(context.Context, *FencedHandle) error { panic("oops") })
	}()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.released) != 2 {
		t.Errorf("released %d of 2", len(f.released))
	}
}

func TestFencedRefuses(t *testing.T) {
	can := func(level Fencing) Locker {
		f := newFake()
		f.guarantees.Fencing = level
		return fakeLocker(t, f)
	}
	for _, c := range []struct {
		l       Locker
		atLeast Fencing
		want    error
		texts   []string
	}{
		{nil, FencingConsensus, ErrInvalid, []string{"nil Locker"}},
		{(*engine)(nil), FencingConsensus, ErrInvalid, []string{"nil Locker"}},
		{can(FencingConsensus), FencingNone, ErrInvalid, []string{"none"}},
		{can(FencingConsensus), FencingConsensus + 1, ErrInvalid, []string{"volatile, durable, consensus"}},
		{can(FencingNone), FencingVolatile, ErrNoToken, []string{"fake", "none", "volatile", "etcd, zookeeper, postgres, file, redis with fencing=counter"}},
		{can(FencingVolatile), FencingDurable, ErrNoToken, []string{"volatile", "durable", "(which etcd, zookeeper, postgres, file can give)"}},
		{can(FencingDurable), FencingConsensus, ErrNoToken, []string{"durable", "consensus", "(which etcd, zookeeper can give)"}},
		{can(FencingDurable), FencingDurable, nil, nil},
		{can(FencingConsensus), FencingVolatile, nil, nil},
	} {
		fenced, err := Fenced(c.l, c.atLeast)
		if c.want == nil {
			if err != nil || fenced == nil {
				t.Errorf("%v: %v", c.atLeast, err)
			}
			continue
		}
		if fenced != nil || !errors.Is(err, c.want) {
			t.Errorf("%v: %v; want %v", c.atLeast, err, c.want)
			continue
		}
		for _, text := range c.texts {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("%v: no %q in: %v", c.atLeast, text, err)
			}
		}
	}
}

func TestFencedMadeByHand(t *testing.T) {
	fn := func(context.Context, *FencedHandle) error { t.Error("called"); return nil }
	for what, f := range map[string]*FencedLocker{"nil": nil, "zero": {}} {
		if h, err := f.Acquire(t.Context(), "a"); h != nil || !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: Acquire: %v, %v", what, h, err)
		}
		if h, err := f.TryAcquire(t.Context(), "a"); h != nil || !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: TryAcquire: %v, %v", what, h, err)
		}
		if err := f.Do(t.Context(), "a", fn); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: Do: %v", what, err)
		}
		if err := f.TryDo(t.Context(), "a", fn); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: TryDo: %v", what, err)
		}
	}
	fenced, err := Fenced(fakeLocker(t, newFake()), FencingConsensus)
	if err != nil {
		t.Fatal(err)
	}
	if err := fenced.Do(t.Context(), "a", nil); !errors.Is(err, ErrInvalid) {
		t.Errorf("Do with a nil function: %v", err)
	}
	for what, h := range map[string]*FencedHandle{"nil": nil, "zero": {}, "around a Handle": {Handle: new(Handle)}} {
		if h.Token() != 0 {
			t.Errorf("%s: token %d", what, h.Token())
		}
		if h.Name() != "" || h.TTL() != 0 || !h.Deadline().IsZero() {
			t.Errorf("%s: has something: %q, %v, %v", what, h.Name(), h.TTL(), h.Deadline())
		}
		joined, cancel := h.Join(t.Context())
		cancel()
		for call, err := range map[string]error{
			"Err": h.Err(), "Extend": h.Extend(t.Context(), time.Second), "Release": h.Release(t.Context()),
			"Context": context.Cause(h.Context()), "Join": context.Cause(joined),
		} {
			if !errors.Is(err, ErrReleased) {
				t.Errorf("%s: %s: %v, want ErrReleased", what, call, err)
			}
		}
		if s := h.String(); s != "no lock" {
			t.Errorf("%s: String: %q", what, s)
		}
	}
}

// forgetful is a wrapper with a fault: it drops the options.
type forgetful struct{ Locker }

func (l forgetful) Acquire(ctx context.Context, name string, _ ...Option) (*Handle, error) {
	return l.Locker.Acquire(ctx, name)
}

func (l forgetful) TryAcquire(ctx context.Context, name string, _ ...Option) (*Handle, error) {
	return l.Locker.TryAcquire(ctx, name)
}

// A lock without its token is not handed out, and not kept.
func TestFencedWithoutToken(t *testing.T) {
	f := newFake()
	f.acquire = func(_ context.Context, req Request) (Grant, error) {
		g := Grant{Lease: fakeLease{f, req.ID}} // a Lease of its own: then the fake adds no token
		if req.Token {
			g.Token = 9
		}
		return g, nil
	}
	fenced, err := Fenced(forgetful{fakeLocker(t, f)}, FencingConsensus)
	if err != nil {
		t.Fatal(err)
	}
	if h, err := fenced.Acquire(t.Context(), "a"); h != nil || !errors.Is(err, ErrNoToken) || !strings.Contains(err.Error(), `acquire "a"`) {
		t.Errorf("Acquire: %v, %v", h, err)
	}
	if h, err := fenced.TryAcquire(t.Context(), "a"); h != nil || !errors.Is(err, ErrNoToken) {
		t.Errorf("TryAcquire: %v, %v", h, err)
	}
	err = fenced.Do(t.Context(), "a", func(context.Context, *FencedHandle) error { t.Error("called"); return nil })
	if !errors.Is(err, ErrNoToken) {
		t.Errorf("Do: %v", err)
	}
	var ids []string
	for _, req := range f.requests {
		ids = append(ids, req.ID)
	}
	if !slices.Equal(ids, f.released) {
		t.Errorf("acquired %q, released %q", ids, f.released)
	}
}

func TestFencedPassesErrorsOn(t *testing.T) {
	f := newFake()
	f.acquire = func(context.Context, Request) (Grant, error) { return Grant{}, &HeldError{Name: "a", Owner: "other"} }
	fenced, err := Fenced(fakeLocker(t, f), FencingConsensus)
	if err != nil {
		t.Fatal(err)
	}
	if h, err := fenced.TryAcquire(t.Context(), "a"); h != nil || !errors.Is(err, ErrHeld) {
		t.Errorf("TryAcquire: %v, %v", h, err)
	}
	err = fenced.TryDo(t.Context(), "a", func(context.Context, *FencedHandle) error { t.Error("called"); return nil })
	var held *HeldError
	if !errors.As(err, &held) || held.Owner != "other" {
		t.Errorf("TryDo: %v", err)
	}
}
