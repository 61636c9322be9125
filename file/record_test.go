package file

import (
	"bytes"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/interlock-go/lock"
)

func TestRecordGolden(t *testing.T) {
	slot, err := record{token: 1767225600000000, name: "sku:42", owner: "web-1:4711"}.encode()
	if err != nil {
		t.Fatal(err)
	}
	want := `interlock 1 token=1767225600000000 name="sku:42" owner="web-1:4711" crc32c=8f959023`
	if got := strings.TrimRight(string(slot), " \n"); got != want {
		t.Errorf("record is\n%s\nand not\n%s", got, want)
	}
	if len(slot) != slotSize || slot[slotSize-1] != '\n' {
		t.Errorf("a slot of %d bytes that ends in %q", len(slot), slot[len(slot)-1])
	}
}

func TestLongestRecordFits(t *testing.T) {
	r := record{token: math.MaxInt64, name: strings.Repeat("\x00", 512), owner: strings.Repeat("\xff", lock.MaxOwnerLen)}
	slot, err := r.encode()
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := decode(slot); !ok || got != r {
		t.Errorf("decode gives %v, %v", got, ok)
	}
}

func FuzzRecord(f *testing.F) {
	f.Add(int64(1), "sku:42", "web-1:4711")
	f.Add(int64(math.MaxInt64), " crc32c=00000000", "\" owner=\"\n\x00")
	f.Add(int64(7), "\xff\xfe", "ü\u2028\U0001f512")
	f.Fuzz(func(t *testing.T, token int64, name, owner string) {
		if token <= 0 || len(name) > 512 || len(owner) > lock.MaxOwnerLen {
			return
		}
		r := record{token, name, owner}
		slot, err := r.encode()
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := decode(slot); !ok || got != r {
			t.Errorf("%+v came back as %+v, %v", r, got, ok)
		}
	})
}

func FuzzDecode(f *testing.F) {
	slot, err := record{5, "a", "b"}.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(slot)
	f.Add([]byte("interlock 1 token="))
	f.Fuzz(func(t *testing.T, slot []byte) {
		if r, ok := decode(slot); ok && r.token <= 0 {
			t.Errorf("token %d was read", r.token)
		}
	})
}

// lockFile makes an empty lock file that is open for writing.
func lockFile(t *testing.T) *os.File {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(t.TempDir(), "x.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func next(t *testing.T, f *os.File, at time.Time) lock.Token {
	t.Helper()
	token, err := writeNext(f, "n", "o", at)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func TestTokenNeverGoesBack(t *testing.T) {
	f := lockFile(t)
	now := time.UnixMicro(1_000_000)
	if got := next(t, f, now); got != 1_000_000 {
		t.Errorf("first token %d is not the time in µs", got)
	}
	if got := next(t, f, now); got != 1_000_001 {
		t.Errorf("token %d within the same µs", got)
	}
	if got := next(t, f, now.Add(-time.Second)); got != 1_000_002 {
		t.Errorf("token %d after the clock went back", got)
	}
	if got := next(t, f, now.Add(time.Second)); got != 2_000_000 {
		t.Errorf("token %d after the clock went on", got)
	}
	if got := next(t, f, time.UnixMicro(-5)); got != 2_000_001 {
		t.Errorf("token %d with a clock before 1970", got)
	}
}

// A crash can leave any part of the slot that was being written. The tokens that
// were given must survive that.
func TestTornWriteKeepsLastToken(t *testing.T) {
	for _, given := range []int{1, 2, 3} {
		f := lockFile(t)
		at := time.UnixMicro(1000)
		var last lock.Token
		for range given {
			last = next(t, f, at)
		}
		before, err := os.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		next(t, f, at)
		after, err := os.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		start := 0 // of the slot that the last write went to
		if given%2 == 1 {
			start = slotSize
		}
		whole := make([]byte, len(after))
		copy(whole, before)
		for n := 0; n <= 120; n++ { // the first n bytes reached the disk; what follows are old bytes, or zeros
			torn := bytes.Clone(whole)
			copy(torn[start:start+n], after[start:])
			c, err := readContent(bytes.NewReader(torn))
			if err != nil {
				t.Fatalf("%d records, %d bytes of the next: %v", given, n, err)
			}
			if got := lock.Token(c.last.token); got != last && got != last+1 {
				t.Fatalf("%d records, %d bytes of the next: last token is %d, %d was given", given, n, got, last)
			}
		}
	}
}

func TestUnreadableContentIsAnError(t *testing.T) {
	one, err := record{7, "n", "o"}.encode()
	if err != nil {
		t.Fatal(err)
	}
	flipped := bytes.Clone(one)
	flipped[18] ^= 1 // in the token
	newer := bytes.Replace(one, []byte("interlock 1 "), []byte("interlock 2 "), 1)
	other, err := record{9, "another", "o"}.encode()
	if err != nil {
		t.Fatal(err)
	}
	greatest, err := record{math.MaxInt64, "n", "o"}.encode()
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name    string
		content []byte
		says    string
	}{
		{"flipped bit", flipped, "no readable record"},
		{"text", []byte("hello\n"), "no readable record"},
		{"newer version", newer, "another version"},
		{"newer version beside a good record", append(bytes.Clone(one), newer...), "another version"},
		{"of another lock", other, "copied or renamed"},
		{"greatest token", greatest, "greatest"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := lockFile(t)
			if _, err := f.WriteAt(test.content, 0); err != nil {
				t.Fatal(err)
			}
			token, err := writeNext(f, "n", "o", time.Now())
			if err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("token %d, error %v; want one that says %q", token, err, test.says)
			}
			if now, _ := os.ReadFile(f.Name()); !bytes.Equal(now, test.content) {
				t.Error("the file was changed")
			}
		})
	}
}

func TestZerosAreAFreshFile(t *testing.T) {
	f := lockFile(t)
	if err := f.Truncate(slotSize); err != nil {
		t.Fatal(err)
	}
	if got := next(t, f, time.UnixMicro(5)); got != 5 {
		t.Errorf("token %d", got)
	}
}

func TestOtherVersionIsUnsupported(t *testing.T) {
	_, err := readContent(strings.NewReader("interlock 2 whatever"))
	if !errors.Is(err, lock.ErrUnsupported) {
		t.Errorf("error %v is not ErrUnsupported", err)
	}
}

func TestTornFirstRecordIsNoRecord(t *testing.T) {
	whole, err := record{token: 7, name: "sku:42", owner: "web-1:4711"}.encode()
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{1, 5, 11, 40, 60} {
		c, err := readContent(bytes.NewReader(whole[:n]))
		if err != nil || !c.fresh {
			t.Errorf("the first %d bytes of a first record: %+v, %v; want a fresh file", n, c, err)
		}
		padded := append(bytes.Clone(whole[:n]), make([]byte, slotSize-n)...)
		if c, err := readContent(bytes.NewReader(padded)); err != nil || !c.fresh {
			t.Errorf("the first %d bytes, then zeros: %+v, %v; want a fresh file", n, c, err)
		}
	}
	spoilt := bytes.Clone(whole)
	spoilt[20] ^= 1
	for what, b := range map[string][]byte{
		"a whole record with a wrong byte": spoilt,
		"other text":                       []byte("hello"),
		"a torn record behind another":     append(bytes.Clone(spoilt), whole[:40]...),
	} {
		if _, err := readContent(bytes.NewReader(b)); !errors.Is(err, errCorrupt) {
			t.Errorf("%s: %v, want %v", what, err, errCorrupt)
		}
	}
}
