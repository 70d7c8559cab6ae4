package access

import (
	"fmt"
	"net/netip"
)

// The login that everybody knows, which is RabbitMQ's.
const (
	DefaultUser     = "guest"
	DefaultPassword = "guest"
)

// authenticFrom is Authenticate for a login from an address. The default login is refused from other machines, whoever made
// that user, and counts as a wrong password there.
func (c *Control) authenticFrom(peer, name, password string) bool {
	return c.Authenticate(name, password) && !(defaultLogin(name, password) && remote(peer))
}

// Refusal returns why a login was refused that did not have to wait, for the log.
func (c *Control) Refusal(peer, name, password string) string {
	if c.Authenticate(name, password) && !c.authenticFrom(peer, name, password) {
		return fmt.Sprintf("the password %s of user %s is the default one, and is accepted from this machine only", DefaultPassword, DefaultUser)
	}
	return "wrong name or password"
}

func defaultLogin(name, password string) bool {
	return name == DefaultUser && password == DefaultPassword
}

// remote reports whether a peer is on another machine. A peer without an IP address, such as that of a Unix socket or of a
// pipe, is on this machine.
func remote(peer string) bool {
	addr, err := netip.ParseAddr(peer)
	if withPort, wrong := netip.ParseAddrPort(peer); wrong == nil {
		addr, err = withPort.Addr(), nil
	}
	return err == nil && !addr.Unmap().IsLoopback()
}
