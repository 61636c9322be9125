package lock

import (
	"fmt"
	"strconv"
)

// Secret is a text that is not printed: a URL with its password. Formatted,
// logged or marshalled it is xxxxx, and so it is within a struct or a map that
// is; unmarshalled, it is what it is given. string(s) is the text itself.
//
// One hole is fmt's: of a struct's unexported fields it prints the bare content.
// Keep a Secret, and a Config, in exported fields or give the struct a String
// method.
type Secret string

// String returns xxxxx, or "" if there is no secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return redacted
}

// GoString is for %#v.
func (s Secret) GoString() string { return "lock.Secret(" + strconv.Quote(s.String()) + ")" }

// Format prints String whatever the verb, and GoString for %#v.
func (s Secret) Format(f fmt.State, verb rune) { formatRedacted(f, verb, s.String(), s.GoString()) }

// MarshalText implements [encoding.TextMarshaler], which JSON, YAML, XML and
// log/slog use. What it returns does not contain the secret.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (s *Secret) UnmarshalText(text []byte) error {
	*s = Secret(text)
	return nil
}
