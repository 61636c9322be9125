package lock

import (
	"errors"
	"fmt"
	neturl "net/url"
	"slices"
	"strings"
	"testing"
)

func TestParseURL(t *testing.T) {
	for _, c := range []struct {
		url, scheme, user, password string
		hosts                       []string
		path                        string
	}{
		{url: "redis://h", scheme: "redis", hosts: []string{"h"}},
		{url: "REDIS://H/", scheme: "redis", hosts: []string{"H"}},
		{url: "redis://h:6379/0", scheme: "redis", hosts: []string{"h:6379"}, path: "0"},
		{url: "redis://h//0", scheme: "redis", hosts: []string{"h"}, path: "/0"},
		{
			url: "zookeeper://u:p@h1:2181,h2,[::1]:2183,[fe80::1%25eth0],h_3.x-y/a/b?x=1", scheme: "zookeeper", user: "u", password: "p",
			hosts: []string{"h1:2181", "h2", "[::1]:2183", "[fe80::1%25eth0]", "h_3.x-y"}, path: "a/b",
		},
		{url: "redis://:p@h", scheme: "redis", password: "p", hosts: []string{"h"}},
		{url: "redis://u@h", scheme: "redis", user: "u", hosts: []string{"h"}},
		{url: "redis://@h", scheme: "redis", hosts: []string{"h"}},
		{url: "redis://u:a+b:c%2B%252B@h", scheme: "redis", user: "u", password: "a+b:c+%2B", hosts: []string{"h"}},
		{url: "memory://name", scheme: "memory", hosts: []string{"name"}},
		{url: "memory://", scheme: "memory"},
		{url: "file:///var/lib/a%20b%2Bc+d", scheme: "file", path: "var/lib/a b+c+d"},
		{url: "file://", scheme: "file"},
		{url: "file:///C:/locks", scheme: "file", path: "C:/locks"},
		{url: "file://?x=1", scheme: "file"},
	} {
		u, err := ParseURL(c.url)
		if err != nil {
			t.Errorf("%s: %v", c.url, err)
			continue
		}
		if password, _ := u.Password(); u.Scheme != c.scheme || u.User != c.user || password != c.password || !slices.Equal(u.Hosts, c.hosts) || u.Path != c.path {
			t.Errorf("%s: scheme %q, user %q, password %q, hosts %q, path %q", c.url, u.Scheme, u.User, password, u.Hosts, u.Path)
		}
	}
}

func TestURLPasswordPresence(t *testing.T) {
	for url, want := range map[string]bool{"x://h": false, "x://u@h": false, "x://u:@h": true, "x://:@h": true} {
		u, err := ParseURL(url)
		if err != nil {
			t.Fatal(err)
		}
		if _, got := u.Password(); got != want {
			t.Errorf("%s: has a password: %v, want %v", url, got, want)
		}
	}
}

func TestParseURLRefuses(t *testing.T) {
	for _, c := range []struct{ url, want string }{
		{"", "empty"},
		{"h:6379", "scheme://"},
		{"//h", "scheme://"},
		{"redis:h", "scheme://"},
		{"file:relative", "scheme://"},
		{"://h", "scheme"},
		{"1redis://h", "scheme"},
		{"re_dis://h", "scheme"},
		{"u:p@redis://h", "scheme"},
		{" redis://h", "white space"},
		{"redis://h\n", "white space"},
		{"redis://u:a b@h", "percent-encoded"},
		{"redis://u:a\x00b@h", "percent-encoded"},

		{"redis://u:p@ss@h", "%40"},
		{"redis://u:p/ss@h", "%2F"},
		{"redis://u:1/ss@h/0", "%2F"},
		{"redis://u:1?a=b@h/0", "%3F"},
		{"redis://u:p#ss@h", "%23"},
		{"redis://u:p[s]s@h", "percent-encoded"},
		{"redis://u:p\"s@h", "percent-encoded"},
		{"redis://u:é@h", "percent-encoded"},
		{"redis://u:%zz@h", "percent-encoding"},
		{"redis://u:%4@h", "percent-encoding"},
		{"redis://u:%@h", "percent-encoding"},
		{"redis://%+1:p@h", "percent-encoding"},
		{"redis://u:p@", "no host"},
		{"redis://u:p@/0", "no host"},

		{"redis://::1", "brackets"},
		{"redis://::1:6379", "brackets"},
		{"redis://[::1", "']'"},
		{"redis://[]:1", "no IPv6 address"},
		{"redis://[127.0.0.1]:1", "no IPv6 address"},
		{"redis://[h]:1", "no IPv6 address"},
		{"redis://[fe80::1%25]:1", "no IPv6 address"},
		{"redis://[::1]6379", "after the ']'"},
		{"redis://[::1]:", "port"},
		{"redis://h,", "host 2 of 2: it is empty"},
		{"redis://,h", "host 1 of 2: it is empty"},
		{"redis://h1,,h2", "host 2 of 3: it is empty"},
		{"redis://:6379", "no host before the port"},
		{"redis://h:", "port"},
		{"redis://h:0", "port"},
		{"redis://h:65536", "port"},
		{"redis://h:99999999999999999999", "port"},
		{"redis://h:-1", "port"},
		{"redis://h:+1", "port"},
		{"redis://h:06379", "port"},
		{"redis://h1,h2:http", "host 2 of 2: its port"},
		{"redis://redis://h", "port"},
		{"redis://h%41", "host name"},
		{"redis://h]", "host name"},
		{"redis://hé", "host name"},

		{"redis://h/%zz", "path"},
		{"redis://h/0#frag", "fragment"},
		{"redis://h?", "'?'"},
		{"redis://h?a=1&", "parameter 2 of 2 is empty"},
		{"redis://h?&a=1", "parameter 1 of 2 is empty"},
		{"redis://h?a=1&&b=2", "parameter 2 of 3 is empty"},
		{"redis://h?a", "parameter 1 of 1 has no '='"},
		{"redis://h?=1", "no name"},
		{"redis://h?a%62=1", "name"},
		{"redis://h?" + strings.Repeat("a", 65) + "=1", "name"},
		{"redis://h?ttl=%zz", `"ttl"`},
		{"redis://h?ttl=5s&ttl=6s", `"ttl" is given twice`},
		{"redis://h?owner=me@home", "%40"},
	} {
		u, err := ParseURL(c.url)
		if u != nil || !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, %v; want ErrInvalid with %q", c.url, u, err, c.want)
		}
	}
}

// Whatever stands in a user name or a password, net/url's encoding of it arrives.
func TestURLUserinfoAsNetURLEncodesIt(t *testing.T) {
	const odd = "p@ss:/?#[]!$&()*+,;=% \"é\\^`{|}<>'~\x00\xff%2B"
	for _, secret := range []string{odd, "+", "%2B", "%", " "} {
		s := (&neturl.URL{Scheme: "redis", User: neturl.UserPassword(secret, secret), Host: "h:1", Path: "/0"}).String()
		u, err := ParseURL(s)
		if err != nil {
			t.Errorf("%q: %v", s, err)
			continue
		}
		if password, _ := u.Password(); u.User != secret || password != secret || u.Hosts[0] != "h:1" {
			t.Errorf("%q: user %q, password %q, hosts %q", s, u.User, password, u.Hosts)
		}
	}
}

func TestURLAddrs(t *testing.T) {
	u, err := ParseURL("x://h,h:1,[::1],[::1]:2,[::ffff:127.0.0.1]:3,[fe80::1%25lo]:4,[fe80::1%lo],10.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"h:7", "h:1", "[::1]:7", "[::1]:2", "[::ffff:127.0.0.1]:3", "[fe80::1%lo]:4", "[fe80::1%lo]:7", "10.0.0.1:7"}
	if got := u.Addrs("7"); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := new(URL).Addrs("7"); len(got) != 0 {
		t.Errorf("without hosts: %q", got)
	}
}

func TestURLString(t *testing.T) {
	u, err := ParseURL("redis://a%40b:S3CR3T@h1:1,[::1]/a%20b/c?ttl=5s&prefix=x%26y&ca=/etc/ca.pem&sentinel_password=S3CR3T&key=S3CR3T&unread=S3CR3T")
	if err != nil {
		t.Fatal(err)
	}
	const before = "redis://a%40b:xxxxx@h1:1,[::1]/a%20b/c?ttl=xxxxx&prefix=xxxxx&ca=xxxxx&sentinel_password=xxxxx&xxxxx=xxxxx&xxxxx=xxxxx"
	if got := u.String(); got != before {
		t.Errorf("before anything was read:\n got %s\nwant %s", got, before)
	}
	u.Duration("ttl", 0)
	u.Str("prefix", "")
	u.Str("ca", "")
	u.Str("sentinel_password", "")
	if got := u.Secret("key"); got != "S3CR3T" {
		t.Errorf("Secret returned %q", got)
	}
	const after = "redis://a%40b:xxxxx@h1:1,[::1]/a%20b/c?ttl=5s&prefix=x%26y&ca=/etc/ca.pem&sentinel_password=xxxxx&key=xxxxx&xxxxx=xxxxx"
	if got := u.String(); got != after {
		t.Errorf("after:\n got %s\nwant %s", got, after)
	}
	if got, want := fmt.Sprintf("%#v", u), `lock.URL("`+after+`")`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// The tail of a secret whose '&' was not encoded looks like a parameter.
func TestURLHidesTailOfSecret(t *testing.T) {
	for _, url := range []string{
		"x://h?password=ab&S3CR3T=",
		"x://h?password=ab&S3CR3T==",
		"x://h?password=ab&other=1&S3CR3T=2",
		"x://h?password=ab&S3CR3T",
		"x://h?password=ab&=S3CR3T",
		"x://h?password=ab&S3CR3T=%zz",
		"x://h?password=ab&S3CR3T=1&S3CR3T=2",
	} {
		u, err := ParseURL(url)
		if err == nil {
			u.Secret("password")
			err = u.Check()
		}
		if err == nil || strings.Contains(err.Error(), "S3CR3T") || u != nil && strings.Contains(u.String(), "S3CR3T") {
			t.Errorf("%s: %v, %v", url, err, u)
		}
	}
	u, err := ParseURL("x://h?password=ab&tll=5s")
	if err != nil {
		t.Fatal(err)
	}
	u.Duration("ttl", 0)
	u.Secret("password")
	if err := u.Check(); err == nil || !strings.Contains(err.Error(), `"tll"`) || !strings.Contains(err.Error(), `did you mean "ttl"`) {
		t.Errorf("a mistyped parameter after a secret one: %v", err)
	}
}

func FuzzParseURL(f *testing.F) {
	for _, s := range []string{
		"", "redis://h", "redis://u:p@h1:1,h2,[::1]:3/0?ttl=5s&owner=a", "file:///a%20b", "memory://x", "redis://u:%zz@h", "x://[fe80::1%25lo]:4",
		"x://h?password=a&b=c", "x://::1", "x://h:65536", "x://h#f", "x://@", "x://:@h", "x://h?%", "x://[", "x://]", "x://,", "x://h?=&=",
	} {
		f.Add(s, "S3CR3T")
	}
	f.Fuzz(func(t *testing.T, s, password string) {
		u, err := ParseURL(s)
		if (u == nil) != (err != nil) || err != nil && !errors.Is(err, ErrInvalid) {
			t.Fatalf("%q: %v, %v", s, u, err)
		}
		if err == nil {
			// Without the parameters: of those that were not read, String may
			// hide the names too.
			shown, _, _ := strings.Cut(u.String(), "?")
			again, err := ParseURL(shown)
			if err != nil {
				t.Fatalf("%q: its String %q does not parse: %v", s, shown, err)
			}
			if !slices.Equal(again.Hosts, u.Hosts) || again.Scheme != u.Scheme || again.User != u.User || again.Path != u.Path {
				t.Fatalf("%q: its String %q is another URL", s, shown)
			}
			if got := u.Addrs("1"); len(got) != len(u.Hosts) {
				t.Fatalf("%q: %d hosts, addresses %q", s, len(u.Hosts), got)
			}
		}

		// A password that stands in a well-formed URL arrives, and is not shown;
		// raw in the same place it arrives, or is refused without being shown.
		const mark = "S3CR3T"
		password = mark + password
		encoded := "redis://u:" + percentEncode(password, "") + "@h:1/0"
		u, err = ParseURL(encoded)
		if err != nil {
			t.Fatalf("%q: %v", encoded, err)
		}
		if got, _ := u.Password(); got != password || !slices.Equal(u.Hosts, []string{"h:1"}) || u.Path != "0" {
			t.Fatalf("%q: password %q, hosts %q", encoded, got, u.Hosts)
		}
		raw, rawErr := ParseURL("redis://u:" + password + "@h:1/0")
		if rawErr == nil && (!slices.Equal(raw.Hosts, []string{"h:1"}) || raw.Path != "0") {
			t.Fatalf("password %q, raw, changed the hosts to %q and the path to %q", password, raw.Hosts, raw.Path)
		}
		if all := fmt.Sprintf("%v %+v %#v %v %v", u, *u, u, raw, rawErr); strings.Contains(all, mark) {
			t.Fatalf("password shown: %s", all)
		}
	})
}
