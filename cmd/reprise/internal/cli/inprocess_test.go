package cli

import (
	"context"
	"log/slog"
	"net"
	"net/url"
	"testing"

	"github.com/reprisemq/reprise/broker"
)

// The console of `reprise up` queries the broker in the same process without a port.
func TestFiguresOfTheBrokerInTheProcess(t *testing.T) {
	b, err := broker.New(broker.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Shutdown(context.Background()) }()
	d := &desk{deskConfig: deskConfig{listen: "127.0.0.1:0"}, log: slog.New(slog.DiscardHandler)}
	web := d.figures(&embeddedBroker{Broker: b})
	defer web.stop()
	found, err := d.console.Management.Bindings(t.Context())
	if err != nil || len(found.Exchanges) == 0 {
		t.Errorf("%d exchanges: %v", len(found.Exchanges), err)
	}
	u, err := url.Parse(d.console.Management.URL)
	if err != nil {
		t.Fatal(err)
	}
	if conn, err := net.Dial("tcp", u.Host); err == nil {
		_ = conn.Close()
		t.Errorf("%s is open", u.Host)
	}
	web.stop()
	if _, err := d.console.Management.Bindings(t.Context()); err == nil {
		t.Error("it answers after its end")
	}
}
