package config

import (
	"cmp"
	"net/netip"
	"strings"
)

// ports contains the listening addresses of a file.
type ports []listener

type listener struct {
	name string
	addr netip.AddrPort
	at   Position // zero: the address is the default
}

// add adds an address. It ignores invalid addresses, port 0 and host names other than localhost.
func (p *ports) add(name, addr string, at Position) {
	if port, local := strings.CutPrefix(addr, "localhost:"); local {
		addr = "127.0.0.1:" + port
	}
	if a, err := netip.ParseAddrPort(addr); err == nil && a.Port() != 0 {
		*p = append(*p, listener{name, netip.AddrPortFrom(a.Addr().Unmap(), a.Port()), at})
	}
}

// check reports addresses that conflict with an earlier address.
func (p ports) check(d *decoder) {
	for i, second := range p {
		for _, first := range p[:i] {
			if first.overlaps(second) {
				d.failAt(cmp.Or(second.at, first.at), "%s and %s have the same address, %s; use another port", second.name, first.name, second.addr)
				break
			}
		}
	}
}

// overlaps reports whether two listeners have the same port and overlapping addresses.
func (l listener) overlaps(other listener) bool {
	a, b := l.addr.Addr(), other.addr.Addr()
	if l.addr.Port() != other.addr.Port() {
		return false
	}
	dual := func(x netip.Addr) bool { return x.IsUnspecified() && x.Is6() }
	return a == b || dual(a) || dual(b) || a.Is4() && b.Is4() && (a.IsUnspecified() || b.IsUnspecified())
}
