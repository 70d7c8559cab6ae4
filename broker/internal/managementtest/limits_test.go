package managementtest

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/broker/disk"
	"github.com/reprisemq/reprise/internal/testkit"
)

// user creates a user with all permissions in a virtual host, and deletes the user when the test is complete.
func (b *target) user(t *testing.T, vhost string) string {
	t.Helper()
	name := testkit.Name(t, "user")
	b.must(t, "PUT", "/api/users/"+name, `{"password":"p","tags":"management"}`)
	t.Cleanup(func() { b.must(t, "DELETE", "/api/users/"+name, "") })
	b.must(t, "PUT", "/api/permissions/"+vhost+"/"+name, `{"configure":".*","write":".*","read":".*"}`)
	return name
}

func (b *target) connectAs(user, vhost string) (*amqp.Connection, error) {
	u, err := url.Parse(b.amqp)
	if err != nil {
		return nil, err
	}
	u.User = url.UserPassword(user, "p")
	return amqp.DialConfig(u.String(), amqp.Config{Vhost: vhost})
}

// refusedWith returns an error unless err has the code and the reason of RabbitMQ.
func refusedWith(err error, code int, reason string) error {
	if e, ok := errors.AsType[*amqp.Error](err); !ok || e.Code != code || e.Reason != reason {
		return fmt.Errorf("got error %v, want %d %s", err, code, reason)
	}
	return nil
}

// Requests for limits get RabbitMQ's responses.
func TestLimitsMatchRabbitMQ(t *testing.T) {
	all := []request{{"PUT", "/api/users/U", `{"password":"p","tags":""}`}}
	for _, path := range []string{"/api/vhost-limits/V", "/api/user-limits/U"} {
		for _, name := range []string{"/max-queues", "/max-connections", "/max-channels", "/nosuch"} {
			for _, body := range []string{
				`{"value":5}`, `{"value":0}`, `{"value":-1}`, `{"value":1.5}`, `{"value":"5"}`, `{"value":true}`, `{"value":{}}`, `{"value":{"a":[1,"b"]}}`,
				`{"value":[]}`, `{"value":null}`, `{}`, ``, `[`,
			} {
				all = append(all, request{"PUT", path + name, body}, request{"GET", path, ""})
			}
		}
		all = append(all, request{"DELETE", path + "/nosuch", ""}, request{"DELETE", path + "/max-connections", ""}, request{"GET", path, ""})
	}
	compareResponses(t, append(all, []request{
		{"GET", "/api/parameters/vhost-limits/V", ""},
		{"GET", "/api/parameters/vhost-limits/V/limits", ""},
		{"GET", "/api/users/U?columns=limits", ""},
		{"PUT", "/api/users/U", `{"password":"p","tags":"","limits":{"max-connections":7}}`},
		{"PUT", "/api/users/U", `{"password":"p","tags":"x"}`},
		{"GET", "/api/users/U?columns=limits,tags", ""},
		{"DELETE", "/api/user-limits/U/all", ""},
		{"GET", "/api/user-limits/U", ""},
		{"DELETE", "/api/vhost-limits/V/max-queues", ""},
		{"GET", "/api/vhost-limits/V", ""},
		{"GET", "/api/parameters/vhost-limits/V/limits", ""},
		{"PUT", "/api/parameters/vhost-limits/V/limits", `{"value":{"max-queues":3}}`},
		{"PUT", "/api/parameters/vhost-limits/V/limits", `{"value":{"max-queues":3,"max-connections":-1}}`},
		{"PUT", "/api/parameters/vhost-limits/V/limits", `{"value":{"max-queues":"x","max-connections":"y","b":1}}`},
		{"PUT", "/api/parameters/vhost-limits/V/limits", `{"value":7}`},
		{"PUT", "/api/parameters/vhost-limits/V/limits", `{}`},
		{"GET", "/api/vhost-limits/V", ""},
		{"DELETE", "/api/parameters/vhost-limits/V/limits", ""},
		{"DELETE", "/api/parameters/vhost-limits/V/limits", ""},
		{"GET", "/api/vhost-limits/V", ""},
		{"DELETE", "/api/users/U", ""},
	}...))
}

// RabbitMQ counts connections and channels with a delay; within it, a limit permits more.
func eventuallyRefused(t *testing.T, code int, reason string, try func() error) {
	t.Helper()
	testkit.Eventually(t, published, func() error { return refusedWith(try(), code, reason) })
}

// A connection limit of a virtual host or a user refuses further connections, and only these. A closed connection no longer
// counts. Zero refuses all connections, and a negative limit none.
func TestConnectionLimits(t *testing.T) {
	both(t, func(t *testing.T, b *target) {
		vhost := b.vhost(t)
		for what, reason := range map[string]string{
			"vhost": "NOT_ALLOWED - access to vhost 'V' refused for user 'U': connection limit (N) is reached",
			"user":  "NOT_ALLOWED - connection refused for user 'U': user connection limit (N) is reached",
		} {
			t.Run(what, func(t *testing.T) {
				user := b.user(t, vhost)
				limit := map[string]string{"vhost": "/api/vhost-limits/" + vhost, "user": "/api/user-limits/" + user}[what] + "/max-connections"
				reason := func(n string) string {
					return strings.NewReplacer("'V'", "'"+vhost+"'", "'U'", "'"+user+"'", "(N)", "("+n+")").Replace(reason)
				}
				try := func() error {
					conn, err := b.connectAs(user, vhost)
					if err == nil {
						err = conn.Close()
					}
					return err
				}
				b.must(t, "PUT", limit, `{"value":1}`)
				conn := get[*amqp.Connection](t)(b.connectAs(user, vhost))
				eventuallyRefused(t, amqp.NotAllowed, reason("1"), try)
				must(t, conn.Close())
				testkit.Eventually(t, published, try)
				b.must(t, "PUT", limit, `{"value":0}`)
				if err := refusedWith(try(), amqp.NotAllowed, reason("0")); err != nil {
					t.Error(err)
				}
				for _, path := range []string{"exchanges/" + vhost + "/amq.direct/publish", "queues/" + vhost + "/q/get"} {
					b.must(t, "PUT", "/api/queues/"+vhost+"/q", `{"durable":true}`)
					status, text := b.callAs(t, user, "p", "POST", "/api/"+path,
						`{"properties":{},"routing_key":"","payload":"","payload_encoding":"string","count":1,"ackmode":"ack_requeue_true","encoding":"auto"}`)
					if status != 401 || text != `{"error":"not_authorised","reason":"Access refused."}` {
						t.Errorf("POST %s: got %d %s, want 401", path, status, text)
					}
				}
				b.must(t, "PUT", limit, `{"value":-1}`)
				must(t, try())
				b.must(t, "PUT", limit, `{"value":0}`)
				b.must(t, "DELETE", limit, "")
				must(t, try())
			})
		}
	})
}

// A channel limit of a user applies to all connections of the user together. A channel above the limit closes its connection.
func TestChannelLimit(t *testing.T) {
	both(t, func(t *testing.T, b *target) {
		vhost := b.vhost(t)
		user := b.user(t, vhost)
		b.must(t, "PUT", "/api/user-limits/"+user+"/max-channels", `{"value":2}`)
		first := get[*amqp.Connection](t)(b.connectAs(user, vhost))
		defer first.Close()
		ch := get[*amqp.Channel](t)(first.Channel())
		get[*amqp.Channel](t)(first.Channel())
		again := func() error {
			second, err := b.connectAs(user, vhost)
			if err != nil {
				return err
			}
			defer second.Close()
			_, err = second.Channel()
			return err
		}
		reason := func(n int) string {
			return fmt.Sprintf("NOT_ALLOWED - number of channels opened for user '%s' has reached the maximum allowed user limit of %d", user, n)
		}
		eventuallyRefused(t, amqp.NotAllowed, reason(2), again)
		must(t, ch.Close())
		testkit.Eventually(t, published, again)
		b.must(t, "PUT", "/api/user-limits/"+user+"/max-channels", `{"value":0}`)
		if err := refusedWith(again(), amqp.NotAllowed, reason(0)); err != nil {
			t.Error(err)
		}
	})
}

// A queue limit refuses new queues of all kinds, also over the management API, and not the declaration of an existing queue.
func TestQueueLimit(t *testing.T) {
	both(t, func(t *testing.T, b *target) {
		vhost := b.vhost(t)
		conn := b.dial(t, vhost)
		declare := func(name string, exclusive bool) error {
			ch := get[*amqp.Channel](t)(conn.Channel())
			_, err := ch.QueueDeclare(name, !exclusive, false, exclusive, false, nil)
			return err
		}
		reason := func(queue string, n int) string {
			return fmt.Sprintf("PRECONDITION_FAILED - cannot declare queue '%s': queue limit in vhost '%s' (%d) is reached", queue, vhost, n)
		}
		limit := func(n int) {
			b.must(t, "PUT", "/api/vhost-limits/"+vhost+"/max-queues", fmt.Sprintf(`{"value":%d}`, n))
		}
		limit(2)
		must(t, declare("a", false))
		must(t, declare("b", true))
		must(t, declare("a", false))
		for _, exclusive := range []bool{false, true} {
			if err := refusedWith(declare("c", exclusive), amqp.PreconditionFailed, reason("c", 2)); err != nil {
				t.Error(err)
			}
		}
		status, text := b.call(t, "PUT", "/api/queues/"+vhost+"/c", `{"durable":true}`)
		if want := strings.TrimPrefix(reason("c", 2), "PRECONDITION_FAILED - "); status != 400 || !strings.Contains(text, want) {
			t.Errorf("PUT: got %d %s, want 400 %s", status, text, want)
		}
		limit(0)
		must(t, declare("a", false))
		if err := refusedWith(declare("c", false), amqp.PreconditionFailed, reason("c", 0)); err != nil {
			t.Error(err)
		}
		limit(-1)
		must(t, declare("c", false))
		limit(1)
		must(t, declare("c", false)) // exists
	})
}

// Limits survive a restart, and a deleted virtual host or user leaves none behind. Another broker imports them.
func TestLimitsLast(t *testing.T) {
	dir := t.TempDir() + "/data"
	open := func() (*broker.Broker, func(method, path, body string)) {
		b, call := handler(t, broker.Config{Store: disk.Dir(dir)})
		return b, func(method, path, body string) {
			t.Helper()
			if w := call(method, path, body); w.Code/100 != 2 {
				t.Fatalf("%s %s: %d %s", method, path, w.Code, w.Body)
			}
		}
	}
	b, do := open()
	do("PUT", "/api/vhost-limits/%2F/max-queues", `{"value":3}`)
	do("PUT", "/api/user-limits/guest/max-channels", `{"value":4}`)
	for range 2 {
		do("PUT", "/api/vhosts/gone", "")
		do("PUT", "/api/vhost-limits/gone/max-queues", `{"value":1}`)
		do("DELETE", "/api/vhosts/gone", "")
		do("PUT", "/api/users/gone", `{"password":"x","tags":"","limits":{"max-channels":1}}`)
		do("DELETE", "/api/users/gone", "")
	}
	do("PUT", "/api/vhosts/gone", "")
	do("PUT", "/api/users/gone", `{"password":"x","tags":""}`)
	must(t, b.Shutdown(t.Context()))

	_, call := handler(t, broker.Config{Store: disk.Dir(dir)})
	want := map[string]string{
		"/api/vhost-limits":      `[{"value":{"max-queues":3},"vhost":"/"}]`,
		"/api/vhost-limits/%2F":  `[{"value":{"max-queues":3},"vhost":"/"}]`,
		"/api/user-limits":       `[{"user":"guest","value":{"max-channels":4}}]`,
		"/api/user-limits/gone":  `[]`,
		"/api/vhost-limits/gone": `[]`,
		"/api/parameters":        `[{"component":"vhost-limits","name":"limits","value":{"max-queues":3},"vhost":"/"}]`,
	}
	for path, want := range want {
		if got := call("GET", path, "").Body.String(); got != want {
			t.Errorf("GET %s: got %s, want %s", path, got, want)
		}
	}
	exported := call("GET", "/api/definitions", "").Body.String()
	_, other := handler(t, broker.Config{Definitions: []byte(exported)})
	for path, want := range want {
		if got := other("GET", path, "").Body.String(); got != want {
			t.Errorf("after an import: GET %s: got %s, want %s", path, got, want)
		}
	}
}
