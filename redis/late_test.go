package redis

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/interlock-go/lock"
)

func TestLateCopyOfAnAcquireCutsNothing(t *testing.T) {
	s := startServer(t)
	admin := s.admin()
	for _, params := range []string{"", "?fencing=counter"} {
		b := openBackend(t, s.url(params))
		req, _ := request("late"+params, time.Second)
		first, err := b.Acquire(t.Context(), req)
		must(t, err)
		must(t, first.Lease.Renew(t.Context(), time.Minute))
		again, err := b.Acquire(t.Context(), req)
		must(t, err)
		if again.Token != first.Token {
			t.Errorf("token %d, then %d for the same acquisition", first.Token, again.Token)
		}
		if left := admin.PTTL(t.Context(), b.keysOf(req.Name).lock).Val(); left < 55*time.Second {
			t.Errorf("%q: %v left after a second copy of the request for 1s, want the minute that was added", params, left)
		}
	}
}

func TestTokensEndBeforeTheyRepeat(t *testing.T) {
	s := startServer(t)
	admin := s.admin()
	b := openBackend(t, s.url("?fencing=counter"))
	for _, last := range []string{"9007199254740991", "4600000000000000000", "-5e300", "text"} {
		must(t, admin.Set(t.Context(), defaultPrefix+"token", last, 0).Err())
		req, _ := request("n", time.Second)
		g, err := b.Acquire(t.Context(), req)
		if err == nil || errors.Is(err, lock.ErrUnavailable) || !strings.Contains(err.Error(), "counter of the tokens") {
			t.Errorf("counter %s: token %d, %v; want a lasting error that names the counter", last, g.Token, err)
		}
		if n := admin.Exists(t.Context(), b.keysOf("n").lock).Val(); n != 0 {
			t.Errorf("counter %s: the lock was taken", last)
		}
	}
	must(t, admin.Set(t.Context(), defaultPrefix+"token", "9007199254740990", 0).Err())
	req, _ := request("n", time.Second)
	if g, err := b.Acquire(t.Context(), req); err != nil || g.Token != 9007199254740991 {
		t.Errorf("the greatest token: %d, %v", g.Token, err)
	}
}

// The waiter sleeps until the holder's time would have ended, unless it is told
// that it ends sooner.
func TestWaiterHearsOfAShortenedHold(t *testing.T) {
	s := startServer(t)
	for what, shorten := range map[string]func(h *lock.Handle, l lock.Locker) error{
		"Extend": func(h *lock.Handle, _ lock.Locker) error { return h.Extend(t.Context(), time.Second) },
		"MinHold": func(h *lock.Handle, l lock.Locker) error {
			return errors.Join(h.Release(t.Context()), l.Close())
		},
	} {
		holder, err := lock.Open(t.Context(), s.URL())
		must(t, err)
		defer holder.Close()
		waiter, err := lock.Open(t.Context(), s.URL())
		must(t, err)
		defer waiter.Close()
		h, err := holder.Acquire(t.Context(), what, lock.TTL(25*time.Second), lock.NoRenew(), lock.MinHold(2*time.Second))
		must(t, err)
		got := make(chan error, 1)
		go func() {
			w, err := waiter.Acquire(t.Context(), what)
			if err == nil {
				err = w.Release(t.Context())
			}
			got <- err
		}()
		admin := s.admin()
		within(t, 5*time.Second, "the waiter to be queued", func() bool {
			return admin.Exists(t.Context(), (&backend{prefix: defaultPrefix}).keysOf(what).queue).Val() == 1
		})
		must(t, shorten(h, holder))
		select {
		case err := <-got:
			must(t, err)
		case <-time.After(12 * time.Second):
			t.Errorf("%s: waited 12s for the waiter to have the lock, whose hold was cut to 2s at most", what)
		}
	}
}

func TestWaiterLooksForItselfWhereNobodyMayPublish(t *testing.T) {
	s := startServer(t)
	admin := s.admin()
	must(t, admin.Do(t.Context(), "ACL", "SETUSER", "mute", "on", ">pw", "~*", "&*", "+@all", "-publish").Err())
	url := "redis://mute:pw@" + s.Addr()
	holder, err := lock.Open(t.Context(), url)
	must(t, err)
	defer holder.Close()
	waiter, err := lock.Open(t.Context(), url)
	must(t, err)
	defer waiter.Close()
	h, err := holder.Acquire(t.Context(), "n", lock.TTL(25*time.Second))
	must(t, err)
	got := make(chan error, 1)
	before := calls(t, admin, "evalsha")
	go func() {
		_, err := waiter.Acquire(t.Context(), "n")
		got <- err
	}()
	within(t, 5*time.Second, "the waiter to find the lock held", func() bool { return calls(t, admin, "evalsha") != before })
	must(t, h.Release(t.Context()))
	select {
	case err := <-got:
		must(t, err)
	case <-time.After(10 * time.Second):
		t.Error("waited 10s for the waiter to find the lock free")
	}
}

func TestKeyPastedForItsFileIsNotShown(t *testing.T) {
	const secret = "MIIEvQIBADANBgkq-S3CR3T"
	empty := filepath.Join(t.TempDir(), "empty.pem")
	must(t, os.WriteFile(empty, nil, 0o600))
	for _, query := range []string{
		"ca=" + secret, "cert=" + secret + "&key=" + secret, "cert=" + empty + "&key=" + secret,
		"ca=-----BEGIN%20PRIVATE%20KEY-----%0A" + secret,
	} {
		_, err := lock.Open(t.Context(), "rediss://127.0.0.1:1/?"+query)
		if !errors.Is(err, lock.ErrInvalid) || strings.Contains(err.Error(), secret) {
			t.Errorf("%.10s…: %v, want ErrInvalid without the value", query, err)
		}
	}
}
