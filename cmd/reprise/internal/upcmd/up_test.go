package upcmd

import (
	"net"
	"path/filepath"
	"testing"
	"time"
)

func TestNotifySystemd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	t.Setenv("NOTIFY_SOCKET", path)
	if err := notifySystemd("READY=1"); err == nil {
		t.Error("notifySystemd without a listener: got no error")
	}
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	if err := notifySystemd("READY=1"); err != nil {
		t.Fatal(err)
	}
	if err := socket.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	state := make([]byte, 16)
	n, err := socket.Read(state)
	if err != nil || string(state[:n]) != "READY=1" {
		t.Errorf("got state %q, error %v, want READY=1", state[:n], err)
	}
	t.Setenv("NOTIFY_SOCKET", "")
	if err := notifySystemd("READY=1"); err != nil {
		t.Errorf("notifySystemd without systemd: got %v, want nil", err)
	}
}
