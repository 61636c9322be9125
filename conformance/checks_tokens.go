package conformance

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/interlock-go/lock"
)

var tokenChecks = []Check{
	{
		Name: "tokens-grow", Cases: []string{"K01"}, not: onlyFencing,
		Rule: "Each holder's token is greater than those of all holders of the name before it, over releases and expiry, whoever they were.",
		run:  tokensGrow,
	},
	{
		Name: "tokens-grow-after-theft", Cases: []string{"K01"}, not: onlyFencing, needs: []string{needSteal},
		Rule: "Tokens go on growing when the entry at the store was taken away.",
		run:  tokensGrowAfterTheft,
	},
	{
		Name: "token-stays", Cases: []string{"K01"}, not: onlyFencing,
		Rule: "A holder's token does not change, neither by renewal nor by Extend.",
		run:  tokenStays,
	},
	{
		Name: "stale-writer", Cases: []string{"K02"}, not: onlyFencing,
		Rule: "A store that refuses lower tokens refuses a holder that wakes after a later one has written.",
		run:  staleWriter,
	},
	{
		Name: "token-asked-for", Cases: []string{"K03"}, not: onlyFencing,
		Rule: "An acquisition with WithToken has a token above zero, and Token never says true of one that is not.",
		run:  tokenAskedFor,
	},
	{
		Name: "token-base", not: onlyFencing,
		Rule: "TokenBase is added to every token.",
		run:  tokenBase,
	},
	{
		Name: "no-token-is-said", Cases: []string{"K03"}, not: onlyNoFencing,
		Rule: "Where there are no tokens, WithToken is ErrNoToken, nothing is taken, and Token says false.",
		run:  noTokenIsSaid,
	},
}

// token returns the token of a handle that was asked for one.
func (t *T) token(h handle) lock.Token {
	token, ok := h.Token()
	if !ok || token <= 0 {
		t.fail("Token says %d, %v for an acquisition with WithToken", token, ok)
	}
	return token
}

func tokensGrow(ctx context.Context, t *T) error {
	name := t.name()
	clients := []*client{t.open(), t.open(), t.open()}
	ttl := t.ttl(250 * time.Millisecond)
	var mu sync.Mutex // protects last; it is taken under the lock only
	var last lock.Token
	return t.all(6, func(i int) error {
		c := clients[i%len(clients)]
		for n := range t.count(6, 500) {
			opts := []lock.Option{lock.WithToken(), lock.TTL(t.ttl(20 * time.Second))}
			runsOut := i == 0 && n%3 == 1
			if runsOut {
				opts = []lock.Option{lock.WithToken(), lock.TTL(ttl), lock.NoRenew()}
			}
			h := c.takeWithin(30*time.Second, name, opts...)
			mu.Lock()
			now := t.token(h)
			before := last
			if runsOut && h.Err() != nil {
				before = 0 // this goroutine was so slow that others may have come before it
			} else {
				last = max(last, now)
			}
			mu.Unlock()
			if now <= before {
				_ = c.release(h)
				return fmt.Errorf("a holder got token %d after one with %d", now, before)
			}
			if runsOut {
				t.lossOf(h, ttl+soon, "a lock without renewal to run out")
				continue
			}
			c.free(h)
		}
		return nil
	})
}

func tokensGrowAfterTheft(ctx context.Context, t *T) error {
	a, b, name := t.open(), t.open(), t.name()
	var last lock.Token
	for i := range t.count(4, 50) {
		c := a
		if i%2 == 1 {
			c = b
		}
		h := c.take(name, lock.WithToken())
		now := t.token(h)
		if now <= last {
			return fmt.Errorf("the token was %d, and %d after the entry was taken away", last, now)
		}
		last = now
		t.steal(name)
	}
	return nil
}

func tokenStays(ctx context.Context, t *T) error {
	c, name := t.open(), t.name()
	ttl := t.ttl(450 * time.Millisecond)
	h := c.take(name, lock.WithToken(), lock.TTL(ttl))
	want := t.token(h)
	for end := time.Now().Add(2 * ttl); time.Now().Before(end); t.pause(ttl / 5) {
		t.must(c.extend(h, ttl))
		if now := t.token(h); now != want {
			return fmt.Errorf("the token was %d and is %d", want, now)
		}
	}
	c.free(h)
	if now := t.token(h); now != want {
		return fmt.Errorf("the token was %d and is %d after the release", want, now)
	}
	next := c.take(name, lock.WithToken())
	if now := t.token(next); now <= want {
		return fmt.Errorf("the next holder's token is %d, that of the one before %d", now, want)
	}
	c.free(next)
	return nil
}

func staleWriter(ctx context.Context, t *T) error {
	a, b, name := t.open(), t.open(), t.name()
	ttl := t.ttl(200 * time.Millisecond)
	var highest lock.Token // as a store keeps it beside its data
	write := func(token lock.Token) bool {
		if token < highest {
			return false
		}
		highest = token
		return true
	}
	for range t.count(3, 100) {
		stalls := a.take(name, lock.WithToken(), lock.TTL(ttl), lock.NoRenew())
		if !write(t.token(stalls)) {
			return fmt.Errorf("the store refuses token %d of the present holder: it has seen %d", t.token(stalls), highest)
		}
		next := b.takeWithin(ttl+soon+opBound, name, lock.WithToken(), lock.TTL(t.ttl(20*time.Second)))
		if !write(t.token(next)) {
			return fmt.Errorf("the store refuses token %d of the present holder: it has seen %d", t.token(next), highest)
		}
		if write(t.token(stalls)) {
			return fmt.Errorf("the store takes a write with token %d of a holder that ran out, after one with %d", t.token(stalls), t.token(next))
		}
		b.free(next)
	}
	return nil
}

func tokenAskedFor(ctx context.Context, t *T) error {
	c := t.open()
	seen := make(map[lock.Token]bool)
	name := t.name()
	for range t.count(5, 100) {
		h := c.take(name, lock.WithToken())
		token := t.token(h)
		if seen[token] {
			return fmt.Errorf("two holders of one name have token %d", token)
		}
		seen[token] = true
		c.free(h)
		h = c.take(name)
		if token, ok := h.Token(); ok != (token > 0) || token < 0 {
			return fmt.Errorf("Token says %d, %v", token, ok)
		}
		c.free(h)
	}
	return nil
}

func tokenBase(ctx context.Context, t *T) error {
	const base = 1 << 40
	plain, based, name := t.open(), t.open(lock.TokenBase(base)), t.name()
	h := plain.take(name, lock.WithToken())
	first := t.token(h)
	plain.free(h)
	h = based.take(name, lock.WithToken())
	second := t.token(h)
	based.free(h)
	h = plain.take(name, lock.WithToken())
	third := t.token(h)
	plain.free(h)
	if second-base <= first || second-base >= third {
		return fmt.Errorf("with TokenBase %d the token is %d, between %d and %d without", base, second, first, third)
	}
	return nil
}

func noTokenIsSaid(ctx context.Context, t *T) error {
	c, name := t.open(), t.name()
	_, err := c.try(name, lock.WithToken())
	t.wantIs("TryAcquire with WithToken", err, lock.ErrNoToken)
	_, err = c.acquire(ctx, name, lock.WithToken())
	t.wantIs("Acquire with WithToken", err, lock.ErrNoToken)
	h := c.take(name)
	if token, ok := h.Token(); ok || token != 0 {
		return fmt.Errorf("Token says %d, %v", token, ok)
	}
	c.free(h)
	return nil
}
