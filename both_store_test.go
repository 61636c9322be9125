package lock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/conformance"
	"github.com/interlock-go/lock/internal/testserver"
	"github.com/interlock-go/lock/memory"
	_ "github.com/interlock-go/lock/redis"
)

// closesAll is a Locker on others that are its own. It closes them behind, since
// each may take its 5 s.
type closesAll struct {
	lock.Locker
	inner [2]lock.Locker
}

func (c closesAll) Unwrap() lock.Locker { return c.Locker }

func (c closesAll) Close() error {
	err := c.Locker.Close()
	for _, l := range c.inner {
		go l.Close()
	}
	return err
}

func openBoth(ctx context.Context, urls [2]string, opts []lock.SetupOption) (lock.Locker, error) {
	var c closesAll
	for i, url := range urls {
		l, err := lock.Open(ctx, url)
		if err != nil {
			return nil, err
		}
		c.inner[i] = l
	}
	l, err := lock.Both(c.inner[0], c.inner[1], opts...)
	if err != nil {
		return nil, errors.Join(err, c.inner[0].Close(), c.inner[1].Close())
	}
	c.Locker = l
	return c, nil
}

// TestBothConformance: two locks at once keep every rule that one keeps.
func TestBothConformance(t *testing.T) {
	conformance.Run(t, conformance.Subject{
		Open: func(ctx context.Context, url string, opts ...lock.SetupOption) (lock.Locker, error) {
			return openBoth(ctx, [2]string{url + "?fencing=counter", url + "?prefix=second:"}, opts)
		},
		Start: func(context.Context) (*conformance.Server, error) {
			r := testserver.NeedRedis(t, testserver.RedisOptions{Own: true})
			admin := goredis.NewClient(&goredis.Options{Addr: r.Addr()})
			t.Cleanup(func() { _ = admin.Close() })
			return &conformance.Server{
				URL: r.URL(), Pause: r.Pause, Resume: r.Resume, Kill: r.Kill, Restart: r.Restart,
				Steal: func(ctx context.Context, name string) error {
					return admin.Del(ctx, "interlock:{"+name+"}", "second:{"+name+"}").Err()
				},
			}, nil
		},
		Without: []string{"Residue", "SmallestPool", "Login", "URL"},
	})
}

// TestBothInEitherOrder: those who name the stores in one order and those who
// name them in the other exclude each other, and do not wait for each other for
// ever; nor do those who know one store alone.
func TestBothInEitherOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		stores := [2]*memory.Store{memory.NewStore(), memory.NewStore()}
		open := func(i int) lock.Locker {
			l, err := memory.New(ctx, stores[i], lock.TTL(2*time.Second))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = l.Close() })
			return l
		}
		lockers := map[string]lock.Locker{"old": open(0), "new": open(1)}
		for name, order := range map[string][2]int{"old+new": {0, 1}, "new+old": {1, 0}} {
			l, err := lock.Both(open(order[0]), open(order[1]), lock.TTL(2*time.Second))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = l.Close() })
			lockers[name] = l
		}
		var mu sync.Mutex
		holds := map[string]bool{}
		enter := func(name string, in bool) {
			mu.Lock()
			defer mu.Unlock()
			if !in {
				delete(holds, name)
				return
			}
			holds[name] = true
			alone := len(holds) == 1 || len(holds) == 2 && holds["old"] && holds["new"] // who know one store each
			if !alone {
				t.Errorf("held at once: %v", holds)
			}
		}
		var wg sync.WaitGroup
		for name, l := range lockers {
			wg.Go(func() {
				for range 50 {
					err := lock.Do(ctx, l, "n", func(context.Context, *lock.Handle) error {
						enter(name, true)
						time.Sleep(10 * time.Millisecond)
						enter(name, false)
						return nil
					})
					if err != nil {
						t.Errorf("%s: %v", name, err)
						return
					}
					time.Sleep(time.Millisecond)
				}
			})
		}
		wg.Wait()
	})
}
