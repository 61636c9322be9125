package lock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"reflect"
	"strconv"
	"sync"
	"time"
)

// MaxNameLen is the greatest length of a lock's name, in bytes.
const MaxNameLen = 512

// engine is the Locker that New puts over a Backend. This file is the way of an
// Acquire from the caller to the backend; handle.go is the handle's life,
// schedule.go its renewal, cleanup.go what is freed in the background.
type engine struct {
	backend Backend
	batch   BatchRenewer // nil if the backend has none
	margin  func(ttl time.Duration) time.Duration
	promise Guarantees
	clocked bool // a clock of ours ends every lock, whatever ends it at the store
	setup   setup

	turns   turns
	sched   scheduler
	calls   workers
	life    context.Context // ends when Close begins
	end     context.CancelFunc
	closing <-chan struct{} // life's
	close   closer
}

// New returns a Locker over a Backend, which it closes when it is closed. It
// sends nothing.
//
// It returns ErrInvalid for a nil Backend and for options outside of what the
// Backend's Guarantees allow, ErrUnsupported or ErrNoToken for options that it
// cannot honour.
func New(b Backend, opts ...SetupOption) (Locker, error) {
	if isNil(b) {
		return nil, fmt.Errorf("new locker: %w: a nil Backend", ErrInvalid)
	}
	e := &engine{backend: b, margin: defaultMargin, promise: b.Guarantees()}
	e.life, e.end = context.WithCancel(context.Background())
	e.closing = e.life.Done()
	e.batch, _ = b.(BatchRenewer)
	if m, ok := b.(Marginer); ok {
		e.margin = m.Margin
	}
	_, two := b.(*both)
	e.clocked = two || e.promise.Ends == EndsClock
	e.setup.ttl = min(max(DefaultTTL, e.promise.MinTTL), e.promise.MaxTTL)
	e.setup.owner = hostOwner()
	e.setup.log = slog.New(slog.DiscardHandler)
	for _, o := range opts {
		if isNil(o) {
			return nil, fmt.Errorf("new locker on %s: %w: a nil option", e.promise.Backend, ErrInvalid)
		}
		if err := o.setup(&e.setup); err != nil {
			return nil, fmt.Errorf("new locker on %s: %w", e.promise.Backend, err)
		}
	}
	if err := e.setup.check(e.promise); err != nil {
		return nil, fmt.Errorf("new locker on %s: %w", e.promise.Backend, err)
	}
	e.turns.names = make(map[string]*turn)
	e.sched.start(e)
	e.calls.limit = idleWorkers
	return e, nil
}

// defaultMargin allows for the drift of the store's clock against ours, and for
// the granularity of its timers.
func defaultMargin(ttl time.Duration) time.Duration { return ttl/100 + 2*time.Millisecond }

var hostOwner = sync.OnceValue(func() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return host[:min(len(host), MaxOwnerLen-20)] + ":" + strconv.Itoa(os.Getpid())
})

// check refuses what the backend cannot do.
func (s *settings) check(g Guarantees) error {
	switch {
	case s.ttl%time.Millisecond != 0:
		return fmt.Errorf("%w: TTL %v is not a whole number of milliseconds", ErrInvalid, s.ttl)
	case s.ttl < g.MinTTL:
		return fmt.Errorf("%w: TTL %v is below the least of %s, %v", ErrInvalid, s.ttl, g.Backend, g.MinTTL)
	case s.ttl > g.MaxTTL:
		return fmt.Errorf("%w: TTL %v is above the most of %s, %v", ErrInvalid, s.ttl, g.Backend, g.MaxTTL)
	case s.grace%time.Millisecond != 0:
		return fmt.Errorf("%w: Grace %v is not a whole number of milliseconds", ErrInvalid, s.grace)
	case s.grace > g.MaxTTL-s.ttl:
		return fmt.Errorf("%w: TTL %v and Grace %v are together above the most of %s, %v", ErrInvalid, s.ttl, s.grace, g.Backend, g.MaxTTL)
	case s.grace > 0 && g.Ends != EndsClock:
		return fmt.Errorf("%w: Grace needs a clock that ends the lock; on %s the %v does", ErrUnsupported, g.Backend, g.Ends)
	case s.minHold > g.MaxTTL:
		return fmt.Errorf("%w: MinHold %v is above the most of %s, %v", ErrInvalid, s.minHold, g.Backend, g.MaxTTL)
	case s.maxHold > 0 && s.minHold > s.maxHold:
		return fmt.Errorf("%w: MinHold %v is above MaxHold %v", ErrInvalid, s.minHold, s.maxHold)
	case s.token && g.Fencing == FencingNone:
		return fmt.Errorf("%w: %s gives none as it is set up", ErrNoToken, g.Backend)
	}
	return nil
}

func (e *engine) Guarantees() Guarantees { return e.promise }

func (e *engine) Acquire(ctx context.Context, name string, opts ...Option) (*Handle, error) {
	return e.enter(ctx, name, true, opts)
}

func (e *engine) TryAcquire(ctx context.Context, name string, opts ...Option) (*Handle, error) {
	return e.enter(ctx, name, false, opts)
}

// enter refuses bad input, and wraps and tells what came of the rest.
func (e *engine) enter(ctx context.Context, name string, wait bool, opts []Option) (*Handle, error) {
	op := "try"
	if wait {
		op = "acquire"
	}
	s, err := e.settings(ctx, name, opts)
	if err != nil {
		return nil, e.wrap(op, name, err)
	}
	e.close.ops.Add(1)
	defer e.close.ops.Add(-1)
	began := e.timed()
	var h *Handle
	switch {
	case e.isClosing():
		err = ErrClosed
	case ctx.Err() != nil:
		err = ctxError(ctx)
	case wait:
		h, err = e.await(ctx, name, s)
	default:
		h, err = e.try(ctx, name, s)
	}
	if err != nil {
		err = e.wrap(op, name, err)
		h = nil
	}
	if e.setup.observe == nil {
		return h, err
	}
	ev := Event{Kind: EventWait, Name: name, Owner: s.owner, Took: e.took(began), Err: err}
	told := false
	defer func() {
		if !told && h != nil { // the Observer panicked, and nobody gets the handle
			h.letGo(ErrReleased, Now(), false)
		}
	}()
	if h != nil {
		ev.Token = h.token
	}
	e.emit(ctx, ev)
	told = true
	return h, err
}

func (e *engine) settings(ctx context.Context, name string, opts []Option) (settings, error) {
	if ctx == nil {
		return settings{}, fmt.Errorf("%w: a nil Context", ErrInvalid)
	}
	if name == "" {
		return settings{}, fmt.Errorf("%w: an empty name", ErrInvalid)
	}
	if len(name) > MaxNameLen {
		return settings{}, fmt.Errorf("%w: a name of %d bytes (at most %d)", ErrInvalid, len(name), MaxNameLen)
	}
	if len(opts) == 0 {
		return e.setup.settings, nil
	}
	s := e.setup.settings
	for _, o := range opts {
		if isNil(o) {
			return s, fmt.Errorf("%w: a nil option", ErrInvalid)
		}
		if err := o.apply(&s); err != nil {
			return s, err
		}
	}
	return s, s.check(e.promise)
}

// await contends for the name once it is this goroutine's turn.
func (e *engine) await(ctx context.Context, name string, s settings) (*Handle, error) {
	t, err := e.turns.enter(ctx, name, e.closing)
	if err != nil {
		return nil, err
	}
	var h *Handle
	defer func() { e.turns.leave(name, t, h) }() // a Logger may panic
	h, err = e.contend(ctx, name, s, t)
	return h, err
}

// try makes one attempt, or shares the answer of another goroutine's if that
// was sent after this call began.
func (e *engine) try(ctx context.Context, name string, s settings) (*Handle, error) {
	for fresh := false; ; fresh = true {
		a, leads := e.turns.joinTry(name)
		if leads {
			defer e.turns.endTry(name, a)
			a.err = errNoAnswer // should contend not return
			a.handle, a.err = e.contend(ctx, name, s, nil)
			return a.handle, a.err
		}
		select {
		case <-a.done:
		case <-ctx.Done():
			return nil, withLast(ctxError(ctx), errNoAnswer)
		case <-e.closing:
			return nil, ErrClosed
		}
		if a.handle != nil {
			return nil, &HeldError{Name: name, Owner: a.handle.owner}
		}
		if fresh && (errors.Is(a.err, ErrHeld) || errors.Is(a.err, ErrUnavailable)) && !isCtxError(a.err) {
			return nil, a.err
		}
	}
}

// lookLeast is how often a waiter looks for itself at the least, whatever the
// holder's time to live: an administrator may have removed the entry.
const lookLeast = 30 * time.Second

// contend asks the store until it grants; or once, without a turn.
func (e *engine) contend(ctx context.Context, name string, s settings, t *turn) (*Handle, error) {
	var (
		wait    = t != nil
		last    error // the last answer: held, or an outage
		outage  bool
		backoff = backoff{least: 50 * time.Millisecond, most: time.Second}
		poll    = backoff
	)
	poll.most = 250 * time.Millisecond
	h := e.newHandle(ctx, name, s)
	done := false
	defer func() {
		if !done {
			e.abandon(h)
		}
	}()
	for {
		var asked Instant
		if last != nil {
			asked = Now()
		}
		ans, err := e.ask(ctx, h, s, t)
		if ans != nil && ans.grant.Lease != nil {
			h.lease = ans.grant.Lease
		}
		if err != nil { // ctx ended, or the Locker is being closed
			switch {
			case ans != nil && errors.Is(ans.err, ErrHeld):
				last = e.heldBy(name, ans.err)
			case ans != nil && ans.err != nil && !isCtxError(ans.err):
				last = unavailable(ans.err)
			case wait && last == nil && t.held.Load() != nil:
				last = t.held.Load()
			case last == nil || Now().Sub(asked) > time.Second:
				last = errNoAnswer
			}
			if errors.Is(err, ErrClosed) {
				return nil, err
			}
			return nil, withLast(err, last)
		}
		var pause time.Duration
		switch {
		case ans.err == nil && h.lease == nil:
			return nil, fmt.Errorf("%w: the backend granted without a Lease", ErrUnavailable)
		case ans.err == nil:
			err := e.grant(ctx, h, ans)
			if err == nil {
				if outage {
					e.setup.log.Info("lock: the store answers again", "backend", e.promise.Backend, "name", name)
				}
				done = true
				return h, nil
			}
			if !wait || !isTransient(err) || ctx.Err() != nil {
				return nil, err
			}
			// It was ours and may have run out: a new acquisition.
			e.abandon(h)
			h = e.newHandle(ctx, name, s)
			last, pause = err, backoff.next()
		case errors.Is(ans.err, ErrHeld):
			held := e.heldBy(name, ans.err)
			last, outage = held, false
			backoff.reset()
			if wait {
				t.held.Store(held)
			}
			switch {
			case ans.grant.Retry > 0:
				pause = ans.grant.Retry
			case held.Left > 0:
				pause = held.Left + time.Millisecond + jitter(min(held.Left/20, 5*time.Millisecond))
			default:
				pause = poll.next()
			}
		case isTransient(ans.err):
			last = unavailable(ans.err)
			if ans.grant.Lease != nil {
				h.left.also = h.lease
				h.unanswered(h.ttl)
			}
			if wait && !outage {
				e.setup.log.Warn("lock: the store is away, Acquire goes on trying", "backend", e.promise.Backend, "name", name, "err", ans.err)
			}
			outage = true
			pause = backoff.next()
		default:
			return nil, unavailable(ans.err)
		}
		if !wait {
			return nil, last
		}
		if err := h.sleep(ctx, min(pause, lookLeast), e.closing); err != nil {
			return nil, withLast(err, last)
		}
	}
}

// grant makes h a held lock, if it still is one by the time that we know.
func (e *engine) grant(ctx context.Context, h *Handle, ans *answer) error {
	sent := ans.sent
	if !ans.grant.Sent.IsZero() {
		sent = ans.grant.Sent
	}
	ttl := h.ttl
	if ans.grant.TTL > 0 {
		ttl = ans.grant.TTL - h.grace
	}
	token := ans.grant.Token
	if token > 0 {
		if token > math.MaxInt64-e.setup.tokenBase {
			return fmt.Errorf("%w: token %d with TokenBase %d is above the greatest", ErrInvalid, token, e.setup.tokenBase)
		}
		token += e.setup.tokenBase
	} else if h.wantToken || token < 0 {
		return fmt.Errorf("%w: %s granted without one", ErrNoToken, e.promise.Backend)
	}
	now := Now()
	if h.bounded() && sent.Add(ttl-e.margin(ttl)).Reached(now) {
		// It queued, or the answer took, for longer than its trust: what the
		// store says now counts.
		var err error
		if sent, err = e.confirm(ctx, h, ttl); err != nil {
			return err
		}
		now = Now()
	}
	return h.activate(sent, now, ttl, token)
}

// abandon sees to it that nothing of an acquisition that failed stays behind.
func (e *engine) abandon(h *Handle) {
	if h.abandon() {
		e.free(&h.left, false)
	}
}

// answer is a call of the Backend's Acquire, and what it came back with.
type answer struct {
	e   *engine
	ctx context.Context
	req Request

	grant Grant
	err   error
	sent  Instant // when the call began
}

func (a *answer) run() {
	a.sent = Now()
	a.grant, a.err = a.e.backend.Acquire(a.ctx, a.req)
}

// late frees what a call brought for which nobody waits any more.
func (a *answer) late() {
	if a.grant.Lease != nil {
		a.e.freeOrphan(a.req.Name, a.grant.Lease)
	}
}

// ask makes one attempt at the store. If ctx ends or the Locker is being closed
// before the store answered, it returns an error, and what the answer then says
// is cleaned up when it comes; with an answer beside the error, that came and
// was no grant.
func (e *engine) ask(ctx context.Context, h *Handle, s settings, t *turn) (*answer, error) {
	ans := &answer{e: e, req: Request{
		Name: h.name, ID: h.id, TTL: s.ttl + s.grace, Token: s.token, Wait: t != nil,
		Owner: s.owner, Lost: h.lostByStore,
	}}
	if t != nil {
		ans.req.Wake, ans.req.Held = h.wake, func(held *HeldError) { t.held.Store(e.heldBy(h.name, held)) }
	}
	if ctx.Done() == nil {
		// Nobody but Close can want to leave this call, and it ends with the
		// backend's patience: no worker is needed, which saves two switches.
		ans.ctx = endless{e.life, ctx}
		ans.run()
		if ans.err != nil && e.isClosing() {
			return ans, ErrClosed
		}
		return ans, nil
	}
	var cancel context.CancelFunc
	ans.ctx, cancel = context.WithCancel(ctx)
	defer cancel()
	if err := e.calls.wait(ctx, e.calls.start(ans), e.closing, lastWord); err != nil {
		return nil, err
	}
	if ans.err != nil && isOver(ctx) {
		return ans, ctxError(ctx)
	}
	return ans, nil
}

// endless is a Context that cannot end by itself, for a call that ends with the
// Locker.
type endless struct {
	context.Context // the Locker's
	values          context.Context
}

func (c endless) Value(key any) any {
	if v := c.Context.Value(key); v != nil {
		return v
	}
	return c.values.Value(key)
}

// lastWord is how long a call may go on after its ctx ended, so that it can say
// whether another holds the lock.
const lastWord = 50 * time.Millisecond

// heldBy is the backend's HeldError, or one that knows no more than the name.
func (e *engine) heldBy(name string, err error) *HeldError {
	var held *HeldError
	if !errors.As(err, &held) {
		held = new(HeldError)
	}
	held.Name = name
	return held
}

// confirm asks the store whether h's lease is still ours, and returns when it
// asked.
func (e *engine) confirm(ctx context.Context, h *Handle, ttl time.Duration) (Instant, error) {
	var (
		sent Instant
		err  error
	)
	c := e.calls.start(action(func() {
		sent = Now()
		err = h.lease.Renew(ctx, ttl+h.grace)
	}))
	if werr := e.calls.wait(ctx, c, e.closing, 0); werr != nil {
		return Instant{}, werr // the call may still run
	}
	if err != nil && !errors.Is(err, ErrLost) {
		return sent, unavailable(err)
	}
	if err != nil {
		return sent, errRanOut
	}
	return sent, nil
}

func newID() string { return rand.Text() }

func (e *engine) wrap(op, name string, err error) error {
	if len(name) > MaxNameLen {
		name = name[:32] + "…"
	}
	return &opError{op: op, name: name, backend: e.promise.Backend, err: err}
}

// emitBehind emits on a goroutine of the engine's, which an Observer's panic must
// not end, and the process with it.
func (e *engine) emitBehind(ctx context.Context, ev Event) {
	defer func() {
		if p := recover(); p != nil {
			e.setup.log.Error("lock: an Observer panicked", "event", ev.Kind.String(), "name", ev.Name, "panic", p)
		}
	}()
	e.emit(ctx, ev)
}

func (e *engine) emit(ctx context.Context, ev Event) {
	if e.setup.observe != nil {
		ev.Backend = e.promise.Backend
		e.setup.observe(ctx, ev)
	}
}

// timed is the present moment if somebody observes, to whom took then says how
// long it has been. To read the clocks is a good part of what an uncontended
// lock costs.
func (e *engine) timed() Instant {
	if e.setup.observe == nil {
		return Instant{}
	}
	return Now()
}

func (e *engine) took(began Instant) time.Duration {
	if e.setup.observe == nil {
		return 0
	}
	return Now().Sub(began)
}

// isNil also finds a nil pointer, map or function within an interface.
func isNil(v any) bool {
	if v == nil {
		return true
	}
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Func, reflect.Chan, reflect.Slice, reflect.Interface:
		return r.IsNil()
	}
	return false
}
