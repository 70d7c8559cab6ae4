package upcmd

import (
	"context"
	"log/slog"
	"net"
	"net/url"
	"path/filepath"
	"testing"

	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/cmd/reprise/internal/config"
	"github.com/reprisemq/reprise/internal/mgmtapi"
)

// The console of `reprise up` uses the management API of the embedded broker without a port.
func TestManagementOfEmbeddedBroker(t *testing.T) {
	b, err := broker.New(broker.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Shutdown(context.Background()) }()
	cfg := &config.Config{Archive: &config.Archive{Store: "sqlite:" + filepath.Join(t.TempDir(), "a.db"), Queues: []string{"orders.failed"}}, Console: &config.Console{Listen: "127.0.0.1:0"}}
	d, wrong := configuredArchiveService(cfg, nil, slog.New(slog.DiscardHandler))
	if len(wrong) > 0 {
		t.Fatal(wrong)
	}
	defer d.Close()
	web := d.ServeFigures(b.Management())
	defer web.Stop()
	management := mgmtapi.API(*d.Settings.Management)
	found, err := management.Topology(t.Context())
	if err != nil || len(found.Exchanges) == 0 {
		t.Errorf("got %d exchanges, error %v, want at least 1", len(found.Exchanges), err)
	}
	u, err := url.Parse(management.URL)
	if err != nil {
		t.Fatal(err)
	}
	if conn, err := net.Dial("tcp", u.Host); err == nil {
		_ = conn.Close()
		t.Errorf("port %s is open", u.Host)
	}
	web.Stop()
	if _, err := management.Topology(t.Context()); err == nil {
		t.Error("management API responds after the stop")
	}
}
