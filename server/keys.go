package server

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/karat-run/karat"
	"github.com/karat-run/karat/internal/patherr"
)

// Key is a secret of requests, with its owner and its rights.
type Key struct {
	Name   string // in logs and metrics, and whose files and batches are; callers of different names have equal shares
	Secret string

	Routes   []string // allowed paths, as /v1/models; a * at the end allows any end; nil is every route
	Models   []string // models to name and see; nil is all
	Requests int      // a minute; 0 is any number
	Tokens   int      // of prompts and answers a minute; 0 is any number
	Batches  int      // unfinished batches; 0 is any number
	Lines    int      // of batches a minute; 0 is any number
}

// leastSecret is the shortest secret, in bytes: shorter ones are guessed.
const leastSecret = 8

// maxKeys bounds the bytes of a file of keys.
const maxKeys = 1 << 20

// ReadKeys reads a file of keys: on each line a name, a colon and a secret, or a secret alone. Limits may follow, as
// "routes=/v1/chat/completions,/v1/models models=qwen requests=60 tokens=100000 batches=2 batch-lines=60". Empty lines
// and lines beginning with # are left out. A key without a name gets a part of its secret's hash for a name,
// key-0123456789ab, wherever its line is.
func ReadKeys(file string) ([]Key, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, patherr.Plain(err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxKeys+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxKeys {
		return nil, fmt.Errorf("%s: more than %d bytes of keys", file, maxKeys)
	}
	return ParseKeys(string(text), file)
}

// ParseKeys reads keys from a text; from names the text in errors, which never hold a secret.
func ParseKeys(text, from string) (keys []Key, err error) {
	line := 0
	for s := range strings.SplitSeq(text, "\n") {
		line++
		if s = strings.TrimSpace(s); s == "" || s[0] == '#' {
			continue
		}
		k, err := parseKey(s)
		if err == nil {
			err = k.check(keys)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: line %d: %w", from, line, err)
		}
		keys = append(keys, k)
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("%s: no keys, want a line NAME:SECRET for each", from)
	}
	return keys, nil
}

// parseKey reads the key of a line.
func parseKey(s string) (k Key, err error) {
	name, rest, named := strings.Cut(s, ":")
	if !named || strings.ContainsAny(name, "= \t") { // the colon belongs to a limit
		name, rest = "", s
	}
	words := strings.Fields(rest)
	if rest == s && len(words) > 0 {
		sum := sha256.Sum256([]byte(words[0]))
		name = "key-" + hex.EncodeToString(sum[:6])
	}
	if k.Name = strings.TrimSpace(name); len(words) == 0 {
		return k, nil // an error of the later check
	}
	k.Secret = words[0]
	for i, w := range words[1:] {
		what, value, ok := strings.Cut(w, "=")
		if ok && value == "" {
			return k, fmt.Errorf("%q: %s= has no value", k.Name, what)
		}
		if ok && slices.ContainsFunc(words[1:i+1], func(x string) bool { return strings.HasPrefix(x, what+"=") }) {
			return k, fmt.Errorf("%q: %s= is there twice; put what it lists behind one, with commas", k.Name, what)
		}
		lists := map[string]*[]string{"routes": &k.Routes, "models": &k.Models}
		limits := map[string]*int{"requests": &k.Requests, "tokens": &k.Tokens, "batches": &k.Batches,
			"batch-lines": &k.Lines}
		switch {
		case ok && lists[what] != nil:
			*lists[what] = strings.Split(value, ",")
		case ok && limits[what] != nil:
			n, err := strconv.Atoi(value)
			if err != nil || n < 1 || n > math.MaxInt32 {
				return k, fmt.Errorf("%q: %s: %q is no number of 1 to %d", k.Name, what, value, math.MaxInt32)
			}
			*limits[what] = n
		default:
			return k, fmt.Errorf("%q: behind the secret want routes=, models=, requests=, tokens=, batches= or "+
				"batch-lines=", k.Name)
		}
	}
	return k, nil
}

func (k Key) check(others []Key) error {
	switch {
	case k.Name == "" || strings.ContainsFunc(k.Name, func(r rune) bool { return r <= ' ' || r == 0x7f }):
		return fmt.Errorf("the name %q is empty, or has spaces", k.Name)
	case len(k.Secret) < leastSecret:
		return fmt.Errorf("the secret of %q has %d bytes, want %d or more", k.Name, len(k.Secret), leastSecret)
	case strings.ContainsFunc(k.Secret, func(r rune) bool { return r <= ' ' || r >= 0x7f }):
		return fmt.Errorf("the secret of %q has spaces, or characters that a header cannot have", k.Name)
	case min(k.Requests, k.Tokens, k.Batches, k.Lines) < 0:
		return fmt.Errorf("a limit of %q is negative", k.Name)
	case slices.ContainsFunc(k.Routes, func(r string) bool { return !strings.HasPrefix(r, "/") }):
		return fmt.Errorf("a route of %q does not begin with /", k.Name)
	}
	for _, o := range others {
		if o.Name == k.Name || o.Secret == k.Secret {
			return fmt.Errorf("%q is there twice, or its secret is", k.Name)
		}
	}
	return nil
}

// caller is the author of a request.
type caller struct {
	name string  // "" where nobody needs a key
	key  *keyUse // nil without keys
	late bool    // a batch gives way to others and has no limit by the minute
}

func (c *caller) caller() karat.Caller {
	k := karat.Caller{Key: c.name, PrivateCache: c.key != nil && !c.key.alone}
	if c.late {
		k.Priority = -1
	}
	return k
}

// sees reports whether the caller may name a model.
func (c *caller) sees(e *entry) bool {
	if c.key == nil || c.key.Models == nil {
		return true
	}
	return slices.ContainsFunc(c.key.Models, func(name string) bool {
		return name == e.Name || slices.Contains(e.Aliases, name)
	})
}

// keyring compares secrets by their hashes, in a time independent of the secrets.
type keyring []*keyUse

// keyUse is a key, and the rest of its minute.
type keyUse struct {
	Key      // without the secret
	hash     [sha256.Size]byte
	alone    bool // on the server
	requests bucket
	tokens   bucket
	lines    bucket // of batches
}

func newKeyring(keys []Key) (ring keyring, err error) {
	for i, k := range keys {
		if err := k.check(keys[:i]); err != nil {
			return nil, fmt.Errorf("key %d: %w", i, err)
		}
		u := &keyUse{Key: k, hash: sha256.Sum256([]byte(k.Secret)), alone: len(keys) == 1,
			requests: newBucket(k.Requests),
			tokens:   newBucket(k.Tokens), lines: newBucket(k.Lines)}
		u.Secret = ""
		ring = append(ring, u)
	}
	return ring, nil
}

// caller returns the owner of a request's key.
func (k keyring) caller(r *http.Request) (*caller, *problem) {
	if len(k) == 0 {
		return &caller{}, nil
	}
	secret := r.Header.Get("X-Api-Key")
	if scheme, rest, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "bearer") {
		secret = strings.TrimSpace(rest)
	}
	p := refuse(http.StatusUnauthorized, "", "", "You didn't provide an API key. Send it as a header: Authorization: "+
		"Bearer KEY")
	if secret == "" {
		return nil, p
	}
	given := sha256.Sum256([]byte(secret))
	var found *keyUse
	for _, u := range k {
		if subtle.ConstantTimeCompare(given[:], u.hash[:]) == 1 {
			found = u
		}
	}
	if found == nil {
		p.code, p.message = "invalid_api_key", "Incorrect API key provided."
		return nil, p
	}
	return &caller{name: found.Name, key: found}, nil
}

// opens reports whether the key is good for a path.
func (u *keyUse) opens(path string) bool {
	return u.Routes == nil || slices.ContainsFunc(u.Routes, func(r string) bool {
		begin, more := strings.CutSuffix(r, "*")
		return path == r || more && strings.HasPrefix(path, begin)
	})
}

// admit counts a request, or returns the reason against it: nothing left, or a route or model outside the key's rights.
func (c *caller) admit(path string, now time.Time) *problem {
	u := c.key
	if u == nil {
		return nil
	}
	if !u.opens(path) {
		return forbidden(u, path)
	}
	if wait := u.tokens.take(0, now); wait > 0 {
		return tooMany(wait, "The key %q has used its %d tokens a minute", u.Name, u.Tokens)
	}
	if wait := u.requests.take(1, now); wait > 0 {
		return tooMany(wait, "The key %q has used its %d requests a minute", u.Name, u.Requests)
	}
	return nil
}

func forbidden(u *keyUse, path string) *problem {
	return refuse(http.StatusForbidden, "insufficient_permissions", "", "The key %q is not good for %s", u.Name, path)
}

// callerOf returns whose batch is run: he must have a key still.
func (k keyring) callerOf(name string) (*caller, error) {
	if len(k) == 0 && name == "" {
		return &caller{late: true}, nil
	}
	for _, u := range k {
		if u.Name == name {
			return &caller{name: name, key: u, late: true}, nil
		}
	}
	return nil, fmt.Errorf("the key %q is no more", name)
}

// hold counts the tokens of an answer in advance, until release, beside the tokens used.
func (c *caller) hold(n int, now time.Time) *problem {
	if c.key == nil || c.late {
		return nil
	}
	if wait := c.key.tokens.hold(n, now); wait > 0 {
		return tooMany(wait, "The key %q has used its %d tokens a minute, or its answers under way may use them",
			c.name, c.key.Tokens)
	}
	return nil
}

func (c *caller) release(n int, now time.Time) {
	if c.key != nil && !c.late {
		c.key.tokens.release(n, now)
	}
}

// spend counts the tokens of an answer, perhaps more than were left: the next request waits for them.
func (c *caller) spend(n int, now time.Time) {
	if c.key != nil && !c.late {
		c.key.tokens.spend(n, now)
	}
}

func tooMany(wait time.Duration, format string, args ...any) *problem {
	p := full(format, args...)
	p.after = max(1, int((wait+time.Second-time.Millisecond)/time.Second))
	return p
}

// bucket is the rest of a minute's number: it fills evenly, up to the number.
type bucket struct {
	mu     sync.Mutex
	minute float64 // 0 is any number
	left   float64
	held   float64   // by answers under way, for their use
	at     time.Time // when left was right
}

func newBucket(minute int) bucket { return bucket{minute: float64(minute), left: float64(minute)} }

// waitForNext returns the time until there is one.
func (b *bucket) waitForNext() time.Duration {
	if b.left >= 1-1e-6 { // an allowance for rounding
		return 0
	}
	return time.Duration(math.Ceil((1 - b.left) / b.minute * float64(time.Minute)))
}

// use brings b to now and calls f, unless b bounds nothing.
func (b *bucket) use(now time.Time, f func() time.Duration) time.Duration {
	if b.minute == 0 {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.at.IsZero() && now.After(b.at) {
		b.left = min(b.minute, b.left+b.minute*now.Sub(b.at).Minutes())
	}
	if b.at.IsZero() || now.After(b.at) {
		b.at = now
	}
	return f()
}

// take takes n if one is left, and else returns the time until then.
func (b *bucket) take(n int, now time.Time) time.Duration {
	return b.use(now, func() time.Duration {
		wait := b.waitForNext()
		if wait == 0 {
			b.left -= float64(n)
		}
		return wait
	})
}

// hold takes n for later, if one is left beside all held amounts, and else returns the wait before another try.
func (b *bucket) hold(n int, now time.Time) time.Duration {
	return b.use(now, func() time.Duration {
		wait := b.waitForNext()
		switch {
		case n == 0:
			return 0
		case wait == 0 && b.left-b.held < 1:
			return time.Second // an answer may end at any time, and have used less
		case wait == 0:
			b.held += float64(n)
		}
		return wait
	})
}

// release gives back an amount of hold.
func (b *bucket) release(n int, now time.Time) {
	b.use(now, func() time.Duration { b.held -= float64(n); return 0 })
}

// spend takes n, perhaps more than are left.
func (b *bucket) spend(n int, now time.Time) {
	b.use(now, func() time.Duration { b.left -= float64(n); return 0 })
}

// held is a request's bytes in the room of bodies.
type held struct {
	s    *Server
	who  string
	size int64
}

// grow takes room for size bytes in all, or else changes nothing.
func (h *held) grow(size int64) bool {
	small, large := h.parts()
	h.size, size = size, h.size
	moreSmall, moreLarge := h.parts()
	if h.s.rooms.small.take(h.who, moreSmall-small) {
		if h.s.rooms.bodies.take(h.who, moreLarge-large) {
			return true
		}
		h.s.rooms.small.give(h.who, moreSmall-small)
	}
	h.size = size
	return false
}

// parts returns the bytes in the room of small bodies, and the others.
func (h *held) parts() (small, large int64) {
	return min(h.size, firstBody), max(0, h.size-firstBody)
}

// end gives all back.
func (h *held) end() {
	if small, large := h.parts(); h.size > 0 {
		h.s.rooms.small.give(h.who, small)
		h.s.rooms.bodies.give(h.who, large)
		h.size = 0
	}
}

// shares bound the callers' holdings of a thing, as places of requests or bytes of bodies. Half of all is divided
// evenly among the keys: the part of a key not held is kept for the key. The rest is for the first to come. A server
// without keys has a single caller with a right to all.
type shares struct {
	mu   sync.Mutex
	free int64
	all  int64
	each int64            // kept for each key
	owed int64            // the keys' parts not held
	held map[string]int64 // by callers
	keys map[string]bool
}

// newShares returns shares of all for the callers of keys.
func newShares(all int64, keys keyring) *shares {
	s := &shares{free: all, all: all, held: map[string]int64{}, keys: map[string]bool{}}
	for _, k := range keys {
		s.keys[k.Name] = true
	}
	if n := int64(len(s.keys)); n > 1 {
		s.each = max(1, all/(2*n))
		s.owed = n * s.each
	}
	return s
}

// owes returns how much is kept for a caller.
func (s *shares) owes(who string) int64 {
	if !s.keys[who] {
		return 0
	}
	return max(0, s.each-s.held[who])
}

// room returns how much more a caller may take. With more keys than half of all, a key without holdings gets the rest.
func (s *shares) room(who string) int64 {
	own := s.owes(who)
	return max(s.free-min(s.owed-own, s.all/2), min(s.free, own))
}

// most returns the maximum for a caller without holdings, while others hold nothing.
func (s *shares) most(who string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	others := int64(len(s.keys)) * s.each
	if s.keys[who] {
		others -= s.each
	}
	return s.all - min(others, s.all/2)
}

// take takes n for a caller, if there is room.
func (s *shares) take(who string, n int64) bool { return s.takeLeaving(0, who, n) }

// takeLeaving takes n, if spare is left for others.
func (s *shares) takeLeaving(spare int64, who string, n int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n > s.room(who)-spare {
		return false
	}
	s.move(who, n)
	return true
}

// add takes n for a caller, room or not, for a thing already present. A negative n gives back.
func (s *shares) add(who string, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.move(who, n)
}

func (s *shares) give(who string, n int64) { s.add(who, -n) }

// move changes a caller's holdings. The mutex is held.
func (s *shares) move(who string, n int64) {
	before := s.owes(who)
	s.free -= n
	if s.held[who] += n; s.held[who] == 0 {
		delete(s.held, who)
	}
	s.owed += s.owes(who) - before
}
