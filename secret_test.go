package lock

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"log/slog"
	neturl "net/url"
	"strings"
	"testing"
)

// mark is the part of the secret that no encoding changes. The secret ends in a
// '%' with one letter, which is a broken encoding wherever it stands raw.
const mark = "S3CR3T"

var verbs = []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d", "%t", "%10.3f", "%U"}

// malformed are URLs with something wrong, or with nothing wrong but a store
// that refuses; SECRET stands where a secret, or a part of one, may stand.
var malformed = []string{
	"SECRET", "SECRET@h", "u:SECRET@h", "://u:SECRET@h", "//u:SECRET@h", "SCHEME:u:SECRET@h", "SCHEME:/u:SECRET@h", "u:SECRET@SCHEME://h", "re_dis://u:SECRET@h",
	"unknown://u:SECRET@h", "unknown://h?password=SECRET", "unknown://u:SECRET@h:0",
	"SCHEME://u:SECRET@h", "SCHEME://SECRET:p@h", "SCHEME://SECRET@h", "SCHEME://:SECRET@h", "SCHEME://u:SECRET@h:0", "SCHEME://u:SECRET@h:port", "SCHEME://u:SECRET@h,", "SCHEME://u:SECRET@",
	"SCHEME://u:SECRET@[::1", "SCHEME://u:SECRET@::1", "SCHEME://u:SECRET@h/%zz", "SCHEME://u:SECRET@h#frag", "SCHEME://u:SECRET@h?", "SCHEME://u:SECRET@h?a", "SCHEME://u:SECRET@h?a=1&a=2",
	"SCHEME://u:%zzSECRET@h", "SCHEME://%zzSECRET:p@h", "SCHEME://u:SECRET%zz@h", "SCHEME://u:a@SECRET@h", "SCHEME://u:SECRET@a@h", "SCHEME://u:a/SECRET@h", "SCHEME://u:1/SECRET@h", "SCHEME://u:SECRET/a@h",
	"SCHEME://u:a?SECRET@h", "SCHEME://u:1?SECRET=@h", "SCHEME://u:1?x=SECRET@h", "SCHEME://u:a#SECRET@h", "SCHEME://u:SECRET#a@h", "SCHEME://u:a:SECRET@h:0", "SCHEME://u:[SECRET]@h", "SCHEME://u:\"SECRET@h", "SCHEME://u: SECRET@h",
	"SCHEME://u:SECRET", "SCHEME://u:SECRET,h", "SCHEME://h,u:SECRET", "SCHEME://SECRET!", "SCHEME://[SECRET]", "SCHEME://[::1]SECRET", "SCHEME://[::1]:SECRET", "SCHEME://u:SECRET:h", "SCHEME://u:SECRET/0", "SCHEME://u:SECRET?a=b",
	"SCHEME://h/%zzSECRET", "SCHEME://h#SECRET",
	"SCHEME://h?SECRET", "SCHEME://h?=SECRET", "SCHEME://h?a=1&SECRET", "SCHEME://h?password=SECRET&&", "SCHEME://h?password=SECRET&password=SECRET", "SCHEME://h?password=%zzSECRET", "SCHEME://h?password=a&SECRET", "SCHEME://h?password=a&SECRET=", "SCHEME://h?secret=a&SECRET=b",
	"SCHEME://h?password=SECRET", "SCHEME://h?pasword=SECRET", "SCHEME://h?key=SECRET", "SCHEME://h?sentinel_password=SECRET", "SCHEME://h?api_token=SECRET", "SCHEME://h?unknown=SECRET", "SCHEME://h?password=SECRET&tll=5s",
	"SCHEME://h?ttl=SECRET", "SCHEME://h?ttl=5SECRET", "SCHEME://h?token_base=SECRET", "SCHEME://h?renew=SECRET", "SCHEME://h?max_hold=1&password=SECRET", "SCHEME://h?pool=SECRET", "SCHEME://h?mode=SECRET",
}

func TestNoSecretIsShown(t *testing.T) {
	scheme := registerTest(t, func(_ context.Context, u *URL) (Backend, error) {
		u.Secret("key")
		u.Secret("password")
		u.Int("pool", 1, 1, 10)
		u.Choice("mode", "a", "a", "b")
		if err := u.Check(); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("%v: connection refused", u)
	})
	for _, tmpl := range malformed {
		for _, secret := range []string{"S3CR3T%S", "S3CR3T%25S", "S3CR3T"} {
			url := strings.ReplaceAll(strings.ReplaceAll(tmpl, "SECRET", secret), "SCHEME", scheme)
			var said []string
			say := func(v any) {
				for _, verb := range verbs {
					said = append(said, fmt.Sprintf(verb, v))
				}
			}
			u, err := ParseURL(url)
			// A user name is shown, in a URL that is well-formed.
			if err != nil || u.User == "" || !strings.Contains(u.User, mark) {
				say(u)
			}
			say(err)
			l, err := Open(t.Context(), url)
			if l != nil || err == nil {
				t.Errorf("%s: Open: %v, %v", url, l, err)
			}
			if u == nil || !strings.Contains(u.User, mark) {
				say(err)
			}
			b, err := OpenBackend(t.Context(), url)
			if b != nil || err == nil {
				t.Errorf("%s: OpenBackend: %v, %v", url, b, err)
			}
			if u == nil || !strings.Contains(u.User, mark) {
				say(err)
			}
			c := Config{Lockers: map[string]LockerConfig{"a": {URL: Secret(url), Purpose: PurposeEfficiency}}}
			say(c)
			say(&c)
			say(c.Lockers)
			say(c.Lockers["a"])
			_, err = c.Open(t.Context())
			if u == nil || !strings.Contains(u.User, mark) {
				say(err)
			}
			for _, s := range said {
				if strings.Contains(strings.ToUpper(s), mark) || strings.Contains(s, fmt.Sprintf("%x", mark)) {
					t.Errorf("%s is shown: %s", url, s)
				}
			}
		}
	}
}

func TestSecretIsNotPrinted(t *testing.T) {
	secret := Secret("redis://u:S3CR3T@h")
	scheme := registerTest(t, func(context.Context, *URL) (Backend, error) { return newFake(), nil })
	set, err := Config{Lockers: map[string]LockerConfig{
		"a": {URL: Secret(scheme + "://u:S3CR3T@h"), Purpose: PurposeEfficiency},
		"b": {URL: Secret(scheme + "://u:S3CR3T@h"), Purpose: PurposeCorrectness},
	}}.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	u, err := ParseURL(string(secret))
	if err != nil {
		t.Fatal(err)
	}
	lc := LockerConfig{URL: secret, Purpose: PurposeEfficiency}
	values := []any{
		secret, &secret, []Secret{secret}, map[string]Secret{"a": secret}, lc, &lc, struct{ C *LockerConfig }{&lc}, struct{ C *Config }{&Config{map[string]LockerConfig{"a": lc}}}, Config{map[string]LockerConfig{"a": lc}},
		u, *u, []URL{*u}, struct{ U URL }{*u}, struct{ u URL }{*u}, struct{ u *URL }{u}, set, struct{ S *Set }{set},
	}
	var out bytes.Buffer
	text, js := slog.New(slog.NewTextHandler(&out, nil)), slog.New(slog.NewJSONHandler(&out, nil))
	for _, v := range values {
		for _, verb := range verbs {
			fmt.Fprintf(&out, verb+"\n", v)
		}
		fmt.Fprintln(&out, v)
		text.Info("text", "v", v)
		js.Info("json", "v", v)
		b, err := json.Marshal(v)
		fmt.Fprintf(&out, "%s %v\n", b, err)
		b, err = xml.Marshal(v)
		fmt.Fprintf(&out, "%s %v\n", b, err)
	}
	for line := range strings.Lines(out.String()) {
		if strings.Contains(line, mark) || strings.Contains(line, fmt.Sprintf("%x", mark)) {
			t.Errorf("shown: %s", line)
		}
	}
	for verb, want := range map[string]string{"%v": "xxxxx", "%s": "xxxxx", "%q": `"xxxxx"`, "%#v": `lock.Secret("xxxxx")`, "%x": "xxxxx"} {
		if got := fmt.Sprintf(verb, secret); got != want {
			t.Errorf("%s: got %s, want %s", verb, got, want)
		}
	}
	if got := fmt.Sprintf("%v|%#v", Secret(""), Secret("")); got != `|lock.Secret("")` {
		t.Errorf("an empty one: %s", got)
	}
	var read Secret
	if err := json.Unmarshal([]byte(`"S3CR3T"`), &read); err != nil || read != mark {
		t.Errorf("unmarshalled: %q, %v", string(read), err)
	}
}

// Errors of an Opener that are about its own findings keep their text.
func TestMistakeKeepsItsCause(t *testing.T) {
	cause := errors.New("no such file")
	u := new(URL)
	u.Mistake("parameter %q: %w", "ca", cause)
	if err := u.Check(); !errors.Is(err, cause) || !errors.Is(err, ErrInvalid) {
		t.Errorf("got %v", err)
	}
}

// An Opener, or the client under it, that repeats the URL does not spill it.
func TestOpenHidesSecretsInErrors(t *testing.T) {
	const password = "p@ss:/?#[]!$&()*+,;=% \"é"
	cause := errors.New("refused")
	for _, form := range []string{password, percentEncode(password, ""), neturl.QueryEscape(password), neturl.PathEscape(password), neturl.UserPassword("u", password).String()[2:]} {
		scheme := registerTest(t, func(_ context.Context, u *URL) (Backend, error) {
			u.Secret("key")
			return nil, fmt.Errorf("cannot dial u:%s@h?key=%s: %w", form, mark, cause)
		})
		_, err := Open(t.Context(), scheme+"://u:"+percentEncode(password, "")+"@h?key="+mark)
		if want := "open " + scheme + ": store unavailable: cannot dial u:xxxxx@h?key=xxxxx: refused"; err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
		if !errors.Is(err, cause) || !errors.Is(err, ErrUnavailable) {
			t.Errorf("%v lost its cause", err)
		}
	}
}
