package conformance

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	neturl "net/url"
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
	{
		Name: "url-password", Cases: []string{"L01", "L02", "C08"}, needs: []string{needURL, needLogin},
		Rule: "A password in a URL is percent-decoded once and a plus stays one; a wrong or malformed one is an error that does not show it.",
		run:  urlPassword,
	},
	{
		Name: "url-ipv6", Cases: []string{"L03"}, needs: []string{needURL, needNetwork},
		Rule: "An IPv6 address in brackets is a host; without them, or with one missing, it is ErrInvalid.",
		run:  urlIPv6,
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
		if want != t.grain(want) {
			continue
		}
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

// withUser puts what stands before the @ into a URL.
func withUser(url, userinfo string) string {
	scheme, rest, _ := strings.Cut(url, "://")
	authority, _, _ := strings.Cut(rest, "/")
	if i := strings.LastIndex(authority, "@"); i >= 0 {
		rest = rest[i+1:]
	}
	return scheme + "://" + userinfo + "@" + rest
}

func urlPassword(ctx context.Context, t *T) error {
	server := t.runner.server
	user := "conformance-" + randomText(6)
	const secret = "S3CR3T"
	for password, written := range map[string]string{
		secret + "p@ss:/?#[]!$&()*+,;=% \"é": neturl.UserPassword("", secret+"p@ss:/?#[]!$&()*+,;=% \"é").String()[1:],
		secret + "+a+b":                      secret + "+a%2Bb",
	} {
		t.must(server.Login(ctx, user, password))
		c := t.openURL(withUser(server.URL, user+":"+written))
		c.mustBeFree(t.name(), opBound, "nobody has had it")
	}
	var log tail
	for what, userinfo := range map[string]string{
		"a wrong password":      user + ":" + secret + "wrong",
		"a broken escape":       user + ":" + secret + "%zz",
		"an escape cut off":     user + ":" + secret + "%2",
		"a raw @ in a password": user + ":" + secret + "@x",
		"a raw / in a password": user + ":" + secret + "/x",
		"a raw # in a password": user + ":" + secret + "#x",
		"a raw ? in a password": user + ":" + secret + "?x",
		"a space in a password": user + ":" + secret + " x",
		"a NUL in a password":   user + ":" + secret + "\x00x",
	} {
		var err error
		opening := t.start(func() error {
			return t.within(opBound, func(ctx context.Context) error {
				l, err := t.runner.subject.Open(ctx, withUser(server.URL, userinfo), lock.Logger(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))))
				if err == nil { // a client may connect at first use
					defer l.Close()
					_, err = l.TryAcquire(ctx, t.name())
				}
				return err
			})
		})
		if err = t.await("opening with "+what, opBound+time.Second, opening); err == nil {
			return fmt.Errorf("a URL with %s opens", what)
		}
		t.wantIsNot("opening with "+what, err, lock.ErrHeld, lock.ErrLost, context.DeadlineExceeded)
		if what != "a wrong password" {
			t.wantIs("opening with "+what, err, lock.ErrInvalid)
		}
		for _, text := range []string{err.Error(), fmt.Sprintf("%+v %#v", err, err), log.String()} {
			if strings.Contains(text, secret) {
				return fmt.Errorf("opening with %s shows the password: %s", what, strings.ReplaceAll(text, secret, "<the password>"))
			}
		}
	}
	return nil
}

func urlIPv6(ctx context.Context, t *T) error {
	server, err := t.runner.serverAddr()
	t.must(err)
	p, err := faultproxy.Listen("[::1]:0", server)
	if err != nil {
		t.logf("this machine has no IPv6 on loopback, so only mistakes were tried: %v", err)
	} else {
		t.cleanup(func() error { p.Close(); return nil })
		c := t.openVia(p)
		c.mustBeFree(t.name(), opBound, "nobody has had it")
		if p.Requests() == 0 {
			return fmt.Errorf("the client of the URL with %s went to another host", p.Addr())
		}
	}
	_, port, err := net.SplitHostPort(server)
	t.must(err)
	url, err := t.runner.viaURL(t.runner.server.URL, "[::ffff:127.0.0.1]:"+port)
	t.must(err)
	t.openURL(url).mustBeFree(t.name(), opBound, "nobody has had it")
	for _, host := range []string{"::1:" + port, "[::1", "[::1:" + port, "::1]:" + port, "[]:" + port, "[::1]x:" + port, "[::1]:port", "[::1]:99999"} {
		url, err := t.runner.viaURL(t.runner.server.URL, host)
		t.must(err)
		l, err := t.runner.subject.Open(ctx, url)
		if err == nil {
			l.Close()
			return fmt.Errorf("Open took the host %q", host)
		}
		t.wantIs(fmt.Sprintf("Open of the host %q", host), err, lock.ErrInvalid)
	}
	return nil
}
