package testserver

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestWays(t *testing.T) {
	for _, c := range []struct {
		forced string
		want   []way
	}{
		{"", []way{wayEnv, wayProcess, wayContainer}},
		{"env", []way{wayEnv}},
		{"process", []way{wayProcess}},
		{"container", []way{wayContainer}},
	} {
		t.Setenv("INTERLOCK_SERVERS", c.forced)
		if got, err := ways(); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("INTERLOCK_SERVERS=%q: %v, %v", c.forced, got, err)
		}
	}
	t.Setenv("INTERLOCK_SERVERS", "docker")
	if _, err := StartRedis(t.Context(), RedisOptions{}); err == nil || errors.Is(err, ErrNone) || !strings.Contains(err.Error(), `"docker"`) {
		t.Errorf("a word that is no way: %v", err)
	}
}

func TestRequired(t *testing.T) {
	for _, c := range []struct {
		list string
		want bool
	}{
		{"", false}, {"all", true}, {"redis", true}, {"etcd, redis", true}, {"etcd", false}, {"redis-clock", false},
	} {
		t.Setenv("INTERLOCK_REQUIRE", c.list)
		if got := required("redis"); got != c.want {
			t.Errorf("INTERLOCK_REQUIRE=%q demands redis: %v", c.list, got)
		}
	}
}

// outcome is a test that notes how it was ended.
type outcome struct {
	testing.TB
	fatal, skip string
}

func (o *outcome) Helper()                   { /* nothing to leave out of a message */ }
func (o *outcome) Skip(args ...any)          { o.skip, _ = args[0].(string) }
func (o *outcome) Fatalf(f string, _ ...any) { o.fatal = f; panic(o) }

// end runs skipOrFail up to its end of the test.
func (o *outcome) end(server string, err error) {
	defer func() {
		if p := recover(); p != nil && p != any(o) {
			panic(p)
		}
	}()
	skipOrFail(o, server, "install it", err)
}

func TestWithoutServer(t *testing.T) {
	said := ""
	defer func(before func(string)) { sayLoud = before }(sayLoud)
	sayLoud = func(line string) { said = line }
	none := noneOf([]error{unavailable("not on PATH"), unavailable("no engine")})
	for _, c := range []struct {
		name, require string
		err           error
		skips         bool
	}{
		{"nothing is demanded", "", none, true},
		{"another is demanded", "etcd", none, true},
		{"it is demanded", "redis", none, false},
		{"all are demanded", "all", none, false},
		{"it is here and broken", "", errors.New("ended at its start"), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("INTERLOCK_REQUIRE", c.require)
			o := &outcome{TB: t}
			said = ""
			o.end("redis", c.err)
			if skipped := o.skip != ""; skipped != c.skips || skipped == (o.fatal != "") {
				t.Errorf("skip %q, fatal %q", o.skip, o.fatal)
			}
			if said != o.skip {
				t.Errorf("said %q, skipped with %q", said, o.skip)
			}
			for _, part := range []string{"NOT RUN", t.Name(), "install it", "not on PATH; no engine"} {
				if c.skips && !strings.Contains(o.skip, part) {
					t.Errorf("%q does not say %q", o.skip, part)
				}
			}
		})
	}
}
