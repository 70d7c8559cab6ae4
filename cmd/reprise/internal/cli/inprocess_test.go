package cli

import (
	"context"
	"log/slog"
	"net"
	"net/url"
	"testing"

	"github.com/reprisemq/reprise/broker"
)

// The console of `reprise up` uses the management API of the embedded broker without a port.
func TestManagementOfEmbeddedBroker(t *testing.T) {
	b, err := broker.New(broker.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Shutdown(context.Background()) }()
	d := &archiveService{archiveServiceConfig: archiveServiceConfig{listen: "127.0.0.1:0"}, log: slog.New(slog.DiscardHandler)}
	web := d.figures(&embeddedBroker{Broker: b})
	defer web.stop()
	found, err := d.console.Management.Bindings(t.Context())
	if err != nil || len(found.Exchanges) == 0 {
		t.Errorf("got %d exchanges, error %v, want at least 1", len(found.Exchanges), err)
	}
	u, err := url.Parse(d.console.Management.URL)
	if err != nil {
		t.Fatal(err)
	}
	if conn, err := net.Dial("tcp", u.Host); err == nil {
		_ = conn.Close()
		t.Errorf("port %s is open", u.Host)
	}
	web.stop()
	if _, err := d.console.Management.Bindings(t.Context()); err == nil {
		t.Error("management API responds after the stop")
	}
}
