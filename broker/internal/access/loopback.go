package access

import (
	"fmt"
	"net/netip"
)

// The publicly known default login of RabbitMQ.
const (
	DefaultUser     = "guest"
	DefaultPassword = "guest"
)

// authenticFrom is like Authenticate, but from another machine, the default password of the default user counts as
// wrong, even if an administrator has set it.
func (c *Control) authenticFrom(peer, name, password string) bool {
	return c.Authenticate(name, password) && !(defaultLogin(name, password) && remote(peer))
}

// Refusal describes, for the log, the reason why Login returned false without an error.
func (c *Control) Refusal(peer, name, password string) string {
	if c.Authenticate(name, password) && !c.authenticFrom(peer, name, password) {
		return fmt.Sprintf("user %s with the default password can log in only from this machine", DefaultUser)
	}
	return "wrong name or password"
}

func defaultLogin(name, password string) bool {
	return name == DefaultUser && password == DefaultPassword
}

// remote reports whether a peer is on another machine. A peer without an IP address, such as a Unix socket or a pipe,
// is on this machine.
func remote(peer string) bool {
	addr, err := netip.ParseAddr(peer)
	if withPort, wrong := netip.ParseAddrPort(peer); wrong == nil {
		addr, err = withPort.Addr(), nil
	}
	return err == nil && !addr.Unmap().IsLoopback()
}
