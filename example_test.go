package lock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/interlock-go/lock"
	_ "github.com/interlock-go/lock/memory" // or lock/all, for every URL scheme
)

// lockURL stands for os.Getenv("LOCK_URL"): here each example has a store of its
// own in memory.
func lockURL(example string) string { return "memory://" + example }

func Example() {
	ctx := context.Background()
	locker, err := lock.Open(ctx, lockURL("short-form"))
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()

	// It cannot forget to release. ctx ends with the caller's, or with the lock.
	err = lock.Do(ctx, locker, "report:2026-11", func(ctx context.Context, h *lock.Handle) error {
		fmt.Println("building", h.Name())
		return ctx.Err()
	})
	fmt.Println("error:", err)
	// Output:
	// building report:2026-11
	// error: <nil>
}

func Example_longForm() {
	ctx := context.Background()
	locker, err := lock.Open(ctx, lockURL("long-form"))
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()

	work := func(ctx context.Context) {
		h, _ := lock.FromContext(ctx)
		fmt.Println("working under", h.Name(), "with a TTL of", h.TTL())
	}
	report := func(ctx context.Context) error {
		h, err := locker.Acquire(ctx, "report:2026-11", lock.TTL(30*time.Second))
		if err != nil {
			return err
		}
		defer h.Release(ctx) // also frees when ctx is already cancelled
		work(h.Context())    // ends, with cause lock.ErrLost, before anyone else can get the lock
		return nil
	}
	fmt.Println("error:", report(ctx))
	// Output:
	// working under report:2026-11 with a TTL of 30s
	// error: <nil>
}

// shelf is a storage that refuses stale writers. In SQL, the two steps of
// reserve are statements of one transaction.
type shelf struct {
	mu        sync.Mutex
	lastToken lock.Token
	left      int
}

var errStale = errors.New("stale fencing token")

func (s *shelf) reserve(n int, token lock.Token) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	// First raise the token, only then read what the write depends on.
	if token <= 0 || token < s.lastToken {
		return fmt.Errorf("%w: %v, and the last was %v", errStale, token, s.lastToken)
	}
	s.lastToken = token
	if s.left < n {
		return errors.New("sold out")
	}
	s.left -= n
	return nil
}

func ExampleFenced() {
	ctx := context.Background()
	locker, err := lock.Open(ctx, lockURL("fenced"))
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()

	// A store in memory promises no more than FencingVolatile.
	inventory, err := lock.Fenced(locker, lock.FencingVolatile)
	if err != nil {
		log.Fatal(err)
	}
	sku42 := &shelf{left: 10}

	var stale lock.Token
	for range 2 {
		err = inventory.Do(ctx, "sku:42", func(_ context.Context, h *lock.FencedHandle) error {
			if stale == 0 {
				stale = h.Token() // of a holder who will wake up too late
			}
			return sku42.reserve(3, h.Token())
		})
		fmt.Println("left:", sku42.left, "error:", err)
	}
	fmt.Println(sku42.reserve(3, stale))
	// Output:
	// left: 7 error: <nil>
	// left: 4 error: <nil>
	// stale fencing token: 1, and the last was 2
}

// A store whose tokens are not good enough for the purpose is refused when the
// service starts, not when data is corrupt.
func ExampleFenced_tooWeak() {
	ctx := context.Background()
	locker, err := lock.Open(ctx, lockURL("too-weak"))
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()

	_, err = lock.Fenced(locker, lock.FencingConsensus)
	fmt.Println(errors.Is(err, lock.ErrNoToken))
	// Output: true
}

func ExampleTryDo() {
	ctx := context.Background()
	locker, err := lock.Open(ctx, lockURL("try"), lock.Owner("web-1"))
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()

	clean := func(context.Context, *lock.Handle) error {
		fmt.Println("cleaning")
		return nil
	}
	err = lock.Do(ctx, locker, "nightly", func(ctx context.Context, _ *lock.Handle) error {
		// As another host would find it.
		err := lock.TryDo(ctx, locker, "nightly", clean)
		var held *lock.HeldError
		if errors.As(err, &held) {
			fmt.Println("skipped: held by", held.Owner)
			return nil
		}
		return err
	})
	fmt.Println("error:", err)
	fmt.Println("error:", lock.TryDo(ctx, locker, "nightly", clean))
	// Output:
	// skipped: held by web-1
	// error: <nil>
	// cleaning
	// error: <nil>
}

// An Acquire that runs out of time while another holds the lock says both.
func ExampleLocker_acquire() {
	ctx := context.Background()
	locker, err := lock.Open(ctx, lockURL("deadline"))
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()

	h, err := locker.Acquire(ctx, "sku:42")
	if err != nil {
		log.Fatal(err)
	}
	defer h.Release(ctx)

	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	_, err = locker.Acquire(short, "sku:42")
	fmt.Println(errors.Is(err, context.DeadlineExceeded), errors.Is(err, lock.ErrHeld))
	// Output: true true
}

// The Context of a lock that is lost ends, and its cause says why.
func ExampleHandle_Context() {
	ctx := context.Background()
	locker, err := lock.Open(ctx, lockURL("loss"))
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()

	h, err := locker.Acquire(ctx, "sku:42", lock.MaxHold(20*time.Millisecond))
	if err != nil {
		log.Fatal(err)
	}
	<-h.Context().Done()
	var lost *lock.LostError
	fmt.Println(errors.As(context.Cause(h.Context()), &lost), lost.Cause == lock.CauseMaxHold)
	fmt.Println(errors.Is(h.Release(ctx), lock.ErrLost))
	// Output:
	// true true
	// true
}

// The configuration of a service says what each of its locks is for. Here it
// contradicts itself, and the service does not start.
func ExampleConfig_Open() {
	config := lock.Config{Lockers: map[string]lock.LockerConfig{
		"reports": {URL: "memory://config", Purpose: lock.PurposeEfficiency},
		"stock":   {URL: "memory://config", Purpose: lock.PurposeCorrectness},
	}}
	_, err := config.Open(context.Background())
	fmt.Println(errors.Is(err, lock.ErrNoToken))

	config.Lockers["stock"] = lock.LockerConfig{
		URL: "memory://config", Purpose: lock.PurposeCorrectness, Fencing: lock.FencingVolatile,
	}
	set, err := config.Open(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	defer set.Close()
	_, err = set.Fenced("stock")
	fmt.Println("error:", err)
	_, err = set.Locker("stock")
	fmt.Println(errors.Is(err, lock.ErrInvalid))
	// Output:
	// true
	// error: <nil>
	// true
}
