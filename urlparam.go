package lock

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// param is one parameter of a URL.
type param struct {
	name, value string
	read        bool // a method asked for it
	secret      bool // its value may appear nowhere
}

// maxParamName bounds a parameter's name, in bytes.
const maxParamName = 64

func (u *URL) parseParams(query string) error {
	pieces := strings.Split(query, "&")
	for i, piece := range pieces {
		name, value, ok := strings.Cut(piece, "=")
		// The piece may be a part of a value whose '&' was not encoded, so its
		// number must do, unless it has the form of a parameter.
		switch {
		case piece == "":
			return fmt.Errorf("parameter %d of %d is empty: a '&' stands between parameters only; %s%%26", i+1, len(pieces), notEncoded)
		case !ok:
			return fmt.Errorf("parameter %d of %d has no '=' (name=value); an '&' in a value must be percent-encoded, as %%26", i+1, len(pieces))
		case name == "":
			return fmt.Errorf("parameter %d of %d has no name before its '='", i+1, len(pieces))
		case !validParamName(name):
			return fmt.Errorf("parameter %d of %d: its name is not of letters, digits, '_', '-' and '.', at most %d", i+1, len(pieces), maxParamName)
		}
		p := param{name: name, secret: namedLikeSecret(name)}
		if p.value, ok = percentDecode(value); !ok {
			return fmt.Errorf("%s: its value has a broken percent-encoding: a '%%' itself is written %%25", u.describe(len(u.inner().params), name))
		}
		if u.find(name) != nil {
			return fmt.Errorf("%s is given twice", u.describe(len(u.inner().params), name))
		}
		u.inner().params = append(u.inner().params, p)
	}
	return nil
}

func validParamName(s string) bool {
	for _, c := range []byte(s) {
		if !isLetterOrDigit(c) && c != '_' && c != '-' && c != '.' {
			return false
		}
	}
	return len(s) <= maxParamName
}

// namedLikeSecret reports whether a parameter's name says that its value is not
// for other eyes, whether or not anybody will read it.
func namedLikeSecret(name string) bool {
	if slices.Contains(lockerParams, name) {
		return false // token_base is no secret
	}
	name = strings.ToLower(name)
	for _, s := range []string{"pass", "pwd", "secret", "token", "auth", "cred", "private"} {
		if strings.Contains(name, s) {
			return true
		}
	}
	return false
}

// find returns the parameter of that name, or nil.
func (u *URL) find(name string) *param {
	for i := range u.inner().params {
		if p := &u.inner().params[i]; p.name == name {
			return p
		}
	}
	return nil
}

// afterSecret reports whether what follows parameter i-1 may be a part of its
// secret value, whose '&' was not encoded.
func (u *URL) afterSecret(i int) bool {
	for i--; i >= 0; i-- {
		if p := u.inner().params[i]; p.secret {
			return true
		} else if p.read {
			return false
		}
	}
	return false
}

// describe names parameter i in an error.
func (u *URL) describe(i int, name string) string {
	if !u.afterSecret(i) || u.nearest(name) != "" {
		return "parameter " + strconv.Quote(name)
	}
	return fmt.Sprintf("parameter %d, after a secret one (an '&' in a value must be percent-encoded, as %%26),", i+1)
}

// take returns the parameter, or nil, and marks it as known and read.
func (u *URL) take(name string) *param {
	if !slices.Contains(u.inner().known, name) {
		u.inner().known = append(u.inner().known, name)
	}
	p := u.find(name)
	if p != nil {
		p.read = true
	}
	return p
}

// Str returns the value of a parameter, or def if the URL does not have it.
func (u *URL) Str(name, def string) string {
	if p := u.take(name); p != nil {
		return p.value
	}
	return def
}

// Secret returns the value of a parameter that no error and no String shows, or
// "".
func (u *URL) Secret(name string) string {
	p := u.take(name)
	if p == nil {
		return ""
	}
	p.secret = true
	return p.value
}

// Duration returns a parameter such as 30s, 1m30s or 250ms, or def if the URL
// does not have it. A number without a unit is a mistake, and so is a negative
// one.
func (u *URL) Duration(name string, def time.Duration) time.Duration {
	p := u.take(name)
	if p == nil {
		return def
	}
	d, err := time.ParseDuration(p.value)
	last := len(p.value) - 1
	switch {
	case last >= 0 && '0' <= p.value[last] && p.value[last] <= '9':
		u.Mistake("parameter %q: a duration needs a unit (as in %s=30s or %s=250ms)", name, name, name)
	case err != nil:
		u.Mistake("parameter %q is no duration (as in %s=30s, %s=250ms or %s=1m30s)", name, name, name, name)
	case d < 0:
		u.Mistake("parameter %q is negative", name)
	default:
		return d
	}
	return def
}

// Int returns a parameter that is a whole number from least to most, or def if
// the URL does not have it.
func (u *URL) Int(name string, def, least, most int) int {
	return int(u.integer(name, int64(def), int64(least), int64(most)))
}

func (u *URL) integer(name string, def, least, most int64) int64 {
	p := u.take(name)
	if p == nil {
		return def
	}
	n, err := strconv.ParseInt(p.value, 10, 64)
	if err != nil || n < least || n > most {
		u.Mistake("parameter %q must be a whole number from %d to %d", name, least, most)
		return def
	}
	return n
}

// Bool returns a parameter that is true or false, or def if the URL does not
// have it.
func (u *URL) Bool(name string, def bool) bool {
	return u.Choice(name, strconv.FormatBool(def), "true", "false") == "true"
}

// Choice returns a parameter that is one of allowed, or def if the URL does not
// have it.
func (u *URL) Choice(name, def string, allowed ...string) string {
	p := u.take(name)
	if p == nil {
		return def
	}
	if !slices.Contains(allowed, p.value) {
		u.Mistake("parameter %q must be one of: %s", name, strings.Join(allowed, ", "))
		return def
	}
	return p.value
}

// Mistake notes what an Opener found wrong with the URL, for Check to return; of
// several the first counts. The text must not repeat a secret, nor a part of the
// URL that may be one.
func (u *URL) Mistake(format string, args ...any) {
	if u.inner().mistake == nil {
		u.inner().mistake = fmt.Errorf("%w: URL: %w", ErrInvalid, fmt.Errorf(format, args...))
	}
}

// Check returns the first mistake, or else an error that names a parameter that
// nobody has asked for, and those that were asked for. An Opener calls it after
// it has read the last parameter and before it dials. The error is [ErrInvalid].
func (u *URL) Check() error {
	if u.inner().mistake != nil {
		return u.inner().mistake
	}
	for i, p := range u.inner().params {
		if !p.read {
			return fmt.Errorf("%w: URL: %s is unknown (%s)", ErrInvalid, u.describe(i, p.name), u.suggest(p.name))
		}
	}
	return nil
}

// suggest says what an unknown parameter may have been meant to be.
func (u *URL) suggest(name string) string {
	if len(u.inner().known) == 0 {
		return "this URL takes no parameters"
	}
	have := "have " + strings.Join(slices.Sorted(slices.Values(u.inner().known)), ", ")
	if meant := u.nearest(name); meant != "" {
		return "did you mean " + strconv.Quote(meant) + "? " + have
	}
	return have
}

// nearest returns the known parameter that a mistyped name is like, or "".
func (u *URL) nearest(name string) string {
	best, least := "", 3
	for _, k := range u.inner().known {
		if d := editDistance(strings.ToLower(name), strings.ToLower(k)); d < least && d < len(k)-1 {
			best, least = k, d
		}
	}
	return best
}

// editDistance counts the letters to insert, remove or replace, or to swap with
// their neighbour, to make b of a.
func editDistance(a, b string) int {
	before, prev, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		before, prev, row = prev, row, before
		row[0] = i
		for j := 1; j <= len(b); j++ {
			differs := 0
			if a[i-1] != b[j-1] {
				differs = 1
			}
			row[j] = min(prev[j]+1, row[j-1]+1, prev[j-1]+differs)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
	}
	return row[len(b)]
}

// writeParams writes the parameters for String.
func (u *URL) writeParams(b *strings.Builder) {
	sep := "?"
	for i, p := range u.inner().params {
		name, value := p.name, redacted
		if !p.read && u.afterSecret(i) {
			name = redacted
		}
		if p.read && !p.secret {
			value = percentEncode(p.value, "-._~!$'()*,;:/")
		}
		b.WriteString(sep + name + "=" + value)
		sep = "&"
	}
}

// lockerParams are the parameters that the core reads for every backend.
var lockerParams = []string{"ttl", "grace", "max_hold", "min_hold", "owner", "token_base", "renew"}

// lockerOptions reads the parameters that are the Locker's, not the backend's.
func (u *URL) lockerOptions() []SetupOption {
	var opts []SetupOption
	add := func(name string, o SetupOption) {
		if u.find(name) == nil {
			return
		}
		if err := o.setup(new(setup)); err != nil {
			u.Mistake("parameter %q: %s", name, strings.TrimPrefix(err.Error(), ErrInvalid.Error()+": "))
		}
		opts = append(opts, o)
	}
	add("ttl", TTL(u.Duration("ttl", 0)))
	add("grace", Grace(u.Duration("grace", 0)))
	add("max_hold", MaxHold(u.Duration("max_hold", 0)))
	add("min_hold", MinHold(u.Duration("min_hold", 0)))
	add("owner", Owner(u.Str("owner", "")))
	const most = 1<<63 - 1
	add("token_base", TokenBase(Token(u.integer("token_base", 0, 0, most))))
	if !u.Bool("renew", true) {
		opts = append(opts, NoRenew())
	}
	return opts
}
