package lock

import (
	"fmt"
	neturl "net/url"
	"strconv"
	"strings"
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

// leastHidden is the length from which hideSecrets looks for a secret, in bytes:
// a shorter one stands in many a word.
const leastHidden = 4

// hideSecrets is the net under the Openers: client libraries have been seen to
// repeat the whole URL in an error. What it returns reads without the secrets of
// u, decoded or encoded, and is what err is.
func hideSecrets(err error, u *URL) error {
	secrets := []string{u.inner().password}
	for _, p := range u.inner().params {
		if p.secret {
			secrets = append(secrets, p.value)
		}
	}
	text := err.Error()
	for _, s := range secrets {
		if len(s) < leastHidden {
			continue
		}
		for _, form := range []string{s, percentEncode(s, ""), neturl.QueryEscape(s), neturl.PathEscape(s), neturl.UserPassword("", s).String()[1:]} {
			text = strings.ReplaceAll(text, form, redacted)
		}
	}
	if text == err.Error() {
		return err
	}
	return &redactedError{text, err}
}

type redactedError struct {
	text string
	err  error
}

func (e *redactedError) Error() string { return e.text }
func (e *redactedError) Unwrap() error { return e.err }
