package conformance

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/conformance/faultproxy"
)

// T is what a check works with. What a check opens and starts through it is
// closed and ended after the check.
type T struct {
	runner *runner
	check  Check
	ctx    context.Context
	step   atomic.Pointer[string]
	serial atomic.Int64

	mu       sync.Mutex
	log      []string
	cleanups []func() error
}

// abort ends a check from within one of T's methods; perform recovers it.
type abort struct{ err error }

// must aborts the check if err is not nil. Like fail, it is for the check's own
// goroutine and for those of T.all and T.start.
func (t *T) must(err error) {
	if err != nil {
		panic(abort{err})
	}
}

func (t *T) fail(format string, args ...any) { panic(abort{fmt.Errorf(format, args...)}) }

// caught turns an abort into an error.
func caught(f func() error) (err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case abort:
			err = p.err
		default:
			panic(p)
		}
	}()
	return f()
}

// logf adds a line to the report.
func (t *T) logf(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.log = append(t.log, fmt.Sprintf(format, args...))
}

func (t *T) lines() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]string(nil), t.log...)
}

// note says what the check is about to do, for the report if that hangs.
func (t *T) note(format string, args ...any) {
	s := fmt.Sprintf(format, args...)
	t.step.Store(&s)
}

func (t *T) doing() string {
	if s := t.step.Load(); s != nil {
		return *s
	}
	return "the check to begin"
}

// cleanup runs f after the check, last first.
func (t *T) cleanup(f func() error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cleanups = append(t.cleanups, f)
}

func (t *T) cleanUp() error {
	var errs []error
	for {
		t.mu.Lock()
		n := len(t.cleanups)
		if n == 0 {
			t.mu.Unlock()
			return errors.Join(errs...)
		}
		f := t.cleanups[n-1]
		t.cleanups = t.cleanups[:n-1]
		t.mu.Unlock()
		if err := f(); err != nil {
			errs = append(errs, err)
		}
	}
}

// has reports whether the store has an ability that the check can do without.
// One that is neither there nor excused fails the check.
func (t *T) has(ability string) bool {
	if t.runner.without(ability) != "" {
		return false
	}
	t.must(t.runner.missing(ability))
	return true
}

func (t *T) promise() lock.Guarantees { return t.runner.promise }

// name returns a lock name that nobody else uses.
func (t *T) name() string {
	return fmt.Sprintf("%s/%s/%d", t.runner.prefix, t.check.Name, t.serial.Add(1))
}

// count is how often a loop is run.
func (t *T) count(short, long int) int {
	if t.runner.subject.Long {
		return long
	}
	return short
}

// ttl returns d, or the backend's least if that is longer, in the backend's grain.
func (t *T) ttl(d time.Duration) time.Duration { return t.grain(max(d, t.promise().MinTTL)) }

// grain rounds a TTL up to whole seconds for a backend whose least is in these:
// it may refuse fractions.
func (t *T) grain(d time.Duration) time.Duration {
	if least := t.promise().MinTTL; least < time.Second || least%time.Second != 0 {
		return d
	}
	return (d + time.Second - 1).Truncate(time.Second)
}

// settled returns the proxy's count of requests once it stands still: a client's
// protocol may send acknowledgements a moment after an answer.
func (t *T) settled(p *faultproxy.Proxy) int64 {
	n := p.Requests()
	for range 40 {
		t.pause(50 * time.Millisecond)
		now := p.Requests()
		if now == n {
			break
		}
		n = now
	}
	return n
}

// within calls f with a ctx that ends after d.
func (t *T) within(d time.Duration, f func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(t.ctx, d)
	defer cancel()
	return f(ctx)
}

// until polls cond, and fails the check if it is not met in time.
func (t *T) until(what string, bound time.Duration, cond func() bool) {
	t.note("%s", what)
	for deadline := time.Now().Add(bound); !cond(); t.pause(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.fail("waited %v for %s", bound, what)
		}
	}
}

// pause waits, and fails the check if its time is over.
func (t *T) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.ctx.Done():
		t.fail("the check's time was over while it waited for %s", t.doing())
	}
}

// start runs f on a goroutine of its own.
func (t *T) start(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- caught(f) }()
	return done
}

// await waits for what start began.
func (t *T) await(what string, bound time.Duration, done <-chan error) error {
	t.note("%s", what)
	timer := time.NewTimer(bound)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		return fmt.Errorf("waited %v for %s\n%s", bound, what, goroutines())
	}
}

// all runs n goroutines and returns their errors when all have ended.
func (t *T) all(n int, f func(i int) error) error {
	errs := make([]error, n)
	var running sync.WaitGroup
	for i := range n {
		running.Go(func() { errs[i] = caught(func() error { return f(i) }) })
	}
	running.Wait()
	return few(errs)
}

// few joins errors, the first three of them.
func few(errs []error) error {
	var kept []error
	n := 0
	for _, err := range errs {
		if err != nil {
			if n++; n <= 3 {
				kept = append(kept, err)
			}
		}
	}
	if n > 3 {
		kept = append(kept, fmt.Errorf("and %d more", n-3))
	}
	return errors.Join(kept...)
}

// open makes a client that is closed after the check.
func (t *T) open(opts ...lock.SetupOption) *client { return t.openURL(t.runner.server.URL, opts...) }

func (t *T) openURL(url string, opts ...lock.SetupOption) *client {
	t.note("Open")
	ctx, cancel := context.WithTimeout(t.ctx, 10*time.Second)
	defer cancel()
	l, err := t.runner.subject.Open(ctx, url, opts...)
	if err != nil {
		t.fail("opening a client: %w", err)
	}
	c := &client{t: t, Locker: t.runner.subject.seam.locker(l)}
	t.cleanup(func() error {
		// How Close behaves is for the checks of it to judge.
		_ = t.await("Close of a client after the check", 10*time.Second, t.start(l.Close))
		return nil
	})
	return c
}

// proxy puts a proxy before the server.
func (t *T) proxy() *faultproxy.Proxy {
	server, err := t.runner.serverAddr()
	t.must(err)
	p, err := faultproxy.New(server)
	t.must(err)
	t.cleanup(func() error { p.Close(); return nil })
	return p
}

// openVia makes a client whose connections go through the proxy.
func (t *T) openVia(p *faultproxy.Proxy, opts ...lock.SetupOption) *client {
	url, err := t.runner.viaURL(t.runner.server.URL, p.Addr())
	t.must(err)
	return t.openURL(url, opts...)
}

// openMaybeVia is openVia where there is a network.
func (t *T) openMaybeVia(opts ...lock.SetupOption) (*client, *faultproxy.Proxy) {
	if !t.has(needNetwork) {
		return t.open(opts...), nil
	}
	p := t.proxy()
	return t.openVia(p, opts...), p
}

func (r *runner) serverAddr() (string, error) {
	if f := r.subject.ServerAddr; f != nil {
		return f(r.server.URL)
	}
	return onlyHost(r.server.URL)
}

func (r *runner) viaURL(url, addr string) (string, error) {
	if f := r.subject.WithAddr; f != nil {
		return f(url, addr)
	}
	host, err := onlyHost(url)
	if err != nil {
		return "", err
	}
	at := strings.Index(url, "://") + len("://")
	if i := strings.LastIndex(url, "@"); i >= 0 {
		at = i + 1
	}
	return url[:at] + strings.Replace(url[at:], host, addr, 1), nil
}

// onlyHost is the one host:port in the URL.
func onlyHost(url string) (string, error) {
	u, err := lock.ParseURL(url)
	if err != nil {
		return "", fmt.Errorf("conformance: Server.URL: %w", err)
	}
	if len(u.Hosts) == 1 {
		if _, _, err := net.SplitHostPort(u.Hosts[0]); err == nil {
			return u.Hosts[0], nil
		}
	}
	return "", fmt.Errorf("conformance: Server.URL does not have one host with a port, as the proxy needs: give Subject.WithAddr and ServerAddr, or name %s in Subject.Without", needNetwork)
}

// residue fails the check if the lock has left something at the store and it
// does not go in time.
func (t *T) residue(name string, bound time.Duration) {
	if !t.has(needResidue) {
		return
	}
	var left []string
	deadline := time.Now().Add(bound)
	for {
		ctx, cancel := context.WithTimeout(t.ctx, 5*time.Second)
		var err error
		left, err = t.runner.server.Residue(ctx, name)
		cancel()
		t.must(err)
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.fail("%v after the end, the lock has left at the store: %q", bound, left)
		}
		t.pause(5 * time.Millisecond)
	}
}

// steal takes the lock's entry away at the store.
func (t *T) steal(name string) {
	ctx, cancel := context.WithTimeout(t.ctx, 5*time.Second)
	defer cancel()
	if err := t.runner.server.Steal(ctx, name); err != nil {
		t.fail("Server.Steal: %w", err)
	}
}

func randomText(n int) string { return strings.ToLower(rand.Text()[:n]) }
