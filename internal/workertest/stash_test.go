package workertest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/protocol"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

func TestCopiesStashReservedProperties(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		user := mustUser(t, b.URL)
		for _, tc := range []struct {
			name    string
			msg     amqp.Publishing
			wire    amqp.Publishing // parked copy, without the headers of Reprise
			headers map[string]any  // headers that the handler receives in every attempt
			user    string
			expires time.Duration
		}{
			{
				name:    "CC",
				msg:     amqp.Publishing{Headers: amqp.Table{"CC": []any{"elsewhere"}, "BCC": []any{"nowhere"}}},
				wire:    amqp.Publishing{Headers: amqp.Table{"x-reprise-cc": []any{"elsewhere"}}},
				headers: map[string]any{"CC": []any{"elsewhere"}},
			},
			{
				name:    "own user id stays",
				msg:     amqp.Publishing{UserId: user},
				wire:    amqp.Publishing{UserId: user, Headers: amqp.Table{}},
				headers: map[string]any{},
				user:    user,
			},
			{
				name:    "expiration",
				msg:     amqp.Publishing{Expiration: "3600000"},
				wire:    amqp.Publishing{Headers: amqp.Table{"x-reprise-expiration": "3600000"}},
				headers: map[string]any{},
				expires: time.Hour,
			},
			{
				name: "copies keep marks of a replay",
				msg: amqp.Publishing{Headers: amqp.Table{
					topology.HeaderReplay: "7/1", protocol.HeaderOutcome: amqp.Table{"to": "x"},
				}},
				wire: amqp.Publishing{Headers: amqp.Table{
					topology.HeaderReplay: "7/1", protocol.HeaderOutcome: amqp.Table{"to": "x"},
				}},
				headers: map[string]any{},
			},
			{
				name: "dead-letter history of another queue",
				msg: amqp.Publishing{Headers: amqp.Table{
					"x-death": []any{amqp.Table{"queue": "q", "count": int64(3)}}, "x-first-death-queue": "q",
					"x-last-death-reason": "expired", "x-delivery-count": int64(2), "x-acquired-count": int64(3), "x-deathly": true,
				}},
				wire:    amqp.Publishing{Headers: amqp.Table{"x-deathly": true}},
				headers: map[string]any{"x-deathly": true},
			},
		} {
			// The broker removes the expiration of a message that waits. The only attempt shows a copy as the worker publishes it.
			for _, attempts := range []int{1, 3} {
				t.Run(fmt.Sprint(tc.name, " ", attempts), func(t *testing.T) {
					r := newRaw(t, b.URL)
					queue, strategy := r.names(topology.Buckets{Base: 50 * time.Millisecond})
					h := newScript(func(*reprise.Delivery) error { return errScripted })
					start(t, dial(t, b.URL), reprise.WorkerConfig{Queue: queue, Handler: h, Strategy: strategy, Policy: quick(attempts)})
					tc.msg.MessageId = "id"
					r.publishLoosely(queue, tc.msg)
					for i, m := range h.wait(t, attempts) {
						if diff := cmp.Diff(tc.headers, m.Headers); diff != "" {
							t.Errorf("headers at attempt %d: -want +got:\n%s", i+1, diff)
						}
						if m.UserID != tc.user || m.Expiration != tc.expires || m.Exchange != "" || m.RoutingKey != queue {
							t.Errorf("attempt %d: got user %q, expiration %s, exchange %q, routing key %q; want user %q, expiration %s", i+1, m.UserID, m.Expiration, m.Exchange, m.RoutingKey, tc.user, tc.expires)
						}
					}
					parked := wire(r.take(queue + ".failed"))
					marks := topology.Trail{}
					for k := range parked.Headers {
						if marks.Owns(k) {
							delete(parked.Headers, k)
						}
					}
					tc.wire.MessageId, tc.wire.DeliveryMode, tc.wire.Body = "id", amqp.Persistent, []byte{}
					if diff := cmp.Diff(tc.wire, parked); diff != "" {
						t.Errorf("parked message: -want +got:\n%s", diff)
					}
				})
			}
		}
	})
}

// publishLoosely publishes without the mandatory flag, because the header CC may contain queues that do not exist.
func (r *raw) publishLoosely(queue string, msg amqp.Publishing) {
	r.t.Helper()
	if err := r.Publish("", queue, false, false, msg); err != nil {
		r.t.Fatal(err)
	}
}

func TestForeignUserIDIsStashed(t *testing.T) {
	t.Parallel()
	testkit.EachManaged(t, func(t *testing.T, b testkit.Target, api string) {
		r := newRaw(t, b.URL)
		queue, strategy := r.names(topology.Buckets{Base: 50 * time.Millisecond})
		h := newScript(func(*reprise.Delivery) error { return errScripted })
		c := dial(t, otherUser(t, b.URL, api))
		start(t, c, reprise.WorkerConfig{Queue: queue, Handler: h, Strategy: strategy, Policy: quick(2)})
		user := mustUser(t, b.URL)
		r.publish("", queue, amqp.Publishing{UserId: user})
		for i, m := range h.wait(t, 2) {
			if m.UserID != user {
				t.Errorf("attempt %d: got user %q, want %q", i+1, m.UserID, user)
			}
		}
		parked := r.take(queue + ".failed")
		if parked.UserId != "" || parked.Headers["x-reprise-user-id"] != user {
			t.Errorf("parked message: got user ID %q, stashed %v; want no user ID, and %q", parked.UserId, parked.Headers["x-reprise-user-id"], user)
		}
	})
}

// otherUser creates a user with all permissions, and returns the URL with which this user connects to the broker.
func otherUser(t *testing.T, target, api string) string {
	t.Helper()
	return userFor(t, target, api, ".*")
}

// userFor creates a user with all permissions for names that match pattern, and returns the URL with which this user
// connects to the broker.
func userFor(t *testing.T, target, api, pattern string) string {
	t.Helper()
	web := testkit.HTTPClient(t)
	user, password := testkit.Name(t, "user"), "secret"
	ask := func(method, path, body string) {
		t.Helper()
		q, err := http.NewRequest(method, api+"/api/"+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		q.SetBasicAuth("guest", "guest")
		res, err := web.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode >= 300 {
			t.Fatalf("%s %s: got %s, want 2xx", method, path, res.Status)
		}
	}
	name := url.PathEscape(user)
	ask("PUT", "users/"+name, `{"password":"`+password+`","tags":""}`)
	t.Cleanup(func() { ask("DELETE", "users/"+name, "") })
	permissions, err := json.Marshal(map[string]string{"configure": pattern, "write": pattern, "read": pattern})
	if err != nil {
		t.Fatal(err)
	}
	ask("PUT", "permissions/%2F/"+name, string(permissions))
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(user, password)
	return u.String()
}

func mustUser(t *testing.T, raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return u.User.Username()
}

func TestRetryReturnsOnlyToFailingQueue(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		queue, strategy := r.names(topology.Buckets{Base: 50 * time.Millisecond})
		fanout, other, copied := testkit.Name(t, "fanout"), testkit.Name(t, "other"), testkit.Name(t, "copied")
		r.deleteExchanges(fanout)
		r.deleteQueues(other, copied)
		h := newScript(func(m *reprise.Delivery) error {
			if m.Attempt < 3 {
				return errScripted
			}
			return nil
		})
		start(t, dial(t, b.URL), reprise.WorkerConfig{
			Queue: queue, Handler: h, Strategy: strategy, Policy: quick(3),
			Topology: topology.Topology{
				Exchanges: []topology.Exchange{{Name: fanout, Kind: topology.Direct}},
				Queues:    []topology.Queue{{Name: other}, {Name: copied}},
				Bindings: []topology.Binding{
					{Exchange: fanout, Queue: queue, RoutingKey: "k"},
					{Exchange: fanout, Queue: other, RoutingKey: "k"},
					{Exchange: fanout, Queue: copied, RoutingKey: "cc"},
				},
			},
		})
		r.publish(fanout, "k", amqp.Publishing{Headers: amqp.Table{"CC": []any{"cc", copied}}}) // the exchange of copies leads to copied by its name
		for i, m := range h.wait(t, 3) {
			if m.Exchange != fanout || m.RoutingKey != "k" || !cmp.Equal(m.Headers["CC"], any([]any{"cc", copied})) {
				t.Errorf("attempt %d: got exchange %q, routing key %q, CC %v; want %q, k, [cc %s]", i+1, m.Exchange, m.RoutingKey, m.Headers["CC"], fanout, copied)
			}
		}
		if o, c := r.depth(other), r.depth(copied); o != 1 || c != 1 {
			t.Errorf("other queues have %d and %d messages, want 1 and 1", o, c)
		}
	})
}

// The headers of a message may leave little space in their frame. The worker then shortens the history of the copy, but
// keeps the number of attempts. If RabbitMQ would have no space to record the dead-lettering of the copy, the worker does
// not retry the message. (A header that exceeds the size of a frame ends the connection.)
func TestHeadersOfCopyFitIntoFrame(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		for _, tc := range []struct {
			name           string
			left, attempts int
		}{
			{"plenty", 60_000, 4},
			{"little", 5_500, 4},
			{"no space for x-death", 2_500, 1},
		} {
			t.Run(tc.name, func(t *testing.T) {
				r := newRaw(t, b.URL)
				queue, strategy := r.names(topology.Buckets{Base: 50 * time.Millisecond})
				h := newScript(func(*reprise.Delivery) error { return errors.New(strings.Repeat("e", 3000)) })
				c := dial(t, b.URL)
				start(t, c, reprise.WorkerConfig{Queue: queue, Handler: h, Strategy: strategy, Policy: quick(4)})
				full := strings.Repeat("x", 131072-tc.left)
				r.publish("", queue, amqp.Publishing{Headers: amqp.Table{"full": full}})
				c.log.wait(t, "parked", 1)
				parked := r.take(queue + ".failed")
				if parked.Headers["full"] != full || parked.Headers["x-reprise-attempts"] != int64(tc.attempts) {
					t.Errorf("parked message: got %v attempts, want %d and the full header", parked.Headers["x-reprise-attempts"], tc.attempts)
				}
				if n := c.log.count("copy failed") + c.log.count("connection lost"); n != 0 {
					t.Errorf("got %d failed copies and lost connections, want 0", n)
				}
			})
		}
	})
}

// If a program forwards a message with all its headers to another queue, the attempts in the first queue do not count.
func TestAttemptsOfAnotherQueueDoNotCount(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		queue, strategy := r.names(topology.Buckets{})
		h := newScript(func(*reprise.Delivery) error { return reprise.Park(errScripted) })
		start(t, dial(t, b.URL), reprise.WorkerConfig{Queue: queue, Handler: h, Strategy: strategy})
		r.publish("", queue, amqp.Publishing{Headers: amqp.Table{
			"x-reprise-attempts": int64(9), "x-reprise-queue": "another", "x-reprise-exchange": "theirs", "x-reprise-routing-key": "theirs",
			"x-reprise-errors": []any{amqp.Table{"error": "theirs"}}, "x-reprise-first-failed": time.Unix(1, 0),
		}})
		m := h.wait(t, 1)[0]
		if m.Attempt != 1 || len(m.Errors) != 0 || m.Exchange != "" || m.RoutingKey != queue || !m.FirstFailed.IsZero() || len(m.Headers) != 0 {
			t.Errorf("message: got %+v, want attempt 1 from the default exchange, without errors and headers", m)
		}
		parked := r.take(queue + ".failed")
		if parked.Headers["x-reprise-attempts"] != int64(1) || parked.Headers["x-reprise-queue"] != queue {
			t.Errorf("parked message: got headers %v, want 1 attempt in queue %s", parked.Headers, queue)
		}
	})
}
