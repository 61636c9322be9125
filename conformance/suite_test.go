package conformance_test

import (
	"context"
	"errors"
	"go/build"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/conformance"
	"github.com/interlock-go/lock/memory"
)

// TestConformance runs the whole suite on the store that the mutants break.
func TestConformance(t *testing.T) { conformance.Run(t, broken("")) }

// TestCases: the reports from the field that concern all backends are each some
// check's, but for those that need what only one backend has.
func TestCases(t *testing.T) {
	generic := strings.Fields(`A01 A02 A03 A06 A08 A10 A13 B01 B02 B03 B07 B11 B12 B14 B15 B17 B18 C01 C02 C06 C07 C08 C09 C13 C16 C18
		D04 D05 D07 D08 E01 E02 E08 E09 K01 K02 K03 L01 L02 L03 L04 M01 M02 M03 M06`)
	seen := make(map[string]bool)
	names := make(map[string]bool)
	sentence := regexp.MustCompile(`^[A-Z].*[^.]\.$`)
	for _, c := range conformance.Checks() {
		for _, id := range c.Cases {
			seen[id] = true
			if !slices.Contains(generic, id) {
				t.Errorf("the check %s stands for an unknown case %q", c.Name, id)
			}
		}
		if !sentence.MatchString(c.Rule) {
			t.Errorf("the rule of %s is no sentence: %q", c.Name, c.Rule)
		}
		if names[c.Name] {
			t.Errorf("two checks are called %s", c.Name)
		}
		names[c.Name] = true
	}
	for _, id := range generic {
		if !seen[id] {
			t.Errorf("no check stands for case %s", id)
		}
	}
}

// inMemory is a right store without its hooks.
func inMemory(without ...string) conformance.Subject {
	return conformance.Subject{
		InProcess: true,
		Start: func(context.Context) (*conformance.Server, error) {
			return &conformance.Server{URL: "memory://bare"}, nil
		},
		Open: func(ctx context.Context, _ string, opts ...lock.SetupOption) (lock.Locker, error) {
			return memory.New(ctx, memory.Named("bare"), opts...)
		},
		Without: without,
	}
}

func TestMissingAbilityFails(t *testing.T) {
	for _, check := range []string{"theft-is-told", "nothing-stays", "given-up-wait"} {
		res, err := conformance.Verify(t.Context(), inMemory(), conformance.Options{Only: []string{check}})
		if err != nil {
			t.Fatal(err)
		}
		if err := res.Err(); err == nil || !strings.Contains(err.Error(), "name it in Subject.Without") {
			t.Errorf("%s without what it needs: %v", check, err)
		}
	}
	res, err := conformance.Verify(t.Context(), inMemory("Steal", "Residue"), conformance.Options{Only: []string{"theft-is-told", "given-up-wait"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := res.Err(); err != nil {
		t.Errorf("with what is missing named: %v", err)
	}
	if got := res.String(); got != "1 checks passed, 0 failed, 1 not run" {
		t.Errorf("the result is %q", got)
	}
	for _, o := range res.Outcomes {
		if o.Check.Name == "theft-is-told" && o.Skipped != "Subject.Without has Steal" {
			t.Errorf("theft-is-told was not run because %q", o.Skipped)
		}
	}
}

func TestMistakesInTheSubject(t *testing.T) {
	for what, s := range map[string]conformance.Subject{
		"Subject.Start is nil":           {},
		`Subject.Without has "Restarts"`: inMemory("Restarts"),
		"starting the store: no power":   {Start: func(context.Context) (*conformance.Server, error) { return nil, errors.New("no power") }},
	} {
		if _, err := conformance.Verify(t.Context(), s, conformance.Options{}); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("got %v, want an error with %q", err, what)
		}
	}
	if _, err := conformance.Verify(t.Context(), inMemory(), conformance.Options{Only: []string{"no-such"}}); err == nil || !strings.Contains(err.Error(), `"no-such"`) {
		t.Errorf("Only with an unknown check: %v", err)
	}
}

// TestHungLocker: a check that hangs fails, and does not hang the suite.
func TestHungLocker(t *testing.T) {
	s := inMemory("Steal", "Residue").With(conformance.Seam{Locker: func(l lock.Locker) lock.Locker { return hung{l} }})
	began := time.Now()
	err := conformance.PerformWithin(t.Context(), s, "release-frees", 300*time.Millisecond)
	if err == nil || !strings.Contains(err.Error(), "waited 300ms for Acquire") || !strings.Contains(err.Error(), "hung.Acquire") {
		t.Errorf("a check that hangs: %v", err)
	}
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("it took %v", took)
	}
}

type hung struct{ lock.Locker }

func (hung) Acquire(context.Context, string, ...lock.Option) (*lock.Handle, error) { select {} }

// TestPanicIsReported: a locker that panics fails the check.
func TestPanicIsReported(t *testing.T) {
	s := inMemory("Steal", "Residue").With(conformance.Seam{Locker: func(l lock.Locker) lock.Locker { return panics{l} }})
	err := conformance.PerformWithin(t.Context(), s, "release-frees", 10*time.Second)
	if err == nil || !strings.Contains(err.Error(), "panic: out of order") {
		t.Errorf("a check whose locker panics: %v", err)
	}
}

type panics struct{ lock.Locker }

func (panics) Acquire(context.Context, string, ...lock.Option) (*lock.Handle, error) {
	panic("out of order")
}

// TestWithoutPackageTesting: programs may link the suite.
func TestWithoutPackageTesting(t *testing.T) {
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{".", "faultproxy"} {
		p, err := build.Default.ImportDir(wd+"/"+dir, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range p.Imports {
			if i == "testing" || strings.Contains(i, ".") && !strings.HasPrefix(i, "github.com/interlock-go/lock") && !strings.HasPrefix(i, "golang.org/x/sys") {
				t.Errorf("%s imports %s", dir, i)
			}
		}
	}
}
