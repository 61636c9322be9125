package conformance

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/conformance/faultproxy"
)

var urlChecks = []Check{
	{
		Name: "url-mistakes", Cases: []string{"L04"}, needs: []string{needURL},
		Rule: "An unknown, repeated, misspelled or malformed parameter, and any other mistake in a URL, is ErrInvalid, found before anything is dialled, and is named.",
		run:  urlMistakes,
	},
	{
		Name: "url-durations", Cases: []string{"E09"}, needs: []string{needURL},
		Rule: "A duration in a URL has a unit and is taken exactly.",
		run:  urlDurations,
	},
	{
		Name: "url-settings", needs: []string{needURL},
		Rule: "The Locker's own settings in a URL are what the options of the same names are, and options win over them.",
		run:  urlSettings,
	},
}

// withParams adds parameters to a URL.
func withParams(url, params string) string {
	if strings.Contains(url, "?") {
		return url + "&" + params
	}
	return url + "?" + params
}

func urlMistakes(ctx context.Context, t *T) error {
	url := t.runner.server.URL
	if t.has(needNetwork) {
		// Who dials before it has read the URL hears of the refusal first.
		p := t.proxy()
		p.SetMode(faultproxy.Refuse)
		var err error
		url, err = t.runner.viaURL(url, p.Addr())
		t.must(err)
	}
	scheme, _, _ := strings.Cut(url, "://")
	mistakes := []struct{ url, names string }{
		{withParams(url, "tll=5s"), "tll"},
		{withParams(url, "TTL=5s"), "TTL"},
		{withParams(url, "ttl=5s&ttl=6s"), "ttl"},
		{withParams(url, "ttl="), "ttl"},
		{withParams(url, "ttl=120"), "ttl"},
		{withParams(url, "ttl=1e3"), "ttl"},
		{withParams(url, "ttl=-5s"), "ttl"},
		{withParams(url, "ttl=0s"), "ttl"},
		{withParams(url, "ttl=10y"), "ttl"},
		{withParams(url, "ttl=1%zz"), "ttl"},
		{withParams(url, "max_hold=1"), "max_hold"},
		{withParams(url, "renew=perhaps"), "renew"},
		{withParams(url, "token_base=-1"), "token_base"},
		{withParams(url, "owner"), ""},
		{withParams(url, "&"), ""},
		{url + "#frag", ""},
		{strings.Replace(url, scheme, scheme+"i", 1), scheme + "i"},
		{strings.TrimPrefix(url, scheme+":"), ""},
		{scheme, ""},
		{"", ""},
		{" " + url, ""},
		{url + "\n", ""},
	}
	for _, m := range mistakes {
		l, err := t.runner.subject.Open(ctx, m.url)
		if err == nil {
			l.Close()
			return fmt.Errorf("Open took the URL %q", m.url)
		}
		t.wantIs(fmt.Sprintf("Open of the URL %q", m.url), err, lock.ErrInvalid)
		t.wantIsNot(fmt.Sprintf("Open of the URL %q", m.url), err, lock.ErrUnavailable)
		if !strings.Contains(err.Error(), m.names) {
			return fmt.Errorf("Open of the URL %q gave %w, which does not name %s", m.url, err, m.names)
		}
	}
	return nil
}

func urlDurations(ctx context.Context, t *T) error {
	for text, want := range map[string]time.Duration{"120s": 2 * time.Minute, "2m": 2 * time.Minute, "61500ms": 61500 * time.Millisecond} {
		c := t.openURL(withParams(t.runner.server.URL, "ttl="+text))
		h := c.take(t.name())
		if h.TTL() != want {
			return fmt.Errorf("with ?ttl=%s the TTL is %v", text, h.TTL())
		}
		c.free(h)
	}
	return nil
}

func urlSettings(ctx context.Context, t *T) error {
	ttl := t.ttl(300 * time.Millisecond)
	var renewals counter
	c := t.openURL(withParams(t.runner.server.URL, "ttl="+ttl.String()+"&renew=false&owner=a%20b"), lock.Observe(renewals.observe(lock.EventRenew)))
	h := c.take(t.name())
	if h.TTL() != ttl {
		return fmt.Errorf("with ?ttl=%v the TTL is %v", ttl, h.TTL())
	}
	t.wantLost(t.lossOf(h, ttl+soon, "a lock with ?renew=false to run out"), h.Name(), lock.CauseExpired)
	if n := renewals.n.Load(); n > 0 {
		return fmt.Errorf("with ?renew=false a lock was renewed %d times", n)
	}
	c = t.openURL(withParams(t.runner.server.URL, "ttl="+ttl.String()), lock.TTL(2*ttl))
	h = c.take(t.name())
	if h.TTL() != 2*ttl {
		return fmt.Errorf("with ?ttl=%v and the option TTL(%v) the TTL is %v", ttl, 2*ttl, h.TTL())
	}
	c.free(h)
	return nil
}
