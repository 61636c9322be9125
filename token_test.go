package lock

import (
	"database/sql/driver"
	"encoding/json"
	"errors"
	"math"
	"testing"
)

func TestTokenWritten(t *testing.T) {
	for token, want := range map[Token]string{1: "1", 42: "42", maxToken: "9223372036854775807"} {
		text, err := token.MarshalText()
		if err != nil || string(text) != want {
			t.Errorf("%d: MarshalText: %q, %v", token, text, err)
		}
		binary, err := token.MarshalBinary()
		if err != nil || string(binary) != want {
			t.Errorf("%d: MarshalBinary: %q, %v", token, binary, err)
		}
		js, err := json.Marshal(token)
		if err != nil || string(js) != `"`+want+`"` {
			t.Errorf("%d: JSON: %s, %v", token, js, err)
		}
		value, err := token.Value()
		if err != nil || value != driver.Value(int64(token)) || !driver.IsValue(value) {
			t.Errorf("%d: Value: %v, %v", token, value, err)
		}
		if token.String() != want {
			t.Errorf("%d: String: %s", token, token)
		}
	}
}

// A token that stands for none passes into no write.
func TestTokenNoneIsNotWritten(t *testing.T) {
	for _, token := range []Token{0, -1, math.MinInt64} {
		for what, write := range map[string]func() (any, error){
			"Value":         func() (any, error) { return token.Value() },
			"MarshalText":   func() (any, error) { return token.MarshalText() },
			"MarshalBinary": func() (any, error) { return token.MarshalBinary() },
			"JSON":          func() (any, error) { return json.Marshal(token) },
			"JSON field":    func() (any, error) { return json.Marshal(struct{ T Token }{token}) },
		} {
			if got, err := write(); !errors.Is(err, ErrNoToken) {
				t.Errorf("%s of %d: %v, %v; want ErrNoToken", what, int64(token), got, err)
			}
		}
	}
}

func TestTokenRead(t *testing.T) {
	for _, c := range []struct {
		src  any
		want Token
	}{
		{nil, 0},
		{int64(0), 0},
		{int64(7), 7},
		{int64(math.MaxInt64), maxToken},
		{uint64(7), 7},
		{"0", 0},
		{"42", 42},
		{[]byte("9223372036854775807"), maxToken},
	} {
		token := Token(99)
		if err := token.Scan(c.src); err != nil || token != c.want {
			t.Errorf("%T %v: %d, %v; want %d", c.src, c.src, token, err, c.want)
		}
	}
	for _, src := range []any{
		int64(-1), uint64(math.MaxUint64), uint64(math.MaxInt64) + 1, 1.0, float32(1), true, 5,
		"", "-1", "+1", " 1", "1 ", "1.0", "1e3", "0x1", "1_0", "9223372036854775808", "18446744073709551615", "٣", []byte("x"), []byte(nil),
	} {
		token := Token(99)
		if err := token.Scan(src); !errors.Is(err, ErrInvalid) || token != 99 {
			t.Errorf("%T %v: %d, %v; want ErrInvalid and no change", src, src, token, err)
		}
	}
	var token Token
	if err := token.UnmarshalBinary([]byte("12")); err != nil || token != 12 {
		t.Errorf("UnmarshalBinary: %d, %v", token, err)
	}
	if err := json.Unmarshal([]byte(`"9007199254740993"`), &token); err != nil || token != 9007199254740993 {
		t.Errorf("JSON: %d, %v", token, err)
	}
	if err := json.Unmarshal([]byte(`9007199254740993`), &token); err == nil {
		t.Error("a JSON number was accepted")
	}
}

func FuzzTokenScan(f *testing.F) {
	for _, s := range []string{"", "0", "1", "-1", "9223372036854775807", "9223372036854775808", "007"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var token Token
		if err := token.Scan(s); err != nil {
			if token != 0 {
				t.Fatalf("%q: token %d with %v", s, token, err)
			}
			return
		}
		if token < 0 {
			t.Fatalf("%q: token %d", s, token)
		}
		var again Token
		if err := again.Scan(token.String()); err != nil || again != token {
			t.Fatalf("%q: %d became %d, %v", s, token, again, err)
		}
	})
}
