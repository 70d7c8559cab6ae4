package access

import (
	"fmt"
	"net/netip"
)

// The default login of RabbitMQ, which is publicly known.
const (
	DefaultUser     = "guest"
	DefaultPassword = "guest"
)

// authenticFrom is like Authenticate, but the default login from another machine counts as a wrong password, even if
// an administrator created the user.
func (c *Control) authenticFrom(peer, name, password string) bool {
	return c.Authenticate(name, password) && !(defaultLogin(name, password) && remote(peer))
}

// Refusal returns the reason, for the log, why Login returned false without an error.
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
