package redis

import (
	"context"
	"crypto/rand"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

const (
	// subscribeWait is how long a waiter waits for the subscription to stand
	// before it looks at the lock by itself.
	subscribeWait = time.Second
	// pingEvery is how often a subscription that somebody waits on is tested.
	pingEvery = 2 * time.Second
	// refusedFor is how long the server's refusal is believed.
	refusedFor = 30 * time.Second
)

// subscription is the one connection on which the server tells a Locker's
// waiters that the lock is offered to them. It is made for the first of them
// and then kept.
type subscription struct {
	client      goredis.UniversalClient
	name        string                // of this Locker, as queued
	channel     string                // the prefix and the name
	reconnected func(context.Context) // called when it stands again; may be nil

	mu      sync.Mutex
	waiters map[string]func(time.Duration) // Request.Wake by id
	up      bool                           // the server confirmed it
	before  bool                           // it did so before
	changed chan struct{}                  // closed when up turns true or the server refuses
	refused time.Time                      // when it last did
	pubsub  *goredis.PubSub
	cancel  context.CancelFunc // nil: not running
	done    chan struct{}
	closed  bool

	health *time.Timer // set while there are waiters
	armed  bool
	silent int // tests since the server's last word
}

func newSubscription(client goredis.UniversalClient, channels string) *subscription {
	name := rand.Text()
	return &subscription{
		client: client, name: name, channel: channels + name,
		waiters: make(map[string]func(time.Duration)), changed: make(chan struct{}),
	}
}

// join notes a waiter and returns the name by which it can be told. If the
// subscription does not stand, it returns leaveQueue for a waiter that joined
// before, or "".
func (s *subscription) join(id string, wake func(time.Duration)) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.up {
		if s.waiters[id] != nil {
			return leaveQueue
		}
		return ""
	}
	s.waiters[id] = wake
	if !s.armed {
		s.armed, s.silent = true, 0
		s.health.Reset(pingEvery)
	}
	return s.name
}

func (s *subscription) leave(id string) {
	s.mu.Lock()
	delete(s.waiters, id)
	s.mu.Unlock()
}

// start brings the subscription up and reports whether it stands.
func (s *subscription) start(ctx context.Context) bool {
	s.mu.Lock()
	if s.closed || time.Since(s.refused) < refusedFor {
		s.mu.Unlock()
		return false
	}
	if s.cancel == nil {
		var running context.Context
		running, s.cancel = context.WithCancel(context.Background())
		s.done = make(chan struct{})
		s.health = time.AfterFunc(time.Hour, func() { s.test(running) })
		s.health.Stop()
		go s.run(running, s.done)
	}
	changed := s.changed
	s.mu.Unlock()
	patience := time.NewTimer(subscribeWait)
	defer patience.Stop()
	select {
	case <-changed:
	case <-ctx.Done():
	case <-patience.C:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.up
}

// run keeps the subscription until ctx ends or the server refuses it.
func (s *subscription) run(ctx context.Context, done chan struct{}) {
	defer close(done)
	failures := 0
	for ctx.Err() == nil {
		pubsub := s.client.Subscribe(ctx, s.channel)
		s.mu.Lock()
		s.pubsub = pubsub
		closed := s.closed
		s.mu.Unlock()
		for more := !closed; more; {
			m, err := pubsub.Receive(ctx)
			if err == nil {
				failures = 0
				s.heard(ctx, m)
				continue
			}
			// A connection that broke is made anew by the next Receive.
			more = !s.down(err) && !errors.Is(err, goredis.ErrClosed) && ctx.Err() == nil
			s.pause(ctx, failures)
			failures++
		}
		pubsub.Close() //nolint:errcheck // it is given up
	}
}

// pause waits a little longer with each failure in a row, up to 1 s.
func (s *subscription) pause(ctx context.Context, failures int) {
	timer := time.NewTimer(min(time.Duration(failures)*50*time.Millisecond, time.Second))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func (s *subscription) heard(ctx context.Context, m any) {
	s.mu.Lock()
	s.silent = 0
	s.mu.Unlock()
	switch m := m.(type) {
	case *goredis.Subscription:
		s.confirmed(ctx)
	case *goredis.Message:
		s.message(m.Payload)
	}
}

// confirmed wakes all waiters: while there was no subscription they may have
// missed a message.
func (s *subscription) confirmed(ctx context.Context) {
	s.mu.Lock()
	again := s.before
	s.before = true
	if !s.up {
		s.up = true
		close(s.changed)
	}
	wakes := make([]func(time.Duration), 0, len(s.waiters))
	for _, wake := range s.waiters {
		wakes = append(wakes, wake)
	}
	s.mu.Unlock()
	for _, wake := range wakes {
		wake(0)
	}
	if again && s.reconnected != nil {
		s.reconnected(ctx)
	}
}

// message reads "<delay in ms> <id>".
func (s *subscription) message(payload string) {
	delay, id, _ := strings.Cut(payload, " ")
	ms, err := strconv.Atoi(delay)
	if err != nil {
		return // not Interlock's
	}
	s.mu.Lock()
	wake := s.waiters[id]
	s.mu.Unlock()
	if wake != nil {
		wake(time.Duration(ms) * time.Millisecond)
	}
}

// down notes that the connection broke, and reports whether the server refused
// it.
func (s *subscription) down(err error) bool {
	var reply goredis.Error
	refused := errors.As(err, &reply) && !turnedAway(err)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.up {
		s.up = false
		s.changed = make(chan struct{})
	}
	if refused {
		s.refused = time.Now()
		close(s.changed)
		s.changed = make(chan struct{})
		s.cancel()
		s.cancel = nil
	}
	return refused
}

// test asks for a sign of life if there was none since the last test, and gives
// the connection up after two that had no answer.
func (s *subscription) test(ctx context.Context) {
	s.mu.Lock()
	if len(s.waiters) == 0 || s.closed || s.pubsub == nil {
		s.armed = false
		s.mu.Unlock()
		return
	}
	s.silent++
	silent, pubsub := s.silent, s.pubsub
	s.health.Reset(pingEvery)
	s.mu.Unlock()
	switch {
	case silent > 3:
		pubsub.Close() //nolint:errcheck // run makes another
	case silent > 1:
		ctx, cancel := context.WithTimeout(ctx, pingEvery)
		defer cancel()
		pubsub.Ping(ctx) //nolint:errcheck // an answer counts, not the sending
	}
}

// close ends the subscription and its goroutine.
func (s *subscription) close() {
	s.mu.Lock()
	s.closed = true
	cancel, pubsub, done := s.cancel, s.pubsub, s.done
	if s.health != nil {
		s.health.Stop()
	}
	s.mu.Unlock()
	if cancel == nil {
		return
	}
	cancel()
	if pubsub != nil {
		pubsub.Close() //nolint:errcheck // it is given up
	}
	<-done
}
