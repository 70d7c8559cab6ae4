package serve

import (
	"errors"
	"fmt"
	"io/fs"
	"net"

	"github.com/reprisemq/reprise/cmd/reprise/internal/dial"
	"github.com/reprisemq/reprise/cmd/reprise/internal/exit"
	"github.com/reprisemq/reprise/internal/brief"
)

// Listen listens on an address. Its errors have advice for the user.
func Listen(addr string) (net.Listener, error) {
	l, err := net.Listen(dial.Network(addr), addr)
	if err == nil {
		return l, nil
	}
	if _, ok := errors.AsType[*net.AddrError](err); ok {
		return nil, exit.Usagef("cannot listen on %s (use HOST:PORT, such as 127.0.0.1:5600)", brief.Quoted(addr))
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		err = op.Err
	}
	hint := "another program may use the port; port 0 selects a free port"
	if errors.Is(err, fs.ErrPermission) {
		hint = "ports below 1024 require a privilege, on Linux the capability CAP_NET_BIND_SERVICE"
	}
	return nil, fmt.Errorf("cannot listen on %s: %w (%s)", addr, err, hint)
}

// Loopback reports whether only this machine can reach an address.
func Loopback(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// WebURL returns the local URL of a server with this address.
func WebURL(a net.Addr) string { return "http://" + WebHost(a) }

// WebHost returns the host and the port of the local URL of a server with this address.
func WebHost(a net.Addr) string {
	if tcp, ok := a.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
		return net.JoinHostPort("localhost", fmt.Sprint(tcp.Port))
	}
	return a.String()
}
