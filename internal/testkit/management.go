package testkit

import (
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"testing"

	"github.com/reprisemq/reprise/broker"
)

// EmbeddedManaged is Embedded with a configuration, and with a management API, of
// which it returns the URL, without /api.
func EmbeddedManaged(t testing.TB, config broker.Config) (b Target, api string) {
	t.Helper()
	server, b := serve(t, config)
	web := httptest.NewServer(server.Management())
	t.Cleanup(web.Close)
	return b, web.URL
}

// EachManaged is Each for tests that also ask the broker's management API, which is at this URL,
// without /api. Its user is guest.
func EachManaged(t *testing.T, test func(t *testing.T, b Target, api string)) {
	t.Helper()
	t.Run("embedded", func(t *testing.T) {
		b, api := EmbeddedManaged(t, broker.Config{})
		test(t, b, api)
	})
	for _, b := range RabbitMQs() {
		t.Run(b.Name, func(t *testing.T) {
			b.Require(t)
			test(t, b, b.ManagementURL(t))
		})
	}
}

// ManagementURL is where a RabbitMQ that scripts/rabbitmq has started has its
// management API, without /api: ten thousand ports up.
func (b Target) ManagementURL(t testing.TB) string {
	t.Helper()
	u, err := url.Parse(b.URL)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		t.Fatal(err)
	}
	return "http://" + net.JoinHostPort(u.Hostname(), strconv.Itoa(port+10000))
}

// HTTPClient returns a client that leaves no connection behind when t ends.
func HTTPClient(t testing.TB) *http.Client {
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}
