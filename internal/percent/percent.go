// Package percent writes the names of locks so that they can stand in a store's
// keys and be read in a terminal.
package percent

import "strings"

// Marks are the bytes, besides letters and digits, that stay as they are on every
// store.
const Marks = "-_.:@+=,"

// Encode makes of every byte of s that is no letter, digit or one of marks a
// percent sign and two hexadecimal digits. Two strings never become one. It
// allocates nothing if there is nothing to encode.
func Encode(s, marks string) string {
	const hex = "0123456789ABCDEF"
	escapes := 0
	for i := range len(s) {
		if !Plain(s[i], marks) {
			escapes++
		}
	}
	if escapes == 0 {
		return s
	}
	out := make([]byte, 0, len(s)+2*escapes)
	for i := range len(s) {
		if c := s[i]; Plain(c, marks) {
			out = append(out, c)
		} else {
			out = append(out, '%', hex[c>>4], hex[c&15])
		}
	}
	return string(out)
}

// Plain reports whether Encode leaves c as it is.
func Plain(c byte, marks string) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte(marks, c) >= 0
}
