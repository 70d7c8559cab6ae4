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

// EmbeddedManaged is Embedded with a configuration and a management API. It returns the URL of the API without /api.
func EmbeddedManaged(t testing.TB, config broker.Config) (b Target, api string) {
	t.Helper()
	server, b := serve(t, config)
	web := httptest.NewServer(server.Management())
	t.Cleanup(web.Close)
	return b, web.URL
}

// EachManaged is Each for tests that also use the management API of the broker. The argument api is the URL of the API
// without its path /api. The user is guest.
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

// ManagementURL returns the URL of the management API, without /api, of a RabbitMQ that scripts/rabbitmq has started.
// Its port is the AMQP port plus 10000.
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

// HTTPClient returns a client that closes its idle connections at the end of t.
func HTTPClient(t testing.TB) *http.Client {
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}
