package upcmd

import (
	"fmt"
	"net"
	"os"
)

// notifySystemd sends a state, such as READY=1, to systemd if the unit has Type=notify. See sd_notify(3).
func notifySystemd(state string) error {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("cannot notify the service manager: %w", err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte(state)); err != nil {
		return fmt.Errorf("cannot notify the service manager: %w", err)
	}
	return nil
}
