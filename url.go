package lock

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// URL is a store's address, as [ParseURL] takes it apart. An [Opener] reads its
// parameters with the typed methods, which mark what was read, and then calls
// Check.
//
// It is for one goroutine at a time. No way of printing it shows a secret.
type URL struct {
	Scheme string   // in lower case
	User   string   // decoded; "" for none
	Hosts  []string // as written: "h1", "h2:6380", "[::1]:6379"; nil if the URL names none
	Path   string   // decoded, without the slash that follows the hosts

	// A function, since fmt cannot look inside: a URL in somebody's unexported
	// field, where fmt calls no method, prints no secret either. Nil for none.
	hidden func() *hiddenPart
}

// hiddenPart is what a URL does not show.
type hiddenPart struct {
	password    string
	hasPassword bool
	params      []param
	known       []string // names that were asked for, present or not
	mistake     error
}

// inner returns the hidden part, and makes it for a URL that was made by hand.
func (u *URL) inner() *hiddenPart {
	if u.hidden == nil {
		h := new(hiddenPart)
		u.hidden = func() *hiddenPart { return h }
	}
	return u.hidden()
}

// ParseURL takes apart
//
//	scheme://user:password@h1:p1,h2,[::1]:p3/path?name=value&name=value
//
// The hosts, with or without a port each, user, password, path and parameters
// may be left out. User, password, path and values are percent-decoded, once;
// a '+' stays a '+'. The characters '@' and '#' must be percent-encoded wherever
// they do not separate, so that a password that was not encoded is an error, and
// never another host.
//
// Errors are [ErrInvalid] and repeat nothing of the URL but the names of
// parameters: in a URL that is malformed, any part may be the password.
func ParseURL(s string) (*URL, error) {
	u, err := parseURL(s)
	if err != nil {
		return nil, fmt.Errorf("%w: URL: %w", ErrInvalid, err)
	}
	return u, nil
}

// notEncoded ends the errors about a character that an unencoded password may
// have brought in.
const notEncoded = "in a user name, a password or a value it must be percent-encoded, as "

func parseURL(s string) (*URL, error) {
	if s == "" {
		return nil, errors.New("it is empty (as in: memory://name)")
	}
	if strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return nil, errors.New("white space or a control character; " + notEncoded + "%20 for a space")
	}
	scheme, rest, ok := strings.Cut(s, "://")
	if !ok {
		return nil, errors.New(`no "scheme://" at its start (as in: redis://host:6379)`)
	}
	scheme = strings.ToLower(scheme)
	if !validScheme(scheme) {
		return nil, errors.New(`what stands before "://" is no scheme: letters and digits, a letter first`)
	}
	// The order of these checks is what keeps a raw '@', '/', '?' or '#' of a
	// password from passing for the end of the hosts.
	if strings.Contains(rest, "#") {
		return nil, errors.New("'#': there are no fragments here, and " + notEncoded + "%23")
	}
	authority, tail := rest, ""
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		authority, tail = rest[:i], rest[i:]
	}
	if strings.Contains(tail, "@") {
		return nil, errors.New("'@' after a '/' or a '?': " + notEncoded + "%40 for @, %2F for /, %3F for ?")
	}
	if strings.Count(authority, "@") > 1 {
		return nil, errors.New("more than one '@': " + notEncoded + "%40")
	}

	u := &URL{Scheme: scheme}
	hosts := authority
	if userinfo, after, ok := strings.Cut(authority, "@"); ok {
		if after == "" {
			return nil, errors.New("no host after the '@'")
		}
		hosts = after
		if err := u.parseUserinfo(userinfo); err != nil {
			return nil, err
		}
	}
	if hosts != "" {
		u.Hosts = strings.Split(hosts, ",")
		for i, h := range u.Hosts {
			if err := checkHost(h); err != nil {
				return nil, fmt.Errorf("host %d of %d: %w", i+1, len(u.Hosts), err)
			}
		}
	}

	path, query, hasQuery := strings.Cut(tail, "?")
	if u.Path, ok = percentDecode(strings.TrimPrefix(path, "/")); !ok {
		return nil, errors.New("the path has a broken percent-encoding: a '%' itself is written %25")
	}
	if !hasQuery {
		return u, nil
	}
	if query == "" {
		return nil, errors.New("no parameter after the '?'; " + notEncoded + "%3F")
	}
	return u, u.parseParams(query)
}

func validScheme(s string) bool {
	for i, c := range []byte(s) {
		letter := 'a' <= c && c <= 'z'
		if !letter && (i == 0 || !('0' <= c && c <= '9' || c == '+' || c == '-' || c == '.')) {
			return false
		}
	}
	return s != ""
}

func (u *URL) parseUserinfo(s string) error {
	for _, c := range []byte(s) {
		if !isLetterOrDigit(c) && !strings.ContainsRune("-._~!$&'()*+,;=:%", rune(c)) {
			return errors.New("the user name or the password has a character that must be percent-encoded")
		}
	}
	user, password, hasPassword := strings.Cut(s, ":")
	var okUser, okPassword bool
	u.User, okUser = percentDecode(user)
	u.inner().password, okPassword = percentDecode(password)
	u.inner().hasPassword = hasPassword
	if !okUser || !okPassword {
		return errors.New("the user name or the password has a broken percent-encoding: a '%' itself is written %25")
	}
	return nil
}

// checkHost says what is wrong with one element of the list of hosts. It does
// not repeat it: without an '@' it may be the user and the password.
func checkHost(h string) error {
	if h == "" {
		return errors.New("it is empty")
	}
	host, port, hasPort := h, "", false
	if h[0] == '[' {
		end := strings.IndexByte(h, ']')
		if end < 0 {
			return errors.New("a '[' without a ']'")
		}
		var after string
		host, after = h[:end+1], h[end+1:]
		if _, err := netip.ParseAddr(unbracket(host)); err != nil || !strings.Contains(host, ":") {
			return errors.New("no IPv6 address in the brackets")
		}
		if port, hasPort = strings.CutPrefix(after, ":"); !hasPort && after != "" {
			return errors.New("after the ']' only a port may follow")
		}
	} else {
		if strings.Count(h, ":") > 1 {
			return errors.New("several colons: an IPv6 address is written in brackets, as [::1]:6379, and a ':' in a user name percent-encoded, as %3A")
		}
		host, port, hasPort = strings.Cut(h, ":")
		if host == "" {
			return errors.New("no host before the port")
		}
		for _, c := range []byte(host) {
			if !isLetterOrDigit(c) && c != '-' && c != '.' && c != '_' {
				return errors.New("a character that no host name has (letters, digits, '-', '_' and '.')")
			}
		}
	}
	if hasPort && !validPort(port) {
		return errors.New("its port is not a number from 1 to 65535 (a '/' or a '?' in a password must be percent-encoded, as %2F or %3F)")
	}
	return nil
}

func validPort(s string) bool {
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return false
		}
	}
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0 && s[0] != '0'
}

// unbracket takes the brackets off, and the encoding off the '%' before a zone.
func unbracket(host string) string {
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	return strings.Replace(host, "%25", "%", 1)
}

func isLetterOrDigit(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// percentDecode decodes s once, and reports whether all of it could be.
func percentDecode(s string) (string, bool) {
	if !strings.Contains(s, "%") {
		return s, true
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			b = append(b, s[i])
			continue
		}
		if len(s) < i+3 {
			return "", false
		}
		c, err := strconv.ParseUint(s[i+1:i+3], 16, 8)
		if err != nil {
			return "", false
		}
		b = append(b, byte(c))
		i += 2
	}
	return string(b), true
}

// percentEncode encodes what is not a letter, a digit or in plain.
func percentEncode(s, plain string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		if isLetterOrDigit(c) || strings.IndexByte(plain, c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// Password returns the decoded password, and whether the URL has one, be it
// empty.
func (u *URL) Password() (string, bool) {
	return u.inner().password, u.inner().hasPassword
}

// Addrs returns the hosts as host:port, ready for net.Dial, with defaultPort for
// those that have none.
func (u *URL) Addrs(defaultPort string) []string {
	var addrs []string
	for _, h := range u.Hosts {
		host, port := h, defaultPort
		if i := strings.LastIndexByte(h, ':'); i > strings.LastIndexByte(h, ']') {
			host, port = h[:i], h[i+1:]
		}
		if strings.HasPrefix(host, "[") {
			host = unbracket(host)
		}
		addrs = append(addrs, net.JoinHostPort(host, port))
	}
	return addrs
}

// redacted stands where a secret is.
const redacted = "xxxxx"

// String returns the URL with the password as xxxxx, and so the values of
// parameters that are secret, are called like a secret, or were not read yet.
func (u URL) String() string {
	var b strings.Builder
	b.WriteString(u.Scheme + "://")
	_, hasPassword := u.Password()
	if u.User != "" || hasPassword {
		b.WriteString(percentEncode(u.User, "-._~!$&'()*+,;="))
		if hasPassword {
			b.WriteString(":" + redacted)
		}
		b.WriteByte('@')
	}
	b.WriteString(strings.Join(u.Hosts, ","))
	if u.Path != "" {
		b.WriteString("/" + percentEncode(u.Path, "-._~!$&'()*+,;=:/"))
	}
	u.writeParams(&b)
	return b.String()
}

// GoString is String: %#v shows no secret.
func (u URL) GoString() string { return "lock.URL(" + strconv.Quote(u.String()) + ")" }

// Format prints String whatever the verb, and GoString for %#v.
func (u URL) Format(f fmt.State, verb rune) { formatRedacted(f, verb, u.String(), u.GoString()) }

// formatRedacted prints one of the two texts, for types whose fields no verb may
// reach.
func formatRedacted(f fmt.State, verb rune, text, goText string) {
	switch {
	case verb == 'v' && f.Flag('#'):
		text = goText
	case verb == 'q':
		text = strconv.Quote(text)
	}
	io.WriteString(f, text) //nolint:errcheck // fmt keeps the error
}
