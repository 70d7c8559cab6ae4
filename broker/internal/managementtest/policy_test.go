package managementtest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"pgregory.net/rapid"

	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/internal/testkit/flags"
)

func policyPath(vhost, name string) string { return "/api/policies/" + vhost + "/" + name }

// Both brokers accept and refuse the same settings in policies and operator policies, with the same texts.
func TestPolicyVerdicts(t *testing.T) {
	values := []string{"0", "1", "5", "16", "-1", "1.5", `"all"`, `"drop-head"`, `"at-least-once"`, `"1D"`, `"lazy"`, "true", "null", `["x"]`}
	keys := []string{
		"alternate-exchange", "consumer-disconnected-timeout", "consumer-timeout", "dead-letter-exchange", "dead-letter-routing-key",
		"dead-letter-strategy", "delayed-retry-max", "delayed-retry-min", "delayed-retry-type", "delivery-limit", "expires",
		"initial-cluster-size", "max-age", "max-in-memory-bytes", "max-in-memory-length", "max-length", "max-length-bytes", "message-ttl",
		"overflow", "queue-leader-locator", "queue-master-locator", "queue-mode", "queue-version", "stream-filter-size-bytes",
		"stream-max-segment-size-bytes", "target-group-size", "ha-mode", "max-priority", "federation-upstream-set", "Max-Length",
	}
	bodies := []string{
		`{}`, `{"pattern":"x"}`, `{"pattern":"x","definition":{}}`,
		`{"pattern":"x","definition":{"max-length":1},"apply-to":"everything"}`,
		`{"pattern":"x","definition":{"max-length":1},"apply-to":"streams","priority":-3}`,
		`{"pattern":"x","definition":{"max-length":-1,"expires":0,"foo":1},"apply-to":"z"}`,
		`{"pattern":"x","definition":{"delayed-retry-type":"all","delayed-retry-min":5,"delayed-retry-max":4}}`,
		`{"pattern":"x","definition":{"delayed-retry-type":"failed","delayed-retry-min":5}}`,
		`{"pattern":"x","definition":{"foo":{"b":[1,"x",null],"a":-0.5}}}`, `{"pattern":"x","definition":{"foo":1,"bar":"z"}}`,
	}
	for _, key := range keys {
		for _, value := range values {
			bodies = append(bodies, fmt.Sprintf(`{"pattern":"x","definition":{%q:%s}}`, key, value))
		}
	}
	own, real := embedded(t, broker.Config{}), rabbitMQ(t)
	ours, theirs := own.vhost(t), real.vhost(t)
	for _, path := range []string{"policies", "operator-policies"} {
		for _, body := range bodies {
			status, text := own.call(t, "PUT", "/api/"+path+"/"+ours+"/p", body)
			wantStatus, want := real.call(t, "PUT", "/api/"+path+"/"+theirs+"/p", body)
			if wantStatus == 500 {
				wantStatus, want, text = 400, "", "" // RabbitMQ crashes: a max-age that is not a string
			}
			if status != wantStatus || text != want {
				t.Errorf("%s %s\ngot  %d %s\nwant %d %s", path, body, status, text, wantStatus, want)
			}
		}
	}
}

// settingsOf returns what the API shows of the policies of a queue. RabbitMQ updates some fields only every few seconds.
func settingsOf(t *testing.T, b *target, vhost, queue string) string {
	t.Helper()
	var q struct {
		Policy     *string        `json:"policy"`
		Operator   *string        `json:"operator_policy"`
		Definition map[string]any `json:"effective_policy_definition"`
		Arguments  map[string]any `json:"arguments"`
	}
	must(t, json.Unmarshal([]byte(b.must(t, "GET", "/api/queues/"+vhost+"/"+queue, "")), &q))
	name := func(s *string) string {
		if s == nil {
			return "none"
		}
		return *s
	}
	text, _ := json.Marshal(q.Definition)
	if q.Definition == nil {
		text = []byte("{}")
	}
	return fmt.Sprintf("%s, operator %s: %s", name(q.Policy), name(q.Operator), text)
}

// Of the matching policies, the one with the highest priority applies to a queue of its type, merged with the operator policy.
func TestPolicyAppliesToMatchingQueues(t *testing.T) {
	both(t, func(t *testing.T, b *target) {
		v := b.vhost(t)
		b.must(t, "PUT", "/api/queues/"+v+"/a.1", `{"durable":true}`)
		b.must(t, "PUT", "/api/queues/"+v+"/a.2", `{"durable":true,"arguments":{"x-queue-type":"quorum"}}`)
		b.must(t, "PUT", policyPath(v, "low"), `{"pattern":"a","definition":{"max-length":9,"message-ttl":70000}}`)
		b.must(t, "PUT", policyPath(v, "limit"), `{"pattern":"^a\\.","priority":5,"definition":{"delivery-limit":3,"max-length":7}}`)
		b.must(t, "PUT", policyPath(v, "other"), `{"pattern":"^b","priority":9,"definition":{"max-length":1}}`)
		b.must(t, "PUT", policyPath(v, "exchanges"), `{"pattern":"","priority":99,"apply-to":"exchanges","definition":{"alternate-exchange":"x"}}`)
		b.must(t, "PUT", "/api/operator-policies/"+v+"/op", `{"pattern":"","apply-to":"classic_queues","definition":{"max-length":8,"expires":900000}}`)
		b.must(t, "PUT", "/api/queues/"+v+"/a.3", `{"durable":true,"arguments":{"x-queue-type":"quorum"}}`)
		expect := func(want map[string]string) {
			t.Helper()
			for queue, want := range want {
				testkit.Eventually(t, time.Minute, func() error {
					if got := settingsOf(t, b, v, queue); got != want {
						return fmt.Errorf("%s: got  %s\nwant %s", queue, got, want)
					}
					return nil
				})
			}
		}
		// A policy with a delivery limit does not apply to classic queues at all.
		expect(map[string]string{
			"a.1": `low, operator op: {"expires":900000,"max-length":8,"message-ttl":70000}`,
			"a.2": `limit, operator none: {"delivery-limit":3,"max-length":7}`,
			"a.3": `limit, operator none: {"delivery-limit":3,"max-length":7}`,
		})
		b.must(t, "DELETE", policyPath(v, "limit"), "")
		b.must(t, "DELETE", "/api/operator-policies/"+v+"/op", "")
		expect(map[string]string{
			"a.1": `low, operator none: {"max-length":9,"message-ttl":70000}`,
			"a.2": `low, operator none: {"max-length":9,"message-ttl":70000}`,
		})
		if status, text := b.call(t, "DELETE", policyPath(v, "limit"), ""); status != 404 {
			t.Errorf("deleting a missing policy: got %d %s, want 404", status, text)
		}
	})
}

// depth returns the number of ready messages.
func depth(t *testing.T, ch *amqp.Channel, queue string) int {
	t.Helper()
	q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
	must(t, err)
	return q.Messages
}

// A policy changes queues and exchanges that are in use: limits, dead letters, TTL, delivery limit and alternate exchange.
// Without it, they behave as before.
func TestPolicyChangesObjectsInUse(t *testing.T) {
	for _, kind := range []string{"classic", "quorum"} {
		t.Run(kind, func(t *testing.T) {
			both(t, func(t *testing.T, b *target) {
				v := b.vhost(t)
				ch := get[*amqp.Channel](t)(b.dial(t, v).Channel())
				must(t, ch.Confirm(false))
				declare := func(queue, kind string) {
					_, err := ch.QueueDeclare(queue, true, false, false, false, amqp.Table{"x-queue-type": kind})
					must(t, err)
				}
				declare("q", kind)
				declare("dead", "classic")
				declare("lost", "classic")
				must(t, ch.ExchangeDeclare("x", "direct", true, false, false, false, nil))
				must(t, ch.ExchangeDeclare("ae", "fanout", true, false, false, false, nil))
				must(t, ch.QueueBind("lost", "", "ae", false, nil))
				publish := func(exchange, key, body string) {
					t.Helper()
					c, err := ch.PublishWithDeferredConfirmWithContext(t.Context(), exchange, key, false, false, amqp.Publishing{Body: []byte(body)})
					must(t, err)
					if !c.Wait() {
						t.Fatalf("message %q was not confirmed", body)
					}
				}
				until := func(queue string, n int) {
					t.Helper()
					testkit.Eventually(t, time.Minute, func() error {
						if got := depth(t, ch, queue); got != n {
							return fmt.Errorf("%s: got %d messages, want %d", queue, got, n)
						}
						return nil
					})
				}
				for i := range 5 {
					publish("", "q", fmt.Sprint(i))
				}
				until("q", 5)

				// The limit drops the oldest messages at once, into the dead-letter queue of the same policy.
				b.must(t, "PUT", policyPath(v, "p"), `{"pattern":"^q$","definition":{"max-length":3,"dead-letter-exchange":"","dead-letter-routing-key":"dead"}}`)
				if kind == "quorum" { // RabbitMQ's quorum queues drop messages at the next publish
					publish("", "q", "5")
					until("dead", 3)
				} else {
					until("dead", 2)
				}
				until("q", 3)

				// The TTL applies to new messages. It does not change messages that wait already.
				b.must(t, "PUT", policyPath(v, "p"), `{"pattern":"^q$","definition":{"message-ttl":1,"dead-letter-exchange":"","dead-letter-routing-key":"lost"}}`)
				_, err := ch.QueuePurge("q", false)
				must(t, err)
				publish("", "q", "expires")
				until("lost", 1)

				b.must(t, "DELETE", policyPath(v, "p"), "")
				for i := range 4 {
					publish("", "q", fmt.Sprint(i))
				}
				until("q", 4)
				m, ok, err := ch.Get("q", false)
				must(t, err)
				if !ok {
					t.Fatal("queue q has no message")
				}
				must(t, m.Reject(false))
				until("q", 3)
				until("lost", 1) // the policy with the dead-letter exchange is gone

				publish("x", "nowhere", "dropped")
				b.must(t, "PUT", policyPath(v, "ae"), `{"pattern":"^x$","apply-to":"exchanges","definition":{"alternate-exchange":"ae"}}`)
				publish("x", "nowhere", "kept")
				until("lost", 2)
				b.must(t, "DELETE", policyPath(v, "ae"), "")
				publish("x", "nowhere", "dropped")
				until("lost", 2)
			})
		})
	}
}

// An operator's delivery limit applies to messages that are already in a queue.
func TestPolicyDeliveryLimit(t *testing.T) {
	both(t, func(t *testing.T, b *target) {
		v := b.vhost(t)
		ch := get[*amqp.Channel](t)(b.dial(t, v).Channel())
		_, err := ch.QueueDeclare("q", true, false, false, false, amqp.Table{"x-queue-type": "quorum"})
		must(t, err)
		must(t, ch.Publish("", "q", false, false, amqp.Publishing{}))
		b.must(t, "PUT", "/api/operator-policies/"+v+"/op", `{"pattern":"","definition":{"delivery-limit":1}}`)
		deliveries := 0
		testkit.Eventually(t, time.Minute, func() error {
			m, ok, err := ch.Get("q", false)
			must(t, err)
			if !ok {
				if deliveries > 0 && depth(t, ch, "q") == 0 {
					return nil
				}
				return fmt.Errorf("no message after %d deliveries", deliveries)
			}
			deliveries++
			must(t, m.Reject(true))
			return fmt.Errorf("%d deliveries", deliveries)
		})
		if deliveries != 2 {
			t.Errorf("got %d deliveries, want 2", deliveries)
		}
	})
}

// A policy that sets the queue TTL ends an unused queue, and a policy without it keeps it.
func TestPolicyExpires(t *testing.T) {
	both(t, func(t *testing.T, b *target) {
		v := b.vhost(t)
		for _, queue := range []string{"kept", "over"} {
			b.must(t, "PUT", "/api/queues/"+v+"/"+queue, `{"durable":true,"arguments":{"x-queue-type":"quorum"}}`)
		}
		b.must(t, "PUT", policyPath(v, "long"), `{"pattern":"","definition":{"expires":3600000}}`)
		b.must(t, "PUT", policyPath(v, "over"), `{"pattern":"^over","priority":1,"definition":{"expires":1}}`)
		testkit.Eventually(t, time.Minute, func() error {
			if status, _ := b.call(t, "GET", "/api/queues/"+v+"/over", ""); status != 404 {
				return fmt.Errorf("queue over: status %d, want 404", status)
			}
			return nil
		})
		b.must(t, "GET", "/api/queues/"+v+"/kept", "")
	})
}

// Definitions contain policies, and operator policies as parameters. An import applies them to existing queues.
func TestPoliciesInDefinitions(t *testing.T) {
	both(t, func(t *testing.T, b *target) {
		v, w := b.vhost(t), b.vhost(t)
		b.must(t, "PUT", policyPath(v, "p"), `{"pattern":"^a","priority":2,"apply-to":"queues","definition":{"max-length":5,"overflow":"reject-publish"}}`)
		b.must(t, "PUT", "/api/operator-policies/"+v+"/op", `{"pattern":"b$","definition":{"message-ttl":600000}}`)
		b.must(t, "PUT", "/api/queues/"+w+"/ab", `{"durable":true}`)
		b.must(t, "POST", "/api/definitions/"+w, b.must(t, "GET", "/api/definitions/"+v, ""))
		want := `p, operator op: {"max-length":5,"message-ttl":600000,"overflow":"reject-publish"}`
		testkit.Eventually(t, time.Minute, func() error {
			if got := settingsOf(t, b, w, "ab"); got != want {
				return fmt.Errorf("got  %s\nwant %s", got, want)
			}
			return nil
		})
		for _, path := range []string{"/api/policies/", "/api/operator-policies/"} {
			before, after := b.must(t, "GET", path+v, ""), b.must(t, "GET", path+w, "")
			if strings.ReplaceAll(before, v, w) != after {
				t.Errorf("%s: got %s, want %s", path, after, before)
			}
		}
	})
}

// Policymakers may change policies, but not operator policies. Other users may change neither.
func TestPolicyPermissions(t *testing.T) {
	both(t, func(t *testing.T, b *target) {
		v, user := b.vhost(t), testkit.Name(t, "policymaker")
		t.Cleanup(func() { b.must(t, "DELETE", "/api/users/"+user, "") })
		body := `{"pattern":"","definition":{"max-length":1}}`
		for tag, want := range map[string][2]int{"management": {401, 401}, "monitoring": {401, 401}, "policymaker": {201, 401}, "administrator": {201, 201}} {
			b.must(t, "PUT", "/api/users/"+user, `{"password":"x","tags":"`+tag+`"}`)
			b.must(t, "PUT", "/api/permissions/"+v+"/"+user, `{"configure":"","write":"","read":""}`)
			for i, path := range []string{"policies", "operator-policies"} {
				if status, text := b.callAs(t, user, "x", "PUT", "/api/"+path+"/"+v+"/"+tag, body); status != want[i] {
					t.Errorf("%s, %s: got %d %s, want %d", tag, path, status, text, want[i])
				}
			}
		}
	})
}

// Policies, operator policies and arguments together have the same effect in both brokers: on which of several messages the
// queue accepts and keeps.
func TestPoliciesAndArgumentsMergeAsInRabbitMQ(t *testing.T) {
	flags.Default(t, "rapid.checks", "25")
	flags.Default(t, "rapid.seed", "1")
	limit := rapid.OneOf(rapid.Just(-1), rapid.IntRange(0, 4))
	overflow := rapid.SampledFrom([]string{"", "drop-head", "reject-publish"})
	type settings map[string]any
	draw := rapid.Custom(func(r *rapid.T) settings {
		s := settings{}
		if n := limit.Draw(r, "max-length"); n >= 0 {
			s["max-length"] = n
		}
		if o := overflow.Draw(r, "overflow"); o != "" {
			s["overflow"] = o
		}
		return s
	})
	sides := []*target{embedded(t, broker.Config{}), rabbitMQ(t)}
	var vhosts []string
	var channels []*amqp.Channel
	for _, b := range sides {
		v := b.vhost(t)
		ch := get[*amqp.Channel](t)(b.dial(t, v).Channel())
		must(t, ch.Confirm(false))
		vhosts, channels = append(vhosts, v), append(channels, ch)
	}
	queues := 0
	rapid.Check(t, func(r *rapid.T) {
		kind := rapid.SampledFrom([]string{"classic", "quorum"}).Draw(r, "kind")
		policy, operator, arguments := draw.Draw(r, "policy"), draw.Draw(r, "operator policy"), draw.Draw(r, "arguments")
		queues++
		name := fmt.Sprintf("q%d", queues)
		var results []string
		for i, b := range sides {
			for path, definition := range map[string]settings{"policies": policy, "operator-policies": operator} {
				path := "/api/" + path + "/" + vhosts[i] + "/" + name
				if len(definition) > 0 {
					text, _ := json.Marshal(map[string]any{"pattern": "^" + name + "$", "definition": definition})
					b.must(t, "PUT", path, string(text))
				}
			}
			args := amqp.Table{"x-queue-type": kind}
			for name, value := range arguments {
				args["x-"+name] = value
			}
			ch := channels[i]
			_, err := ch.QueueDeclare(name, true, false, false, false, args)
			must(t, err)
			var result strings.Builder
			for n := range 6 {
				c, err := ch.PublishWithDeferredConfirm("", name, false, false, amqp.Publishing{Body: fmt.Append(nil, n)})
				must(t, err)
				fmt.Fprintf(&result, "%d accepted: %v; ", n, c.Wait())
			}
			for {
				m, ok, err := ch.Get(name, true)
				must(t, err)
				if !ok {
					break
				}
				fmt.Fprintf(&result, "kept %s; ", m.Body)
			}
			results = append(results, result.String())
		}
		if results[0] != results[1] {
			r.Errorf("embedded broker: %s\nRabbitMQ:        %s", results[0], results[1])
		}
	})
}

// The check of an import does not expire the copies of existing queues that it uses.
func TestImportOfPolicyExpiresExistingQueue(t *testing.T) {
	b := embedded(t, broker.Config{})
	v := b.vhost(t)
	b.must(t, "PUT", "/api/queues/"+v+"/q", `{"durable":true}`)
	var exchanges []string // so that the check takes longer than the TTL
	for i := range 2000 {
		exchanges = append(exchanges, fmt.Sprintf(`{"name":"x%d","type":"fanout","durable":true,"arguments":{}}`, i))
	}
	b.must(t, "POST", "/api/definitions/"+v, `{"policies":[{"name":"p","pattern":"q","definition":{"expires":1}}],
		"exchanges":[`+strings.Join(exchanges, ",")+`]}`)
	testkit.Eventually(t, time.Minute, func() bool {
		status, _ := b.call(t, "GET", "/api/queues/"+v+"/q", "")
		return status == 404
	})
}
