package lock

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
)

// fakeStore is a scheme whose backends promise the fencing level of the URL's
// user, and fail to open or to close as its path says.
type fakeStore struct {
	scheme         string
	opened, closed atomic.Int64
}

var errClosing, errDialling = errors.New("closing failed"), errors.New("dialling failed")

func newFakeStore(t *testing.T) *fakeStore {
	s := new(fakeStore)
	s.scheme = registerTest(t, func(_ context.Context, u *URL) (Backend, error) {
		u.Secret("password")
		if err := u.Check(); err != nil {
			return nil, err
		}
		if u.Path == "refused" {
			return nil, errDialling
		}
		f := newFake()
		if u.User != "" {
			if err := f.guarantees.Fencing.UnmarshalText([]byte(u.User)); err != nil {
				return nil, err
			}
		}
		f.shut = func() error {
			s.closed.Add(1)
			if u.Path == "leaky" {
				return errClosing
			}
			return nil
		}
		s.opened.Add(1)
		return f, nil
	})
	return s
}

func (s *fakeStore) url(rest string) Secret { return Secret(s.scheme + "://" + rest) }

func TestConfigOpen(t *testing.T) {
	s := newFakeStore(t)
	set, err := Config{Lockers: map[string]LockerConfig{
		"reports":   {URL: s.url("h"), Purpose: PurposeEfficiency},
		"mails":     {URL: s.url("h"), Purpose: PurposeEfficiency},
		"inventory": {URL: s.url("h"), Purpose: PurposeCorrectness},
		"orders":    {URL: s.url("durable@h2"), Purpose: PurposeCorrectness, Fencing: FencingDurable},
	}}.Open(t.Context(), Owner("me"))
	if err != nil {
		t.Fatal(err)
	}
	if s.opened.Load() != 2 {
		t.Errorf("%d connections for 2 URLs", s.opened.Load())
	}
	reports, err := set.Locker("reports")
	if err != nil {
		t.Fatal(err)
	}
	if mails, err := set.Locker("mails"); err != nil || mails != reports {
		t.Errorf("equal URLs: %v, %v, want the same Locker", mails, err)
	}
	if err := Do(t.Context(), reports, "a", func(context.Context, *Handle) error { return nil }); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"inventory", "orders"} {
		fenced, err := set.Fenced(name)
		if err != nil {
			t.Fatal(err)
		}
		err = fenced.Do(t.Context(), "a", func(_ context.Context, h *FencedHandle) error {
			if h.Token() == 0 || h.owner != "me" {
				t.Errorf("%s: token %d, owner %q", name, h.Token(), h.owner)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}

	for _, c := range []struct{ name, want string }{
		{"inventory", "Set.Fenced"},
		{"invntory", `have "inventory", "mails", "orders", "reports"`},
		{"", "have"},
	} {
		if l, err := set.Locker(c.name); l != nil || !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("Locker(%q): %v, %v; want ErrInvalid with %s", c.name, l, err, c.want)
		}
	}
	if f, err := set.Fenced("reports"); f != nil || !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "Set.Locker") {
		t.Errorf("Fenced of an efficiency entry: %v, %v", f, err)
	}

	if err := set.Close(); err != nil {
		t.Error(err)
	}
	if s.closed.Load() != 2 {
		t.Errorf("%d backends closed, want 2", s.closed.Load())
	}
	if err := set.Close(); !errors.Is(err, ErrClosed) {
		t.Errorf("second Close: %v", err)
	}
	if l, err := set.Locker("reports"); l != nil || !errors.Is(err, ErrClosed) {
		t.Errorf("Locker after Close: %v, %v", l, err)
	}
	if _, err := reports.TryAcquire(t.Context(), "a"); !errors.Is(err, ErrClosed) {
		t.Errorf("TryAcquire after Close: %v", err)
	}
}

// Mistakes are found in all entries, before anything is dialled.
func TestConfigRefusesBeforeDialling(t *testing.T) {
	s := newFakeStore(t)
	good := LockerConfig{URL: s.url("h"), Purpose: PurposeEfficiency}
	for _, c := range []struct {
		bad  LockerConfig
		want string
	}{
		{LockerConfig{URL: s.url("h")}, "purpose"},
		{LockerConfig{URL: s.url("h"), Purpose: "Efficiency"}, `purpose "Efficiency"`},
		{LockerConfig{URL: s.url("h"), Purpose: PurposeEfficiency, Fencing: FencingVolatile}, "needs the purpose correctness"},
		{LockerConfig{URL: s.url("h"), Purpose: PurposeCorrectness, Fencing: 9}, "Fencing(9)"},
		{LockerConfig{Purpose: PurposeEfficiency}, "URL: it is empty"},
		{LockerConfig{URL: redacted, Purpose: PurposeEfficiency}, "scheme://"},
		{LockerConfig{URL: "redsi://h", Purpose: PurposeEfficiency}, "unknown scheme"},
		{LockerConfig{URL: s.url("h:0"), Purpose: PurposeEfficiency}, "port"},
		{LockerConfig{URL: s.url("h?ttl=5"), Purpose: PurposeEfficiency}, `"ttl"`},
	} {
		set, err := Config{Lockers: map[string]LockerConfig{"a": good, "b": c.bad, "z": {URL: "nope"}}}.Open(t.Context())
		if set != nil || !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), `locker "b": `) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%#v: %v; want ErrInvalid with %s", c.bad, err, c.want)
		} else if !strings.Contains(err.Error(), `locker "z"`) || strings.Contains(err.Error(), `locker "a"`) {
			t.Errorf("want what is wrong with z too, and nothing of a: %v", err)
		}
	}
	one := Config{Lockers: map[string]LockerConfig{"a": good}}
	for what, open := range map[string]func() (*Set, error){
		"no lockers":  func() (*Set, error) { return Config{}.Open(t.Context()) },
		"nil context": func() (*Set, error) { return one.Open(nil) }, //nolint:staticcheck // the point
		"nil option":  func() (*Set, error) { return one.Open(t.Context(), nil) },
		"bad option":  func() (*Set, error) { return one.Open(t.Context(), TTL(0)) },
	} {
		if set, err := open(); set != nil || !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v, %v", what, set, err)
		}
	}
	if s.opened.Load() != 0 {
		t.Errorf("%d connections were opened", s.opened.Load())
	}
}

// Whatever fails, what was opened before is closed.
func TestConfigOpenFails(t *testing.T) {
	for _, c := range []struct {
		bad  LockerConfig
		want error
		text string
	}{
		{LockerConfig{URL: "h/refused", Purpose: PurposeEfficiency}, errDialling, `locker "b"`},
		{LockerConfig{URL: "h/refused", Purpose: PurposeEfficiency}, ErrUnavailable, `locker "b"`},
		{LockerConfig{URL: "h?tll=5s", Purpose: PurposeEfficiency}, ErrInvalid, `did you mean "ttl"?`},
		{LockerConfig{URL: "h?ttl=9h", Purpose: PurposeEfficiency}, ErrInvalid, `locker "b"`},
		{LockerConfig{URL: "durable@h", Purpose: PurposeCorrectness}, ErrNoToken, "which etcd, zookeeper can give"},
		{LockerConfig{URL: "volatile@h", Purpose: PurposeCorrectness, Fencing: FencingDurable}, ErrNoToken, "postgres"},
		{LockerConfig{URL: "none@h/leaky", Purpose: PurposeCorrectness, Fencing: FencingVolatile}, errClosing, "fake has fencing level none"},
	} {
		s := newFakeStore(t)
		c.bad.URL = s.url(string(c.bad.URL))
		set, err := Config{Lockers: map[string]LockerConfig{
			"a": {URL: s.url("first"), Purpose: PurposeEfficiency},
			"b": c.bad,
			"c": {URL: s.url("last"), Purpose: PurposeEfficiency},
		}}.Open(t.Context())
		if set != nil || !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v; want %v with %s", string(c.bad.URL), err, c.want, c.text)
		}
		if s.opened.Load() == 0 || s.opened.Load() != s.closed.Load() {
			t.Errorf("%s: %d opened, %d closed", string(c.bad.URL), s.opened.Load(), s.closed.Load())
		}
	}
}

func TestSetCloseJoinsErrors(t *testing.T) {
	s := newFakeStore(t)
	set, err := Config{Lockers: map[string]LockerConfig{
		"a": {URL: s.url("1/leaky"), Purpose: PurposeEfficiency},
		"b": {URL: s.url("2/leaky"), Purpose: PurposeEfficiency},
		"c": {URL: s.url("2/leaky"), Purpose: PurposeEfficiency},
		"d": {URL: s.url("3"), Purpose: PurposeEfficiency},
	}}.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	d, err := set.Locker("d")
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	err = set.Close()
	if !errors.Is(err, errClosing) || errors.Is(err, ErrClosed) || !strings.Contains(err.Error(), `locker "a": `) || !strings.Contains(err.Error(), `locker "b", "c": `) {
		t.Errorf("got %v", err)
	}
	if s.closed.Load() != 3 {
		t.Errorf("%d closed, want 3", s.closed.Load())
	}
}

func TestSetMadeByHand(t *testing.T) {
	for what, set := range map[string]*Set{"nil": nil, "zero": {}} {
		if l, err := set.Locker("a"); l != nil || !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: Locker: %v, %v", what, l, err)
		}
		if f, err := set.Fenced("a"); f != nil || !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: Fenced: %v, %v", what, f, err)
		}
	}
	if err := (*Set)(nil).Close(); !errors.Is(err, ErrInvalid) {
		t.Errorf("Close of a nil Set: %v", err)
	}
}

func TestConfigText(t *testing.T) {
	want := LockerConfig{URL: "redis://u:S3CR3T@h", Purpose: PurposeCorrectness, Fencing: FencingDurable}
	const js = `{"lockers":{"a":{"url":"redis://u:S3CR3T@h","purpose":"correctness","fencing":"durable"},"b":{"url":"memory://","purpose":"efficiency"}}}`
	var c Config
	if err := json.Unmarshal([]byte(js), &c); err != nil || len(c.Lockers) != 2 || c.Lockers["a"] != want || c.Lockers["b"].Purpose != PurposeEfficiency {
		t.Errorf("%#v, %v", c, err)
	}
	c = Config{Lockers: map[string]LockerConfig{"a": want}}
	if got, err := json.Marshal(c); err != nil || string(got) != `{"lockers":{"a":{"url":"xxxxx","purpose":"correctness","fencing":"durable"}}}` {
		t.Errorf("%s, %v", got, err)
	}
	// YAML packages use the same text methods; the names must agree too.
	for _, typ := range []reflect.Type{reflect.TypeFor[Config](), reflect.TypeFor[LockerConfig]()} {
		for i := range typ.NumField() {
			if tag := typ.Field(i).Tag; tag.Get("yaml") == "" || tag.Get("yaml") != tag.Get("json") {
				t.Errorf("%v.%s: tags %s", typ, typ.Field(i).Name, tag)
			}
		}
	}
}
