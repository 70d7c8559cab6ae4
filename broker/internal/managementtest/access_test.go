package managementtest

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/internal/testkit"
)

// For users other than administrators, tags have the same effect as in RabbitMQ, with the same status codes and error
// messages.
func TestTagPermissionsMatchRabbitMQ(t *testing.T) {
	ours, theirs := embedded(t, broker.Config{}), rabbitMQ(t)
	vhost, private := ours.vhost(t), ours.vhost(t)
	for _, name := range []string{vhost, private} {
		theirs.must(t, "PUT", "/api/vhosts/"+name, "")
		t.Cleanup(func() { theirs.must(t, "DELETE", "/api/vhosts/"+name, "") })
	}
	for _, tags := range []string{"", "management", "policymaker", "monitoring"} {
		user := vhost + "-" + tags
		for _, b := range []*target{ours, theirs} {
			b.must(t, "PUT", "/api/users/"+user, `{"password":"p","tags":"`+tags+`"}`)
			t.Cleanup(func() { b.must(t, "DELETE", "/api/users/"+user, "") })
			b.must(t, "PUT", "/api/permissions/"+vhost+"/"+user, `{"configure":"^ok","write":"^ok","read":"^ok"}`)
			b.must(t, "PUT", "/api/exchanges/"+vhost+"/oktopic", `{"type":"topic"}`)
			b.must(t, "PUT", "/api/exchanges/"+vhost+"/okay", `{"type":"fanout"}`)
			b.must(t, "PUT", "/api/topic-permissions/"+vhost+"/"+user, `{"exchange":"oktopic","write":"^a","read":"^a"}`)
		}
		for _, r := range []struct{ method, path, body string }{
			{"GET", "/api/whoami", ""},
			{"GET", "/api/overview?columns=product_name", ""},
			{"GET", "/api/nodes?columns=running", ""},
			{"GET", "/api/vhosts/V/connections", ""},
			{"GET", "/api/vhosts/V/channels", ""},
			{"GET", "/api/consumers/V", ""},
			{"GET", "/api/consumers/P", ""},
			{"GET", "/api/queues/V", ""},
			{"GET", "/api/queues/P", ""},
			{"GET", "/api/exchanges/V/amq.topic?columns=name", ""},
			{"GET", "/api/exchanges/P", ""},
			{"GET", "/api/bindings/V", ""},
			{"GET", "/api/bindings/P", ""},
			{"GET", "/api/vhosts/V", ""},
			{"GET", "/api/vhosts/V/permissions", ""},
			{"GET", "/api/users", ""},
			{"GET", "/api/users/guest", ""},
			{"GET", "/api/users/guest/permissions", ""},
			{"GET", "/api/permissions", ""},
			{"GET", "/api/permissions/V/guest", ""},
			{"GET", "/api/definitions", ""},
			{"GET", "/api/definitions/V", ""},
			{"GET", "/api/health/checks/alarms", ""},
			{"GET", "/api/aliveness-test/V", ""},
			{"PUT", "/api/queues/V/ok", `{"durable":true}`},
			{"PUT", "/api/queues/V/other", `{"durable":true}`},
			{"PUT", "/api/queues/V/ok2", `{"durable":true,"arguments":{"x-dead-letter-exchange":"other"}}`},
			{"PUT", "/api/queues/P/ok", `{"durable":true}`},
			{"PUT", "/api/exchanges/V/ok", `{}`},
			{"PUT", "/api/exchanges/V/other", `{}`},
			{"POST", "/api/bindings/V/e/ok/q/ok", `{}`},
			{"POST", "/api/bindings/V/e/amq.topic/q/ok", `{}`},
			{"POST", "/api/exchanges/V/ok/publish", `{"properties":{},"routing_key":"","payload":"","payload_encoding":"string"}`},
			{"POST", "/api/queues/V/ok/get", `{"count":1,"ackmode":"ack_requeue_false","encoding":"auto"}`},
			{"DELETE", "/api/queues/V/ok/contents", ""},
			{"DELETE", "/api/queues/V/ok", ""},
			{"DELETE", "/api/exchanges/V/ok", ""},
			{"POST", "/api/exchanges/V/oktopic/publish", `{"properties":{},"routing_key":"a","payload":"","payload_encoding":"string"}`},
			{"POST", "/api/exchanges/V/oktopic/publish", `{"properties":{},"routing_key":"b","payload":"","payload_encoding":"string"}`},
			{"POST", "/api/bindings/V/e/oktopic/e/okay", `{"routing_key":"b"}`},
			{"POST", "/api/bindings/V/e/oktopic/e/okay", `{"routing_key":"a"}`},
			{"DELETE", "/api/bindings/V/e/oktopic/e/okay/a", ""},
			{"PUT", "/api/vhosts/" + vhost + "-2", ""},
			{"PUT", "/api/users/nosuch", `{"password":"x","tags":""}`},
			{"DELETE", "/api/users/guest", ``},
			{"POST", "/api/definitions", `{}`},
		} {
			path := strings.NewReplacer("/V", "/"+vhost, "/P", "/"+private).Replace(r.path)
			wantStatus, want := theirs.callAs(t, user, "p", r.method, path, r.body)
			status, got := ours.callAs(t, user, "p", r.method, path, r.body)
			if status != wantStatus || !sameJSON(got, want) {
				t.Errorf("%s: %s %s %s\ngot  %d %s\nwant %d %s", tags, r.method, r.path, r.body, status, got, wantStatus, want)
			}
		}
	}
}

func TestLogin(t *testing.T) {
	ours, theirs := embedded(t, broker.Config{}), rabbitMQ(t)
	for _, login := range [][2]string{{"", ""}, {"guest", "wrong"}, {"nosuch", "guest"}, {"guest", ""}} {
		wantStatus, want := theirs.callAs(t, login[0], login[1], "GET", "/api/whoami", "")
		status, got := ours.callAs(t, login[0], login[1], "GET", "/api/whoami", "")
		if status != wantStatus || got != want {
			t.Errorf("%q: got %d %s, want %d %s", login, status, got, wantStatus, want)
		}
	}
}

// handler starts a broker, and returns it and a function that calls its API without a socket.
func handler(t *testing.T, config broker.Config) (*broker.Broker, func(method, path, body string, header ...string) *httptest.ResponseRecorder) {
	b, err := broker.New(config)
	must(t, err)
	t.Cleanup(func() { must(t, b.Shutdown(context.Background())) })
	return b, func(method, path, body string, header ...string) *httptest.ResponseRecorder {
		r := fromGuest(method, path, body)
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		w := httptest.NewRecorder()
		b.Management().ServeHTTP(w, r)
		return w
	}
}

// fromGuest returns a request by the user guest from the same machine.
func fromGuest(method, path, body string) *http.Request {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.RemoteAddr = "127.0.0.1:1"
	r.SetBasicAuth("guest", "guest")
	return r
}

// inMemory opens an in-memory connection to a broker.
func inMemory(t *testing.T, b *broker.Broker) *amqp.Connection {
	conn, err := amqp.DialConfig("amqp://guest:guest@memory/", amqp.Config{
		Dial: func(network, addr string) (net.Conn, error) {
			return b.DialContext(context.Background(), network, addr)
		},
	})
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func TestCrossOriginRequestIsRejected(t *testing.T) {
	_, call := handler(t, broker.Config{})
	for _, header := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Origin", "https://evil.example"}} {
		if w := call("PUT", "/api/vhosts/v", "", header...); w.Code != http.StatusForbidden {
			t.Errorf("cross-origin PUT with %v: got %d, want 403", header, w.Code)
		}
		if w := call("GET", "/api/whoami", "", header...); w.Code != 200 || w.Header().Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("GET with %v: got %d %v, want 200 without Access-Control-Allow-Origin", header, w.Code, w.Header())
		}
	}
}

func TestHandlerLimitsBodySize(t *testing.T) {
	_, call := handler(t, broker.Config{})
	if w := call("PUT", "/api/vhosts/v", `{"description":"`+strings.Repeat("x", 21<<20)+`"}`); w.Code != 400 {
		t.Errorf("body of 21 MiB: got %d, want 400: %s", w.Code, w.Body)
	}
}

// A rate is the average between two requests.
func TestRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, call := handler(t, broker.Config{})
		call("PUT", "/api/queues/%2F/q", `{"durable":true}`)
		publish := func(n int) {
			for range n {
				call("POST", "/api/exchanges/%2F/amq.default/publish",
					`{"properties":{},"routing_key":"q","payload":"x","payload_encoding":"string"}`)
			}
		}
		look := func(want string) {
			t.Helper()
			w := call("GET", "/api/queues/%2F/q?columns=messages,message_stats.publish,message_stats.publish_details.rate,messages_details.rate", "")
			if got := w.Body.String(); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		}
		publish(1)
		look(`{"message_stats":{"publish":1,"publish_details":{"rate":0}},"messages":1,"messages_details":{"rate":0}}`)
		publish(100)
		time.Sleep(time.Second)
		look(`{"message_stats":{"publish":101,"publish_details":{"rate":0}},"messages":101,"messages_details":{"rate":0}}`)
		time.Sleep(9 * time.Second)
		look(`{"message_stats":{"publish":101,"publish_details":{"rate":10}},"messages":101,"messages_details":{"rate":10}}`)
		call("DELETE", "/api/queues/%2F/q/contents", "")
		time.Sleep(10 * time.Second)
		look(`{"message_stats":{"publish":101,"publish_details":{"rate":0}},"messages":0,"messages_details":{"rate":-10.1}}`)
	})
}

func TestMemoryAlarm(t *testing.T) {
	_, call := handler(t, broker.Config{MemoryLimit: 1000})
	call("PUT", "/api/queues/%2F/q", `{"durable":true}`)
	if w := call("GET", "/api/health/checks/alarms", ""); w.Code != 200 {
		t.Errorf("health check: got %d, want 200: %s", w.Code, w.Body)
	}
	call("POST", "/api/exchanges/%2F/amq.default/publish",
		`{"properties":{},"routing_key":"q","payload":"`+strings.Repeat("x", 1000)+`","payload_encoding":"string"}`)
	w := call("GET", "/api/health/checks/alarms", "")
	want := `{"alarms":[{"node":"reprise@localhost","resource":"memory"}],"reason":"There are alarms in effect in the cluster","status":"failed"}`
	if w.Code != 503 || w.Body.String() != want {
		t.Errorf("health check: got %d %s, want 503 %s", w.Code, w.Body, want)
	}
	if w := call("GET", "/api/nodes?columns=mem_alarm", ""); w.Body.String() != `[{"mem_alarm":true}]` {
		t.Errorf("nodes: got %s, want mem_alarm true", w.Body)
	}
	if w := call("GET", "/metrics", ""); !strings.Contains(w.Body.String(), "\nrabbitmq_alarms_memory_used_watermark 1\n") {
		t.Errorf("metrics must contain the memory alarm: got %s", w.Body)
	}
}

// Each in-memory connection has a unique name, so the API can close it by name.
func TestConnectionsInMemory(t *testing.T) {
	b, call := handler(t, broker.Config{})
	for range 2 {
		inMemory(t, b)
	}
	names := `[{"name":"memory:1 -> memory:0"},{"name":"memory:2 -> memory:0"}]`
	if w := call("GET", "/api/connections?columns=name", ""); w.Body.String() != names {
		t.Errorf("connections: got %s, want %s", w.Body, names)
	}
	if w := call("DELETE", "/api/connections/memory:2%20-%3E%20memory:0", "", "X-Reason", "spring cleaning"); w.Code != 204 {
		t.Errorf("DELETE: got %d, want 204: %s", w.Code, w.Body)
	}
	testkit.Eventually(t, 2*time.Minute, func() bool {
		return call("GET", "/api/connections?columns=name", "").Body.String() == `[{"name":"memory:1 -> memory:0"}]`
	})
}
