package conformance_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"net"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/interlock-go/lock/conformance"
)

// store is a small lock server over TCP, so that the suite itself can be tested
// with a network, child processes and crashes. A flaw makes it a broken one.
type store struct {
	flaw string
	addr string

	mu      sync.Mutex
	entries map[string]*storeEntry
	users   map[string]string   // their passwords
	voids   map[string]bool     // IDs that were released: their late requests take nothing
	queues  map[string][]string // only with a flaw
	last    int64               // token
	paused  chan struct{}       // closed by Resume
	conns   map[net.Conn]bool
	listen  net.Listener
}

type storeEntry struct {
	id, owner string
	token     int64
	until     time.Time
	ttl       time.Duration
}

// question is a client's line, answerLine the server's.
type question struct {
	Op, ID, Owner string
	User, Pass    string
	Key           []byte // JSON would change a string that is not UTF-8
	TTL           time.Duration
	Wait          bool
}

type answerLine struct {
	Outcome string // granted, held, ok, lost, denied
	Owner   string
	Token   int64
	Left    time.Duration
}

func startStore(flaw string) (*conformance.Server, error) {
	s := &store{
		flaw: flaw, addr: "127.0.0.1:0", entries: make(map[string]*storeEntry), voids: make(map[string]bool), users: make(map[string]string),
		queues: make(map[string][]string), conns: make(map[net.Conn]bool),
	}
	if err := s.start(); err != nil {
		return nil, err
	}
	return &conformance.Server{
		URL: "teststore://" + s.addr + "?flaw=" + strings.ReplaceAll(flaw, " ", "%20"), Stop: s.kill,
		Pause: s.pause, Resume: s.resume, Kill: s.kill, Restart: s.start, Steal: s.steal, Residue: s.residue, Login: s.login,
	}, nil
}

func (s *store) start() error {
	var l net.Listener
	var err error
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if l, err = net.Listen("tcp", s.addr); err == nil || time.Now().After(end) {
			break
		}
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listen, s.addr = l, l.Addr().String()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.conns[c] = true
			s.mu.Unlock()
			go s.serve(c)
		}
	}()
	return nil
}

func (s *store) kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		_ = c.(*net.TCPConn).SetLinger(0)
		c.Close()
	}
	clear(s.conns)
	switch s.flaw {
	case "forgets locks in a crash":
		clear(s.entries)
	case "forgets tokens in a crash":
		s.last = 0
	}
	return s.listen.Close()
}

func (s *store) pause() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paused = make(chan struct{})
	return nil
}

func (s *store) resume() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.paused == nil {
		return errors.New("not paused")
	}
	close(s.paused)
	s.paused = nil
	return nil
}

func (s *store) steal(_ context.Context, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := s.key(name)
	if s.flaw == "keeps its tokens in the entry" {
		s.last = 0
	}
	delete(s.entries, key)
	return nil
}

func (s *store) login(_ context.Context, user, password string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users[user] = password
	return nil
}

func (s *store) residue(_ context.Context, name string) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var left []string
	if e := s.live(s.key(name)); e != nil {
		left = append(left, "entry of "+e.owner)
	}
	for _, id := range s.queues[s.key(name)] {
		left = append(left, "waiter "+id)
	}
	return left, nil
}

func (s *store) serve(c net.Conn) {
	defer func() {
		c.Close()
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
	}()
	out := json.NewEncoder(c)
	for in := bufio.NewScanner(c); in.Scan(); {
		var q question
		if json.Unmarshal(in.Bytes(), &q) != nil {
			return
		}
		s.mu.Lock()
		for s.paused != nil {
			paused := s.paused
			s.mu.Unlock()
			<-paused
			s.mu.Lock()
		}
		a := s.answer(q)
		s.mu.Unlock()
		if out.Encode(a) != nil {
			return
		}
	}
}

// key is how the store files a name.
func (s *store) key(name string) string {
	switch s.flaw {
	case "cuts names to 64 bytes":
		return name[:min(len(name), 64)]
	case "folds the case of names":
		return strings.ToLower(name)
	case "cleans names as paths":
		return path.Clean(name)
	case "hashes names to 32 bits":
		return fmt.Sprint(crc32.ChecksumIEEE([]byte(name)))
	case "names end at NUL":
		name, _, _ = strings.Cut(name, "\x00")
	}
	return name
}

// ttl is the time to live that the store makes of the one asked for.
func (s *store) ttl(asked time.Duration) time.Duration {
	switch s.flaw {
	case "never expires", "never expires, and releases slowly":
		return 24 * time.Hour
	case "counts in whole seconds":
		return asked.Truncate(time.Second)
	case "expires early":
		return asked * 2 / 3
	}
	return asked
}

func (s *store) live(key string) *storeEntry {
	e := s.entries[key]
	if e != nil && !time.Now().Before(e.until) {
		delete(s.entries, key)
		return nil
	}
	return e
}

func (s *store) answer(q question) answerLine {
	key := s.key(string(q.Key))
	e := s.live(key)
	ours := e != nil && e.id == q.ID
	if q.User+q.Pass != "" && (q.Pass == "" || s.users[q.User] != q.Pass) {
		return answerLine{Outcome: "denied"}
	}
	switch q.Op {
	case "acquire":
		return s.acquire(q, key, e)
	case "renew":
		if !ours {
			switch {
			case s.flaw == "renews whoever asks":
				return answerLine{Outcome: "ok"}
			case e == nil && s.flaw == "renewal takes the lock anew":
				s.grant(q, key)
				return answerLine{Outcome: "ok"}
			}
			return answerLine{Outcome: "lost"}
		}
		if s.flaw == "renewal keeps the first TTL" {
			q.TTL = e.ttl
		}
		e.until = time.Now().Add(s.ttl(q.TTL))
	case "release":
		if s.flaw == "releases whoever asks" {
			delete(s.entries, key)
			return answerLine{Outcome: "ok"}
		}
		s.voids[q.ID] = true
		if !ours {
			return answerLine{Outcome: "lost"}
		}
		if s.flaw != "release frees nothing" {
			delete(s.entries, key)
		}
	}
	return answerLine{Outcome: "ok"}
}

func (s *store) acquire(q question, key string, e *storeEntry) answerLine {
	mine := e != nil && (e.id == q.ID || s.flaw == "is re-entrant by owner" && e.owner == q.Owner)
	if s.flaw == "dead waiters block" {
		queue := s.queues[key]
		if e == nil && len(queue) > 0 && queue[0] != q.ID {
			e = &storeEntry{until: time.Now().Add(time.Second)}
		}
		if i := slices.Index(queue, q.ID); e == nil && i >= 0 {
			s.queues[key] = slices.Delete(queue, i, i+1)
		} else if e != nil && !mine && q.Wait && i < 0 {
			s.queues[key] = append(queue, q.ID)
		}
	}
	switch {
	case s.voids[q.ID]:
		return answerLine{Outcome: "lost"}
	case e != nil && !mine:
		return answerLine{Outcome: "held", Owner: e.owner, Left: time.Until(e.until)}
	case mine && e.id == q.ID:
		e.until = time.Now().Add(s.ttl(q.TTL))
		return answerLine{Outcome: "granted", Token: e.token}
	}
	return s.grant(q, key)
}

func (s *store) grant(q question, key string) answerLine {
	switch s.flaw {
	case "gives each holder the same token":
		s.last = 7
	case "gives falling tokens":
		if s.last == 0 {
			s.last = 1 << 40
		}
		s.last--
	default:
		s.last++
	}
	s.entries[key] = &storeEntry{id: q.ID, owner: q.Owner, token: s.last, until: time.Now().Add(s.ttl(q.TTL)), ttl: q.TTL}
	return answerLine{Outcome: "granted", Token: s.last}
}
