package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/conformance/faultproxy"
)

var ctxChecks = []Check{
	{
		Name: "ctx-is-obeyed", Cases: []string{"C06"}, needs: network, phase: alone,
		Rule: "Every call returns soon after its ctx has ended, whatever the store does.",
		run:  ctxIsObeyed,
	},
	{
		Name: "close-is-bounded", Cases: []string{"C06"}, needs: network,
		Rule: "Close returns within its bound though the store is silent, and says what it could not do.",
		run:  closeIsBounded,
	},
}

// ctxBound is how much later than its ctx a call may return: rule and noise of
// the machine.
const ctxBound = 500 * time.Millisecond

// obeysCtx makes each call with a ctx that ends soon, while the store is silent.
func obeysCtx(ctx context.Context, t *T, what string, a *client, url string, silence, noise func()) error {
	held, contended := t.name(), t.name()
	long := lock.TTL(t.ttl(20 * time.Second))
	h := a.take(held, long)
	h2 := a.take(t.name(), long)
	other := t.open()
	theirs := other.take(contended, long)
	calls := []struct {
		name string
		call func(ctx context.Context) error
	}{
		{"TryAcquire of a free lock", func(ctx context.Context) error { _, err := a.TryAcquire(ctx, t.name(), long); return err }},
		{"Acquire of a free lock", func(ctx context.Context) error { _, err := a.Acquire(ctx, t.name(), long); return err }},
		{"Acquire of a held lock", func(ctx context.Context) error { _, err := a.Acquire(ctx, contended, long); return err }},
		{"Extend", func(ctx context.Context) error { return h.Extend(ctx, t.ttl(20*time.Second)) }},
		{"Release", h.Release},
		{"Do", func(ctx context.Context) error {
			return t.runner.subject.seam.do(ctx, a.Locker, t.name(), func(context.Context, *lock.Handle) error { return nil }, long)
		}},
		{"Open", func(ctx context.Context) error {
			l, err := t.runner.subject.Open(ctx, url)
			if err == nil { // one that connects at first use
				go l.Close()
				return context.DeadlineExceeded
			}
			return err
		}},
		{"Release with a ctx that has ended", func(context.Context) error {
			ended, cancel := context.WithDeadline(ctx, time.Now().Add(-time.Second))
			defer cancel()
			return h2.Release(ended)
		}},
	}
	silence()
	defer noise()
	for _, c := range calls {
		cctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		began := time.Now()
		err := t.await(c.name+", while "+what, 8*time.Second, t.start(func() error { return c.call(cctx) }))
		took := time.Since(began)
		cancel()
		if took > 300*time.Millisecond+ctxBound {
			return fmt.Errorf("%s returned after %v with a ctx of 300ms, while %s (%w)", c.name, took, what, err)
		}
		if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, lock.ErrUnavailable) {
			return fmt.Errorf("%s gave %w while %s; want ctx's error or ErrUnavailable", c.name, err, what)
		}
		t.wantIsNot(c.name+", while "+what, err, lock.ErrLost)
	}
	noise()
	other.free(theirs)
	return nil
}

func ctxIsObeyed(ctx context.Context, t *T) error {
	for _, mode := range []faultproxy.Mode{faultproxy.Blackhole, faultproxy.HoldReplies} {
		p := t.proxy()
		url, err := t.runner.viaURL(t.runner.server.URL, p.Addr())
		t.must(err)
		if err := obeysCtx(ctx, t, "the network is silent", t.openVia(p), url,
			func() { p.SetMode(mode) }, func() { p.SetMode(faultproxy.Pass) }); err != nil {
			return err
		}
	}
	return nil
}

func closeIsBounded(ctx context.Context, t *T) error {
	p, name := t.proxy(), t.name()
	a := t.openVia(p)
	h := a.take(name, lock.TTL(t.ttl(20*time.Second)))
	p.SetMode(faultproxy.Blackhole)
	began := time.Now()
	err := t.await("Close while the network is silent", 9*time.Second, t.start(a.Close))
	if took := time.Since(began); took > 5*time.Second+soon {
		return fmt.Errorf("Close took %v while the network was silent", took)
	}
	t.wantIs("Close, which could not free a lock", err, lock.ErrUnavailable)
	t.wantIs("Err after Close", h.Err(), lock.ErrClosed)
	return nil
}
