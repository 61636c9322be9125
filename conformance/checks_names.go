package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/interlock-go/lock"
)

var nameChecks = []Check{
	{
		Name: "names-are-separate", Cases: []string{"D04", "D05", "D08"},
		Rule: "Different names never meet and the same name always meets, for any string of 1 to 512 bytes.",
		run:  namesAreSeparate,
	},
	{
		Name: "name-hashes-are-wide",
		Rule: "Where a hash decides, it is too wide for names to collide.",
		run:  nameHashesAreWide,
	},
	{
		Name: "bad-names", Cases: []string{"D07", "D08"},
		Rule: "An empty name, and one of more than 512 bytes, is refused before anything is sent.",
		run:  badNames,
	},
}

// oddNames are names that stores confuse, cut, refuse or take for something
// else.
func oddNames() []string {
	names := []string{
		"a", "A", "a/b", "a/b/c", "a/", "/a", "a//b", "a/b/", "a/.", "a/../a", "./a", ".", "..", "x/../y", "/", "//", "y",
		"lock", "lock-0000000001", "a/694d8dd56c5b1f0e",
		" ", "  ", "a ", " a", "a b", "a\tb", "a\nb", "a\r\nb", "a\x00", "a\x00b", "\x00", "\x01", "\x7f",
		"ünï", "u\u0308nï", "\u00fcn\u0131", "🔒", "\ue000", "\ufeffa", "\xff", "\xfe\xff", "\xc0\xaf",
		"%", "%00", "100%", "a%2Fb", "a%2fb", "a+b", "%s", "%!d(string=a)", "$1", "${a}",
		"{a}", "{}", "a{", "}a", "{a}{b}", "a:b", "a;b", "a,b", "a=b", "a&b", "a|b", "a\\b", "\\", "*", "?", "[x]", "a*", "__", "__init__",
		"--", "; drop", "'", "''", "\"", "`", "<a>", "#", "#a", "@", "~", "null", "NULL", "0", "00", "-1", "1e3", "true",
		"con", "CON", "nul", "a.lock", "a.tmp", ".hidden", "a.", "...",
	}
	for _, n := range []int{63, 64, 65, 127, 128, 250, 255, 256, 257, 511, lock.MaxNameLen} {
		long := strings.Repeat("n", n-1)
		names = append(names, long+"1", long+"2")
		if n > 500 {
			names = append(names, "1"+long, "2"+long, "1"+long[:n/2]+"x"+long[n/2+1:])
		}
	}
	names = append(names, strings.Repeat("é", lock.MaxNameLen/2), strings.Repeat("\xff", lock.MaxNameLen), strings.Repeat("/", lock.MaxNameLen))
	return names
}

func namesAreSeparate(ctx context.Context, t *T) error {
	a, b := t.open(), t.open()
	names := oddNames()
	long := lock.TTL(t.ttl(time.Minute))
	handles := make([]handle, len(names))
	for i, name := range names {
		h, err := a.try(name, long)
		if errors.Is(err, lock.ErrHeld) {
			return fmt.Errorf("%q meets another name, one of %q: %w", clip(name), clipAll(names[:i]), err)
		}
		if err != nil {
			return fmt.Errorf("%q: %w", clip(name), err)
		}
		if h.Name() != name {
			return fmt.Errorf("the handle of %q is called %q", clip(name), clip(h.Name()))
		}
		handles[i] = h
	}
	if err := t.all(4, func(part int) error {
		for i := part; i < len(names); i += 4 {
			b.mustBeHeld(names[i], fmt.Sprintf("another client holds %q", clip(names[i])))
		}
		return nil
	}); err != nil {
		return err
	}
	for i, name := range names {
		a.free(handles[i])
		if h, err := b.try(name); err != nil {
			return fmt.Errorf("%q after its release: %w", clip(name), err)
		} else {
			b.free(h)
		}
	}
	for i := range handles {
		if h, err := a.try(names[i]); err != nil {
			return fmt.Errorf("%q after all were released: %w", clip(names[i]), err)
		} else {
			a.free(h)
		}
	}
	return nil
}

func clip(s string) string {
	if len(s) > 40 {
		return s[:18] + "…" + s[len(s)-18:]
	}
	return s
}

func clipAll(names []string) []string {
	names = slices.Clone(names)
	for i := range names {
		names[i] = clip(names[i])
	}
	return names[max(0, len(names)-8):]
}

func nameHashesAreWide(ctx context.Context, t *T) error {
	c := t.open()
	long := lock.TTL(t.ttl(time.Minute))
	// Pairs that collide in crc32, fnv1a-32, fnv1-32, adler32 and Postgres'
	// hashtext.
	pairs := [][2]string{
		{"tenant:7f217f6b6dc8", "tenant:d7e77869948b"}, {"job-439599-lock", "job-622382-lock"}, {"order:23897", "order:1102010"},
		{"order:120", "order:201"}, {"order:30910", "order:249340"},
	}
	for _, p := range pairs {
		h, err := c.try(p[0], long)
		t.must(err)
		other, err := c.try(p[1], long)
		if err != nil {
			return fmt.Errorf("%q and %q meet: %w", p[0], p[1], err)
		}
		c.free(h)
		c.free(other)
	}
	prefix, n := t.name(), t.count(400, 2000)
	const hands = 4
	held := make([][]handle, hands)
	err := t.all(hands, func(part int) error {
		for i := part; i < n; i += hands {
			h, err := c.try(fmt.Sprintf("%s/%d", prefix, i), long, lock.NoRenew())
			if err != nil {
				return fmt.Errorf("one of %d names meets another: %w", n, err)
			}
			held[part] = append(held[part], h)
		}
		return nil
	})
	return errors.Join(err, t.all(hands, func(part int) error {
		for _, h := range held[part] {
			c.free(h)
		}
		return nil
	}))
}

func badNames(ctx context.Context, t *T) error {
	c, p := t.openMaybeVia()
	c.mustBeFree(t.name(), opBound, "nobody has had it") // so that the client has made its connections
	var before int64
	if p != nil {
		before = t.settled(p)
	}
	nothing := func(context.Context, *lock.Handle) error { return errors.New("the function of Do ran") }
	seam := t.runner.subject.seam
	for _, name := range []string{"", strings.Repeat("n", lock.MaxNameLen+1), strings.Repeat("n", 2_000_000)} {
		calls := map[string]func() error{
			"Acquire":    func() error { _, err := c.acquire(ctx, name); return err },
			"TryAcquire": func() error { _, err := c.try(name); return err },
			"Do":         func() error { return seam.do(ctx, c.Locker, name, nothing) },
			"TryDo":      func() error { return seam.tryDo(ctx, c.Locker, name, nothing) },
		}
		for op, call := range calls {
			began := time.Now()
			err := call()
			t.wantIs(fmt.Sprintf("%s of a name of %d bytes", op, len(name)), err, lock.ErrInvalid)
			if took := time.Since(began); took > time.Second {
				return fmt.Errorf("%s took %v to refuse a name of %d bytes", op, took, len(name))
			}
			if len(err.Error()) > 2*lock.MaxNameLen {
				return fmt.Errorf("%s of a name of %d bytes: its error has %d", op, len(name), len(err.Error()))
			}
		}
	}
	if p != nil {
		if n := p.Requests() - before; n > 0 {
			return fmt.Errorf("%d requests were sent for names that are refused", n)
		}
	}
	return nil
}
