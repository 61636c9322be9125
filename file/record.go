package file

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/interlock-go/lock"
)

// A lock's file has two slots of slotSize bytes. Each is one line of text,
// padded with spaces:
//
//	interlock 1 token=1767225600000000 name="sku:42" owner="web-1:4711" crc32c=8f959023
//
// Strings are quoted as in Go source, so they may hold any byte. The checksum is
// over all that stands before " crc32c=". The slot with the greater token counts;
// the next record goes into the other one. A crash in the middle of a write
// therefore spoils only a token that nobody was given; also of the first record,
// of which then only the beginning is there.
const (
	slotSize   = 4096 // more than the longest record: 512 + 256 bytes, of which quoting makes 4 times as many, and 120
	recordHead = "interlock "
	version    = "1"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// record is what one slot says.
type record struct {
	token int64
	name  string
	owner string
}

// encode returns the record as a whole slot.
func (r record) encode() ([]byte, error) {
	s := recordHead + version +
		" token=" + strconv.FormatInt(r.token, 10) +
		" name=" + strconv.Quote(r.name) +
		" owner=" + strconv.Quote(r.owner)
	s += fmt.Sprintf(" crc32c=%08x", crc32.Checksum([]byte(s), castagnoli))
	if len(s) >= slotSize {
		return nil, fmt.Errorf("%w: a record of %d bytes for a slot of %d", lock.ErrInvalid, len(s), slotSize)
	}
	return append(append([]byte(s), bytes.Repeat([]byte{' '}, slotSize-1-len(s))...), '\n'), nil
}

// decode reads a slot's text.
func decode(slot []byte) (r record, ok bool) {
	text := strings.TrimRight(string(slot), " \n")
	body, sum, ok := cutLast(text, " crc32c=")
	if !ok || sum != fmt.Sprintf("%08x", crc32.Checksum([]byte(body), castagnoli)) {
		return record{}, false
	}
	rest, ok := strings.CutPrefix(body, recordHead+version+" token=")
	if !ok {
		return record{}, false
	}
	number, rest, _ := strings.Cut(rest, " ")
	var err error
	if r.token, err = strconv.ParseInt(number, 10, 64); err != nil || r.token <= 0 {
		return record{}, false
	}
	if r.name, rest, ok = cutQuoted(rest, "name="); !ok {
		return record{}, false
	}
	if r.owner, rest, ok = cutQuoted(rest, " owner="); !ok || rest != "" {
		return record{}, false
	}
	return r, true
}

func cutLast(s, sep string) (before, after string, ok bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

func cutQuoted(s, label string) (value, rest string, ok bool) {
	s, ok = strings.CutPrefix(s, label)
	if !ok {
		return "", "", false
	}
	quoted, err := strconv.QuotedPrefix(s)
	if err != nil {
		return "", "", false
	}
	value, err = strconv.Unquote(quoted)
	return value, s[len(quoted):], err == nil
}

// content is what a lock's file says.
type content struct {
	last  record
	free  int  // the slot for the next record
	fresh bool // nothing was ever written
}

// readContent reads both slots. An error means that the last token is not known.
func readContent(f io.ReaderAt) (content, error) {
	buf := make([]byte, 2*slotSize)
	n, err := f.ReadAt(buf, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return content{}, err
	}
	buf = buf[:n]
	// A crash before the first record was on the disk leaves no bytes, or zeros.
	if len(bytes.Trim(buf, "\x00")) == 0 {
		return content{fresh: true}, nil
	}
	c, found := content{}, false
	for i := 0; i*slotSize < len(buf); i++ {
		slot := buf[i*slotSize : min((i+1)*slotSize, len(buf))]
		r, ok := decode(slot)
		switch {
		case ok && (!found || r.token > c.last.token):
			c.last, c.free, found = r, 1-i, true
		case !ok && otherVersion(slot):
			return content{}, fmt.Errorf("%w: the file is of another version of the format (this one knows version %s)", lock.ErrUnsupported, version)
		}
	}
	if !found && tornFirst(buf) {
		return content{fresh: true}, nil
	}
	if !found {
		return content{}, errCorrupt
	}
	return c, nil
}

var errCorrupt = errors.New("the file has no readable record, so its last token is unknown; " +
	"if nobody holds the lock, remove the file: tokens then go on from the clock")

// tornFirst reports whether the file holds no more than the beginning of a first
// record, as a crash or a full disk leaves it: no token was given then.
func tornFirst(buf []byte) bool {
	begun := bytes.TrimRight(buf, "\x00")
	head := []byte(recordHead + version + " token=")
	return len(buf) <= slotSize && !bytes.Contains(begun, []byte("\n")) &&
		(bytes.HasPrefix(begun, head) || bytes.HasPrefix(head, begun))
}

// otherVersion reports whether a slot begins as a record of another version does,
// and not only as a torn one.
func otherVersion(slot []byte) bool {
	rest, ok := bytes.CutPrefix(slot, []byte(recordHead))
	if !ok {
		return false
	}
	number, _, ok := bytes.Cut(rest, []byte(" "))
	_, err := strconv.ParseUint(string(number), 10, 16)
	return ok && err == nil && string(number) != version
}

// writeNext gives the lock's next token, and returns once it is on the disk. The
// caller has the flock.
func writeNext(f *os.File, name, owner string, now time.Time) (lock.Token, error) {
	c, err := readContent(f)
	if err != nil {
		return 0, err
	}
	if !c.fresh && c.last.name != name {
		return 0, fmt.Errorf("the file is lock %.64q's: was it copied or renamed?", c.last.name)
	}
	if c.last.token == math.MaxInt64 {
		return 0, errors.New("the last token is the greatest there is")
	}
	r := record{token: max(c.last.token+1, now.UnixMicro()), name: name, owner: owner}
	slot, err := r.encode()
	if err != nil {
		return 0, err
	}
	if _, err := f.WriteAt(slot, int64(c.free*slotSize)); err != nil {
		return 0, err
	}
	if err := f.Sync(); err != nil {
		return 0, err
	}
	if c.fresh {
		if err := syncParent(f.Name()); err != nil {
			return 0, err
		}
	}
	return lock.Token(r.token), nil
}
