package conformance_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/conformance"
	"github.com/interlock-go/lock/memory"
)

// mutant is a locker that is broken in one way, and the checks that must find
// it, each with what it must say.
type mutant struct {
	flaw    string
	subject func(flaw string) conformance.Subject
	finds   map[string]string
}

// broken is a store, or its client, with the flaw.
func broken(flaw string) conformance.Subject {
	return conformance.Subject{
		Start:        func(context.Context) (*conformance.Server, error) { return startStore(flaw) },
		SmallestPool: func(url string) string { return url },
	}
}

// brokenMemory is a store in memory whose client has the flaw. It wakes waiters
// at once.
func brokenMemory(flaw string) conformance.Subject {
	s := memory.NewStore()
	return conformance.Subject{
		InProcess: true,
		Start: func(context.Context) (*conformance.Server, error) {
			return &conformance.Server{URL: "memory://flawed"}, nil
		},
		Open: func(_ context.Context, _ string, opts ...lock.SetupOption) (lock.Locker, error) {
			b, err := memory.NewBackend(s)
			if err != nil {
				return nil, err
			}
			return lock.New(flawed(b, flaw), opts...)
		},
		Without: []string{"Residue"},
	}
}

// seamed is a right store under an engine with the flaw.
func seamed(seam func(flaw string) conformance.Seam) func(flaw string) conformance.Subject {
	return func(flaw string) conformance.Subject { return broken("").With(seam(flaw)) }
}

// opens is a right store whose Open has the flaw.
func opens(rewrite func(url string) string) func(flaw string) conformance.Subject {
	return func(string) conformance.Subject {
		s := broken("")
		s.Open = func(ctx context.Context, url string, opts ...lock.SetupOption) (lock.Locker, error) {
			return lock.Open(ctx, rewrite(url), opts...)
		}
		return s
	}
}

// noTokens is a store without tokens under an engine with the flaw.
func noTokens(flaw string) conformance.Subject {
	return broken("promises no tokens").With(lockersThat(flaw))
}

// alonePerProcess is a lock that is a variable of each process.
func alonePerProcess(string) conformance.Subject {
	s := broken("")
	s.Open = func(ctx context.Context, _ string, opts ...lock.SetupOption) (lock.Locker, error) {
		return memory.New(ctx, memory.Named("alone"), opts...)
	}
	return s
}

// noContext is an engine whose Contexts do not lead back to the handle.
func noContext(string) conformance.Seam {
	return conformance.Seam{FromContext: func(context.Context) (*lock.Handle, bool) { return nil, false }}
}

var mutants = []mutant{
	// Stores.
	{"release frees nothing", broken, map[string]string{"release-frees": "", "nothing-stays": "has left at the store"}},
	{"releases whoever asks", broken, map[string]string{"late-release-spares-others": "TryAcquire got the lock"}},
	{"never expires", broken, map[string]string{"ttl-is-kept": "context deadline exceeded: held", "crash-frees": "context deadline exceeded: held"}},
	{"never expires, and releases slowly", broken, map[string]string{"crash-in-the-midst": ""}},
	{"counts in whole seconds", broken, map[string]string{"ttl-is-kept": "another got the lock after"}},
	{"expires early", broken, map[string]string{"expiry-is-told-first": "still said nil", "grace": "another got the lock", "min-hold": "another got the lock"}},
	{"renewal keeps the first TTL", broken, map[string]string{"extend": ""}},
	{"renews whoever asks", broken, map[string]string{"theft-is-told": "hear that its entry was taken away", "do-tells-loss": "had not ended"}},
	{"renewal takes the lock anew", broken, map[string]string{"acquire-after-theft": ""}},
	{"is re-entrant by owner", broken, map[string]string{"same-owner-excludes": "the same owner label"}},
	{"dead waiters block", broken, map[string]string{"given-up-wait": "", "nothing-stays": "waiter", "given-up-wait-while-cut": ""}},
	{"cuts names to 64 bytes", broken, map[string]string{"names-are-separate": "meets another"}},
	{"folds the case of names", broken, map[string]string{"names-are-separate": `"A" meets another`}},
	{"cleans names as paths", broken, map[string]string{"names-are-separate": "meets another"}},
	{"names end at NUL", broken, map[string]string{"names-are-separate": "meets another"}},
	{"hashes names to 32 bits", broken, map[string]string{"name-hashes-are-wide": "tenant:.* meet"}},
	{"gives each holder the same token", broken, map[string]string{"tokens-grow": "got token 7 after one with 7", "stale-writer": "", "token-asked-for": "two holders"}},
	{"gives falling tokens", broken, map[string]string{"tokens-grow": "", "token-stays": "the next holder's token", "token-base": ""}},
	{"keeps its tokens in the entry", broken, map[string]string{"tokens-grow-after-theft": "after the entry was taken away"}},
	{"forgets tokens in a crash", broken, map[string]string{"tokens-grow-over-restart": ""}},
	{"forgets locks in a crash", broken, map[string]string{"locks-survive-restart": "another got the lock"}},
	// Clients.
	{"is re-entrant in a client", broken, map[string]string{"goroutines-exclude": "another goroutine of the same client"}},
	{"grants a held lock at times", broken, map[string]string{"clients-exclude": "holders at once"}},
	{"never wakes a waiter", broken, map[string]string{"release-wakes": "", "no-lost-wakeup": "", "expiry-wakes": "", "others-get-their-turn": ""}},
	{"polls without rest", broken, map[string]string{"waiting-is-idle": "requests a second"}},
	{"promises first come, first served", broken, map[string]string{"fifo": "turn"}},
	{"renews nothing", broken, map[string]string{"renewal-keeps": "two holders"}},
	{"calls a held lock an outage", broken, map[string]string{"held-says-who": "store unavailable"}},
	{"calls an outage a held lock", broken, map[string]string{"outage-is-not-held": ""}},
	{"does not tell the owner", broken, map[string]string{"owner-is-shown": ""}},
	{"does not tell the time left", broken, map[string]string{"held-says-who": "0s left"}},
	{"forgets a grant when ctx ends", brokenMemory, map[string]string{"cancel-races-grant": "was not to be had"}},
	{"forgets a grant without an answer", broken, map[string]string{"lost-grant-is-freed": "was not to be had", "lost-answer-of-try": "was not to be had"}},
	{"trusts from the answer", broken, map[string]string{"late-grant": "before its other holder"}},
	{"trusts its lock for too long", broken, map[string]string{"cut-off-holder-stops-first": "still says nil", "stopped-holder": ""}},
	{"takes an outage for a loss", broken, map[string]string{"blip-is-survived": "by an outage", "short-pause": "while the server hung"}},
	{"takes every release for a loss", broken, map[string]string{"release-cause": "lost: its entry"}},
	{"takes every release for done", broken, map[string]string{"release-without-store": "was not to be had"}},
	{"fails the first release", broken, map[string]string{"observer": ""}},
	{"never connects again", broken, map[string]string{"acquire-after-partition": "", "server-restart": ""}},
	{"waits on its only connection", broken, map[string]string{"smallest-pool": ""}},
	{"leaks a goroutine", broken, map[string]string{"nothing-leaks": "goroutines"}},
	{"has a goroutine for each lock", broken, map[string]string{"many-held-locks": "200 held locks have"}},
	{"keeps a lost lock in its books", broken, map[string]string{"acquire-after-theft": "held by this client"}},
	{"gives no tokens", broken, map[string]string{"token-asked-for": "no fencing token"}},
	{"cuts its tokens", broken, map[string]string{"stale-writer": ""}},
	{"changes its guarantees", broken, map[string]string{"guarantees": "Guarantees were"}},
	{"promises a TTL of 1 ms", broken, map[string]string{"shortest-ttl": ""}},
	{"says that only the process ends a lock", broken, map[string]string{"stopped-holder-keeps": "TryAcquire got the lock"}},
	{"is a variable of the process", alonePerProcess, map[string]string{"processes-exclude": "two holders|lost|took away"}},
	// Engines.
	{"releases once", seamed(handlesThat), map[string]string{"release-is-idempotent": "released already"}},
	{"obeys an ended ctx in Release", seamed(handlesThat), map[string]string{"release-with-ended-ctx": "was not to be had"}},
	{"tells no loss", seamed(handlesThat), map[string]string{"release-after-loss": "gave no error", "extend-after-expiry": "gave no error"}},
	{"calls a release a loss", seamed(handlesThat), map[string]string{"release-cause": "after a clean release"}},
	{"frees at MaxHold", seamed(handlesThat), map[string]string{"max-hold": "freed under work"}},
	{"blocks after Release", seamed(handlesThat), map[string]string{"handles-are-concurrent": "waited 5s"}},
	{"gives a new token at each Extend", seamed(handlesThat), map[string]string{"token-stays": "the token was"}},
	{"cuts tokens to 32 bits", seamed(handlesThat), map[string]string{"token-base": "with TokenBase"}},
	{"cannot be zero", seamed(handlesThat), map[string]string{"zero-handle": "panicked"}},
	{"has a Context without values", seamed(handlesThat), map[string]string{"handle-context": "values of Acquire's ctx"}},
	{"has Contexts that lead nowhere", seamed(noContext), map[string]string{"handle-context": "FromContext", "do-releases": "FromContext"}},
	{"ignores ctx", seamed(lockersThat), map[string]string{"ctx-ends-wait": "", "ctx-is-obeyed": "", "paused-server": ""}},
	{"waits in TryAcquire", seamed(lockersThat), map[string]string{"try-under-waiters": "at the median"}},
	{"takes any name", seamed(lockersThat), map[string]string{"bad-names": "gave no error|function of Do ran"}},
	{"ignores bad options", seamed(lockersThat), map[string]string{"bad-ttl": "gave no error", "bad-arguments": "gave no error"}},
	{"ignores bad options", noTokens, map[string]string{"no-token-is-said": "gave no error"}},
	{"ties the hold to Acquire's ctx", seamed(lockersThat), map[string]string{"renewal-keeps": "two holders|released"}},
	{"does not close", seamed(lockersThat), map[string]string{"close": "an Acquire that waited|to end with its Locker"}},
	{"closes slowly", seamed(lockersThat), map[string]string{"close-is-bounded": "Close took"}},
	{"does not release after a panic", seamed(do), map[string]string{"do-releases": "function panicked"}},
	{"frees when ctx ends", seamed(do), map[string]string{"do-waits-for-its-function": "TryAcquire got the lock"}},
	{"tells no loss", seamed(do), map[string]string{"do-tells-loss": "gave no error"}},
	// URLs.
	{"ignores an unknown parameter", opens(func(url string) string { return strings.ReplaceAll(url, "&tll=5s", "") }), map[string]string{"url-mistakes": "store unavailable"}},
	{"takes a plus for a space", opens(func(url string) string { return strings.Replace(url, "+a%2B", "%20a%2B", 1) }), map[string]string{"url-password": "wrong user or password"}},
	{"takes the brackets off an address", opens(func(url string) string { return strings.NewReplacer("[", "", "]", "").Replace(url) }), map[string]string{"url-ipv6": ""}},
	{"takes minutes for milliseconds", opens(func(url string) string { return strings.Replace(url, "ttl=2m", "ttl=200ms", 1) }), map[string]string{"url-durations": "the TTL is"}},
	{"ignores a setting", opens(func(url string) string { return strings.ReplaceAll(url, "&renew=false", "") }), map[string]string{"url-settings": "to run out|was renewed"}},
}

// TestChild is what child processes of the tests with a store run.
func TestChild(t *testing.T) { conformance.Child(broken("")) }

// TestAloneChild is what those of alonePerProcess run.
func TestAloneChild(t *testing.T) { conformance.Child(alonePerProcess("")) }

func childArgs(test string) []string {
	return []string{"-test.run=^" + test + "$", "-test.count=1", "-test.timeout=10m"}
}

// TestEveryCheckHasAMutant: a check that nothing fails proves nothing.
func TestEveryCheckHasAMutant(t *testing.T) {
	finds := make(map[string]bool)
	flaws := make(map[string]bool)
	for _, m := range mutants {
		flaws[m.flaw] = true
		for check := range m.finds {
			finds[check] = true
		}
	}
	for _, c := range conformance.Checks() {
		if !finds[c.Name] {
			t.Errorf("no mutant fails the check %s", c.Name)
		}
	}
	if len(flaws) < 20 {
		t.Errorf("%d mutants, want at least 20", len(flaws))
	}
}

// TestMutants: the checks that a mutant names find it.
func TestMutants(t *testing.T) {
	t.Cleanup(func() { close(over) })
	alone := make(map[string]bool)
	for _, c := range conformance.Checks() {
		alone[c.Name] = c.Alone()
	}
	slots := make(chan struct{}, 14) // they hardly use a processor
	for _, phase := range []string{"together", "alone"} {
		t.Run(phase, func(t *testing.T) {
			for _, m := range mutants {
				for check, says := range m.finds {
					if alone[check] != (phase == "alone") {
						continue
					}
					t.Run(check+"/"+m.flaw, func(t *testing.T) {
						want := regexp.MustCompile(says)
						var took time.Duration
						found := make(chan error, 1)
						go func() {
							slots <- struct{}{}
							defer func() { <-slots }()
							began := time.Now()
							var err error
							for range 3 { // a busy machine can hide what is a matter of time
								if err = m.check(t.Context(), check); err != nil && want.MatchString(err.Error()) {
									break
								}
							}
							took = time.Since(began)
							found <- err
						}()
						if phase == "together" {
							t.Parallel()
						}
						err := <-found
						if err == nil {
							t.Fatalf("a locker that %s passes the check %s", m.flaw, check)
						}
						t.Logf("%v: %.600v", took.Round(time.Millisecond), err)
						if !want.MatchString(err.Error()) {
							t.Errorf("a locker that %s fails the check %s, but not for its flaw, which would match %q: %v", m.flaw, check, says, err)
						}
					})
				}
			}
		})
	}
}

// check returns what a check finds.
func (m mutant) check(ctx context.Context, name string) error {
	args := childArgs("TestChild")
	if m.flaw == "is a variable of the process" {
		args = childArgs("TestAloneChild")
	}
	res, err := conformance.Verify(ctx, m.subject(m.flaw), conformance.Options{Only: []string{name}, Args: args})
	if err != nil {
		return fmt.Errorf("the suite did not run: %w", err)
	}
	if len(res.Outcomes) != 1 || res.Outcomes[0].Skipped != "" {
		return fmt.Errorf("the check was not run: %+v", res.Outcomes)
	}
	return res.Outcomes[0].Err
}
