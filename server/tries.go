package server

import (
	"fmt"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// Bounds of wrong keys.
const (
	wrongKeys    = 60   // an address may show in a minute
	maxAddresses = 4096 // are remembered
)

// tries counts the wrong keys of addresses. Without a bound a key could be guessed as fast as the server reads. A key
// that was right before keeps working from its address: where many clients share one, such as a proxy's, none of them
// shuts the others out.
type tries struct {
	mu   sync.Mutex
	from map[netip.Prefix]*address
}

// address is where wrong keys came from.
type address struct {
	left  bucket
	right map[*keyUse]bool
}

// network returns the network that a request comes from: of IPv6 that is a /64, which one machine may have whole. A
// socket's is zero.
func network(r *http.Request) netip.Prefix {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Prefix{}
	}
	ip, bits := from.Addr().Unmap().WithZone(""), 32
	if ip.Is6() {
		bits = 64
	}
	p, _ := ip.Prefix(bits) // fits
	return p
}

// judge refuses what k says of a request's key where its network has no try left.
func (t *tries) judge(k keyring, r *http.Request, now time.Time) (*caller, *problem) {
	who, p := k.who(r)
	if len(k) == 0 || p != nil && p.code == "" { // no key is no try
		return who, p
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	net := network(r)
	a := t.from[net]
	if a == nil {
		if len(t.from) >= maxAddresses || t.from == nil {
			t.from = map[netip.Prefix]*address{}
		}
		a = &address{left: newBucket(wrongKeys), right: map[*keyUse]bool{}}
		t.from[net] = a
	}
	if p == nil && a.right[who.key] {
		return who, nil
	}
	if wait := a.left.take(0, now); wait > 0 {
		return nil, tooMany(fmt.Sprintf("This address has shown %d wrong keys within a minute", wrongKeys), wait)
	}
	if p != nil {
		a.left.spend(1, now)
		return nil, p
	}
	a.right[who.key] = true
	return who, nil
}
