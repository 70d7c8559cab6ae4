package config

import (
	"cmp"
	"net/netip"
	"strings"
)

// ports are the addresses that a file listens on.
type ports []listener

type listener struct {
	name string
	addr netip.AddrPort
	at   Position // zero: it is the default
}

// add adds an address; an invalid one, port 0 and a name other than localhost are left out.
func (p *ports) add(name, addr string, at Position) {
	if port, local := strings.CutPrefix(addr, "localhost:"); local {
		addr = "127.0.0.1:" + port
	}
	if a, err := netip.ParseAddrPort(addr); err == nil && a.Port() != 0 {
		*p = append(*p, listener{name, netip.AddrPortFrom(a.Addr().Unmap(), a.Port()), at})
	}
}

// check reports addresses of which only the first could be listened on.
func (p ports) check(d *decoder) {
	for i, second := range p {
		for _, first := range p[:i] {
			if first.overlaps(second) {
				d.failAt(cmp.Or(second.at, first.at), "%s has the address of %s, %s: write another port", second.name, first.name, second.addr)
				break
			}
		}
	}
}

// overlaps reports whether two programs cannot listen on both addresses.
func (l listener) overlaps(other listener) bool {
	a, b := l.addr.Addr(), other.addr.Addr()
	if l.addr.Port() != other.addr.Port() {
		return false
	}
	dual := func(x netip.Addr) bool { return x.IsUnspecified() && x.Is6() }
	return a == b || dual(a) || dual(b) || a.Is4() && b.Is4() && (a.IsUnspecified() || b.IsUnspecified())
}
