package lock

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func mustParse(t *testing.T, s string) *URL {
	t.Helper()
	u, err := ParseURL(s)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func TestURLParameters(t *testing.T) {
	u := mustParse(t, "x://h?s=a+b%2Bc%20d&empty=&d=1m30s&zero=0s&n=-3&b=true&nob=false&c=two&k=%26")
	for _, c := range []struct {
		what      string
		got, want any
	}{
		{"Str", u.Str("s", "def"), "a+b+c d"},
		{"Str of an empty one", u.Str("empty", "def"), ""},
		{"Str without", u.Str("absent", "def"), "def"},
		{"Duration", u.Duration("d", 0), 90 * time.Second},
		{"Duration of 0s", u.Duration("zero", time.Second), time.Duration(0)},
		{"Duration without", u.Duration("absent", time.Hour), time.Hour},
		{"Int", u.Int("n", 7, -3, 3), -3},
		{"Int without", u.Int("absent", 7, 0, 3), 7},
		{"Bool", u.Bool("b", false), true},
		{"Bool of false", u.Bool("nob", true), false},
		{"Bool without", u.Bool("absent", true), true},
		{"Choice", u.Choice("c", "one", "one", "two"), "two"},
		{"Choice without", u.Choice("absent", "one", "one", "two"), "one"},
		{"Secret", u.Secret("k"), "&"},
		{"Secret without", u.Secret("absent"), ""},
		{"Check", u.Check(), nil},
	} {
		if c.got != c.want {
			t.Errorf("%s: got %v, want %v", c.what, c.got, c.want)
		}
	}
}

// A bad value is named by its parameter, and not repeated.
func TestURLParameterMistakes(t *testing.T) {
	const def = time.Minute
	for _, c := range []struct {
		value string
		read  func(*URL)
		want  string
	}{
		{"120", func(u *URL) { u.Duration("p", def) }, "needs a unit"},
		{"0", func(u *URL) { u.Duration("p", def) }, "needs a unit"},
		{"1e3", func(u *URL) { u.Duration("p", def) }, "needs a unit"},
		{"1m30", func(u *URL) { u.Duration("p", def) }, "needs a unit"},
		{"", func(u *URL) { u.Duration("p", def) }, "no duration"},
		{"10y", func(u *URL) { u.Duration("p", def) }, "no duration"},
		{"1e3s", func(u *URL) { u.Duration("p", def) }, "no duration"},
		{"9999999999h", func(u *URL) { u.Duration("p", def) }, "no duration"},
		{"-5s", func(u *URL) { u.Duration("p", def) }, "negative"},
		{"x", func(u *URL) { u.Int("p", 2, 1, 3) }, "whole number from 1 to 3"},
		{"", func(u *URL) { u.Int("p", 2, 1, 3) }, "whole number from 1 to 3"},
		{"0", func(u *URL) { u.Int("p", 2, 1, 3) }, "whole number from 1 to 3"},
		{"4", func(u *URL) { u.Int("p", 2, 1, 3) }, "whole number from 1 to 3"},
		{"2.0", func(u *URL) { u.Int("p", 2, 1, 3) }, "whole number from 1 to 3"},
		{"99999999999999999999", func(u *URL) { u.Int("p", 2, 1, 3) }, "whole number from 1 to 3"},
		{"yes", func(u *URL) { u.Bool("p", false) }, "true, false"},
		{"True", func(u *URL) { u.Bool("p", false) }, "true, false"},
		{"three", func(u *URL) { u.Choice("p", "one", "one", "two") }, "one, two"},
	} {
		u := mustParse(t, "x://h?p="+c.value)
		c.read(u)
		err := u.Check()
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), `parameter "p"`) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("p=%s: %v; want ErrInvalid with %q", c.value, err, c.want)
		}
		if len(c.value) > 4 && strings.Contains(err.Error(), c.value) {
			t.Errorf("p=%s: the value is repeated: %v", c.value, err)
		}
	}
}

func TestURLCheck(t *testing.T) {
	u := mustParse(t, "x://h?TTL=5s&quorum=3")
	u.Duration("ttl", 0)
	u.Str("prefix", "")
	if err, want := u.Check(), `invalid argument: URL: parameter "TTL" is unknown (did you mean "ttl"? have prefix, ttl)`; err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	u.Str("TTL", "")
	if err := u.Check(); err == nil || !strings.Contains(err.Error(), `"quorum" is unknown (have TTL, prefix, ttl)`) {
		t.Errorf("got %v", err)
	}
	u.Mistake("the path %q is no database", u.Path)
	u.Mistake("second")
	if err := u.Check(); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), `the path "" is no database`) || strings.Contains(err.Error(), "second") {
		t.Errorf("got %v", err)
	}
	if err := mustParse(t, "x://h?a=1").Check(); err == nil || !strings.Contains(err.Error(), "takes no parameters") {
		t.Errorf("got %v", err)
	}
}

func TestURLSuggestions(t *testing.T) {
	known := []string{"ttl", "prefix", "max_hold", "min_hold", "db"}
	for typed, want := range map[string]string{
		"tll": "ttl", "TTL": "ttl", "tt": "ttl", "prefx": "prefix", "perfix": "prefix", "maxhold": "max_hold", "Max-Hold": "max_hold",
		"quorum": "", "x": "", "td": "", "DB": "db", "pool": "",
	} {
		u := mustParse(t, "x://h?"+typed+"=1")
		for _, k := range known {
			u.Str(k, "")
		}
		if got := u.nearest(typed); got != want {
			t.Errorf("%s: got %q, want %q", typed, got, want)
		}
	}
}

// An Opener may be tested with a URL that ParseURL did not make.
func TestURLMadeByHand(t *testing.T) {
	u := &URL{Scheme: "x", User: "u", Hosts: []string{"h", "[", "]", ":", ""}, Path: "p"}
	u.Addrs("1")
	if got := u.String(); got != "x://u@h,[,],:,/p" {
		t.Errorf("got %s", got)
	}
	if _, ok := u.Password(); ok {
		t.Error("it has a password")
	}
	if err := u.Check(); err != nil {
		t.Error(err)
	}
	if got := u.Str("a", "def"); got != "def" {
		t.Errorf("got %q", got)
	}
	u = new(URL)
	u.Mistake("bad")
	if err := u.Check(); !errors.Is(err, ErrInvalid) {
		t.Errorf("got %v", err)
	}
}
