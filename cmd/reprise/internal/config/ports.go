package config

import (
	"net"
	"net/netip"
	"strconv"
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
	host, port, _ := net.SplitHostPort(addr)
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return
	}
	if host == "localhost" {
		host = "127.0.0.1"
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		*p = append(*p, listener{name, netip.AddrPortFrom(ip.Unmap(), uint16(n)), at})
	}
}

// check reports addresses of which only the first could be listened on.
func (p ports) check(d *decoder) {
	for i, second := range p {
		for _, first := range p[:i] {
			if first.overlaps(second) {
				at := second.at
				if at == (Position{}) {
					at = first.at
				}
				d.failAt(at, "%s has the address of %s, %s: write another port", second.name, first.name, second.addr)
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
