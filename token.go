package lock

import (
	"database/sql/driver"
	"fmt"
	"math"
	"strconv"
)

// Token is a fencing token: for one name, a later holder's is greater. 0 is
// none. It fits a BIGINT column.
//
// A token of 0 or less cannot be written: Value and the Marshal methods refuse
// it, so that no unfenced write passes a comparison such as
// "last_token <= $1". It can be read, as what a resource has that no fenced
// write has reached yet.
//
// In JSON it is a string of digits, not a number: many readers of JSON keep
// numbers as floating point, and round those above 2^53.
type Token int64

const maxToken Token = math.MaxInt64

// String returns the token in decimal.
func (t Token) String() string { return strconv.FormatInt(int64(t), 10) }

func (t Token) check() error {
	if t <= 0 {
		return fmt.Errorf("%w: %d is none (is this handle of a Fenced Locker, or acquired with WithToken?)", ErrNoToken, int64(t))
	}
	return nil
}

// Value implements [driver.Valuer], as an int64. It returns ErrNoToken for a
// token of 0 or less.
func (t Token) Value() (driver.Value, error) {
	if err := t.check(); err != nil {
		return nil, err
	}
	return int64(t), nil
}

// Scan implements [database/sql.Scanner]: NULL is 0. It returns ErrInvalid for
// anything but whole decimal numbers from 0 to 2^63-1.
func (t *Token) Scan(src any) error {
	switch v := src.(type) {
	case nil:
		*t = 0
		return nil
	case int64:
		if v < 0 {
			return fmt.Errorf("%w: token %d is negative", ErrInvalid, v)
		}
		*t = Token(v)
		return nil
	case uint64:
		if v > uint64(maxToken) {
			return fmt.Errorf("%w: token %d is above %d", ErrInvalid, v, maxToken)
		}
		*t = Token(v)
		return nil
	case []byte:
		return t.UnmarshalText(v)
	case string:
		return t.UnmarshalText([]byte(v))
	}
	return fmt.Errorf("%w: a %T is no token: use a column of 64-bit whole numbers", ErrInvalid, src)
}

// MarshalText implements [encoding.TextMarshaler], in decimal. It returns
// ErrNoToken for a token of 0 or less.
func (t Token) MarshalText() ([]byte, error) {
	if err := t.check(); err != nil {
		return nil, err
	}
	return strconv.AppendInt(nil, int64(t), 10), nil
}

// UnmarshalText implements [encoding.TextUnmarshaler]. It returns ErrInvalid for
// anything but digits that make a number from 0 to 2^63-1.
func (t *Token) UnmarshalText(text []byte) error {
	for _, c := range text {
		if c < '0' || c > '9' {
			return fmt.Errorf("%w: %.32q is no token (digits only)", ErrInvalid, text)
		}
	}
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil {
		return fmt.Errorf("%w: %.32q is no token (from 0 to %d)", ErrInvalid, text, maxToken)
	}
	*t = Token(n)
	return nil
}

// MarshalBinary implements [encoding.BinaryMarshaler] with the same digits as
// MarshalText, so that a Token can be an argument of a Redis command or script.
func (t Token) MarshalBinary() ([]byte, error) { return t.MarshalText() }

// UnmarshalBinary implements [encoding.BinaryUnmarshaler]; see UnmarshalText.
func (t *Token) UnmarshalBinary(data []byte) error { return t.UnmarshalText(data) }
