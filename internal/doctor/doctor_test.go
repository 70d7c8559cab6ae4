package doctor_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/internal/doctor"
	"github.com/reprisemq/reprise/internal/mgmtapi"
	"github.com/reprisemq/reprise/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// queue returns the body of a request that declares a durable queue with the given arguments.
func queue(arguments string) string { return `{"durable":true,"arguments":{` + arguments + `}}` }

const (
	quorum  = `"x-queue-type":"quorum"`
	toFails = `"x-dead-letter-exchange":"","x-dead-letter-routing-key":"fails"`
)

// objects are declared in order, by path. Each queue with a name that begins with "full" gets a message.
var objects = []struct{ path, body string }{
	{"queues/fails", queue("")},
	{"exchanges/alternate", `{"type":"fanout","durable":true}`},
	{"bindings/e/alternate/q/fails", `{}`},

	{"queues/full-expires", queue(`"x-expires":3600000`)},
	{"queues/empty-expires", queue(`"x-expires":3600000`)},
	{"queues/drops-head", queue(`"x-max-length":5`)},
	{"queues/keeps-head", queue(`"x-max-length":5,` + toFails)},
	{"queues/rejects", queue(`"x-max-length":5,"x-overflow":"reject-publish"`)},
	{"queues/ttl-drops", queue(`"x-message-ttl":3600000`)},
	{"queues/ttl-parks", queue(`"x-message-ttl":3600000,` + toFails)},
	{"queues/limited.argument", queue(`"x-max-length":5,` + toFails)},
	{"queues/limited.policy", queue(toFails)},
	{"policies/limited", `{"pattern":"^limited","definition":{"max-length":9}}`},
	{"policies/unused", `{"pattern":"^nothing","definition":{"max-length":9}}`},
	{"queues/counts", queue(quorum + `,"x-delivery-limit":7`)},
	{"queues/parks", queue(quorum + `,"x-delivery-limit":-1`)},
	{"queues/prioritized", queue(`"x-max-priority":200`)},
	{"queues/few-priorities", queue(`"x-max-priority":3`)},
	{"queues/ordered", queue(`"x-single-active-consumer":true,"x-max-priority":3`)},
	{"queues/single", queue(`"x-single-active-consumer":true`)},
	{"queues/lazy", queue(`"x-queue-mode":"lazy"`)},
	{"queues/full-unread", queue("")},
	{"queues/full-read", queue("")},
	{"queues/impatient", queue(quorum + `,"x-delivery-limit":-1,"x-consumer-timeout":1000`)},

	{"exchanges/no-alternate", `{"type":"fanout","durable":true,"arguments":{"alternate-exchange":"missing"}}`},
	{"bindings/e/no-alternate/q/fails", `{}`},
	{"exchanges/with-alternate", `{"type":"fanout","durable":true,"arguments":{"alternate-exchange":"alternate"}}`},
	{"exchanges/unbound", `{"type":"fanout","durable":true}`},

	{"queues/no-dlx", queue(`"x-dead-letter-exchange":"missing"`)},
	{"queues/with-dlx", queue(`"x-dead-letter-exchange":"alternate"`)},
	{"queues/no-target", queue(`"x-dead-letter-exchange":"","x-dead-letter-routing-key":"missing"`)},
	{"queues/loops", queue(`"x-dead-letter-exchange":"","x-dead-letter-routing-key":"loops.wait"`)},
	{"queues/loops.wait", queue(`"x-message-ttl":3600000,"x-dead-letter-exchange":"","x-dead-letter-routing-key":"loops"`)},
	{"queues/circle", queue(`"x-message-ttl":3600000,"x-dead-letter-exchange":"","x-dead-letter-routing-key":"circle.wait"`)},
	{"queues/circle.wait", queue(`"x-message-ttl":3600000,"x-dead-letter-exchange":"","x-dead-letter-routing-key":"circle"`)},
	{"exchanges/everybody", `{"type":"fanout","durable":true}`},
	{"bindings/e/everybody/q/fans", `{}`},
	{"bindings/e/everybody/q/other", `{}`},
	{"queues/full-blocks", queue(`"x-dead-letter-exchange":"","x-dead-letter-routing-key":"full-read"`)},
	{"queues/at-most-once", queue(quorum + "," + toFails)},
	{"queues/at-least-once", queue(quorum + "," + toFails + `,"x-dead-letter-strategy":"at-least-once","x-overflow":"reject-publish"`)},
	{"queues/not-at-least-once", queue(quorum + "," + toFails + `,"x-dead-letter-strategy":"at-least-once","x-overflow":"drop-head"`)},
	{"queues/parking", queue(`"x-dead-letter-exchange":"","x-dead-letter-routing-key":"full-failed"`)},
	{"queues/full-failed", queue("")},
	{"queues/key.only", queue("")},
	{"policies/key", `{"pattern":"^key","definition":{"dead-letter-routing-key":"fails"}}`},
	{"queues/sorted.part.0-of-1.held", queue(quorum + `,"x-delivery-limit":-1,"x-overflow":"reject-publish"`)},
	{"queues/sorted.part.members", queue(quorum + `,"x-max-length":1,"x-overflow":"reject-publish"`)},
	{"policies/sorted", `{"pattern":"^sorted","definition":{"max-length":100,"message-ttl":3600000}}`},
	{"queues/auto", `{"durable":true,"auto_delete":true,"arguments":{}}`},
	{"queues/greedy", queue("")},
	{"queues/careless", queue("")},
}

// expected lists, by rule, the objects with a finding. A rule has no finding for any other object.
var expected = map[string][]string{
	"expires-with-messages":            {"full-expires"},
	"overflow-drops":                   {"drops-head"},
	"ttl-drops":                        {"sorted.part.0-of-1.held", "ttl-drops"},
	"limited-partition":                {"sorted.part.0-of-1.held", "sorted.part.0-of-1.held"},
	"policy-against-argument":          {"limited.argument"},
	"default-delivery-limit":           {"counts"},
	"many-priorities":                  {"prioritized"},
	"single-active-message-priorities": {"ordered"},
	"single-active-priorities":         {"single"},
	"obsolete-argument":                {"lazy"},
	"unread-queue":                     {"full-expires", "full-unread"},
	"short-consumer-timeout":           {"impatient"},
	"missing-alternate-exchange":       {"no-alternate"},
	"exchange-without-bindings":        {"unbound"},
	"missing-dead-letter-exchange":     {"no-dlx"},
	"unroutable-dead-letters":          {"no-target"},
	"unlimited-retry-loop":             {"fans", "loops"},
	"expiry-cycle":                     {"circle", "circle.wait"},
	"retry-reaches-others":             {"fans.wait"},
	"wait-queue-with-consumers":        {"fans.wait"},
	"head-blocks":                      {"full-blocks"},
	"at-most-once-dead-letters":        {"at-most-once"},
	"at-least-once-without-reject":     {"not-at-least-once"},
	"unread-failed-queue":              {"full-failed"},
	"dead-letter-key-without-exchange": {"key.only"},
	"auto-delete-queue":                {"auto"},
	"unused-policy":                    {"unused"},
	"unlimited-prefetch":               {"greedy"},
	"consumer-without-ack":             {"careless"},
}

// Each rule finds the objects that deserve it, and no others, on each broker.
func TestRulesOnBrokers(t *testing.T) {
	testkit.EachManaged(t, func(t *testing.T, b testkit.Target, api string) {
		v, client := testkit.Name(t, "doctor"), testkit.HTTPClient(t)
		request := func(method, path, body string) {
			t.Helper()
			r, err := http.NewRequest(method, api+"/api/"+path, strings.NewReader(body))
			must(t, err)
			r.SetBasicAuth("guest", "guest")
			r.Header.Set("Content-Type", "application/json")
			answer, err := client.Do(r)
			must(t, err)
			defer answer.Body.Close()
			if text, _ := io.ReadAll(answer.Body); answer.StatusCode/100 != 2 {
				t.Fatalf("%s %s: %s %s", method, path, answer.Status, text)
			}
		}
		request("PUT", "vhosts/"+v, "")
		t.Cleanup(func() { request("DELETE", "vhosts/"+v, "") })
		conn, err := amqp.DialConfig(b.URL, amqp.Config{Vhost: v})
		must(t, err)
		defer conn.Close()
		ch, err := conn.Channel()
		must(t, err)
		all := slices.Concat(objects, []struct{ path, body string }{
			{"queues/fans", queue(`"x-dead-letter-exchange":"","x-dead-letter-routing-key":"fans.wait"`)},
			{"queues/other", queue("")},
			{"queues/fans.wait", queue(`"x-message-ttl":3600000,"x-dead-letter-exchange":"everybody"`)},
		})
		slices.SortStableFunc(all, func(a, b struct{ path, body string }) int {
			return strings.Index("queue,exchange,binding,policies", a.path[:5]) - strings.Index("queue,exchange,binding,policies", b.path[:5])
		})
		for _, o := range all {
			kind, name, _ := strings.Cut(o.path, "/")
			method := "PUT"
			if kind == "bindings" {
				method = "POST"
			}
			request(method, kind+"/"+v+"/"+name, o.body)
			if kind == "queues" && strings.HasPrefix(name, "full") {
				must(t, ch.Publish("", name, false, false, amqp.Publishing{}))
			}
		}
		consume := func(queue string, prefetch int, noAck bool, args amqp.Table) {
			must(t, ch.Qos(prefetch, 0, false))
			_, err := ch.Consume(queue, "", noAck, false, false, false, args)
			must(t, err)
		}
		consume("full-read", 5, false, nil)
		consume("fans.wait", 5, false, nil)
		consume("single", 5, false, amqp.Table{"x-priority": 3})
		consume("greedy", 0, false, nil)
		consume("careless", 5, true, nil)

		testkit.Eventually(t, time.Minute, func() error { // the counts of RabbitMQ are up to five seconds old
			state, err := doctor.Read(t.Context(), mgmtapi.API{URL: api, User: "guest", Password: "guest", Client: client}, v)
			must(t, err)
			return compare(doctor.Check(state), v, b.Name)
		})
	})
}

// compare compares the findings of a virtual host with the expected ones.
func compare(r doctor.Report, vhost, broker string) error {
	got := map[string][]string{}
	for _, f := range r.Findings {
		if f.VHost == vhost {
			_, name, _ := strings.Cut(f.Object, " ")
			got[f.Rule] = append(got[f.Rule], name)
		}
	}
	var wrong []error
	for _, rule := range doctor.Rules {
		want := expected[rule.Name]
		if rule.Name == "nack-does-not-count" && broker != "rabbitmq-3.10" {
			want = []string{"counts"}
		}
		if names := got[rule.Name]; !slices.Equal(names, want) {
			wrong = append(wrong, fmt.Errorf("%s: got %q, want %q", rule.Name, names, want))
		}
	}
	return errors.Join(wrong...)
}

// Rules about clusters, upgrades and the network, with the answers of brokers that a test cannot start.
func TestRulesOnDefinitions(t *testing.T) {
	const valid = `{"rabbitmq_version":"3.12.0","users":[],"queues":[
		{"name":"transient","vhost":"/","durable":false,"arguments":{}},{"name":"durable","vhost":"/","durable":true,"arguments":[]}],
		"exchanges":[{"name":"later","vhost":"/","type":"x-delayed-message","arguments":{"x-delayed-type":"direct"}},{"name":"now","vhost":"/","type":"direct","arguments":{}}],
		"bindings":[{"vhost":"/","source":"later","destination":"durable","destination_type":"queue","routing_key":""},{"vhost":"/","source":"now","destination":"durable","destination_type":"queue","routing_key":""}],
		"policies":[{"name":"ha","vhost":"/","pattern":"dur","definition":{"ha-mode":"all"}},{"name":"op","vhost":"/","pattern":"^tra(?=nsient$)","definition":{"message-ttl":5}}],
		"parameters":[{"component":"operator_policy","name":"limit","vhost":"/","value":{"pattern":"^durable","definition":{"max-length":5},"apply-to":"queues","priority":0}}]}`
	b, err := doctor.Parse([]byte(valid), "")
	must(t, err)
	r := doctor.Check(b, "unused-policy")
	var got []string
	for _, f := range r.Findings {
		got = append(got, f.Rule+" "+f.Object)
	}
	want := []string{
		"overflow-drops queue durable", "ttl-drops queue transient", "delayed-message-plugin exchange later", "mirrored-policy policy ha", "transient-queue queue transient",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if !slices.ContainsFunc(r.Skipped, func(s doctor.Skipped) bool { return s.Rule == "guest-over-network" && s.Missing == "connections" }) {
		t.Errorf("skipped rules: got %v, want guest-over-network because of connections", r.Skipped)
	}
	for text, want := range map[string]string{"": "cannot read", "[]": "cannot read", "{}": "neither queues", `{"queues":[],"policies":[{"name":"p","pattern":"(x"}]}`: "policy p"} {
		if _, err := doctor.Parse([]byte(text), ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got error %v, want …%s…", text, err, want)
		}
	}
}

// A shell passes names in a fix as they are, because users paste the command.
func TestFixQuotesNames(t *testing.T) {
	for _, name := range []string{"orders", "a b", "it's", "$(touch x)", "`id`", "a+b(c", "-p", "x;y", `back\slash`, "ü"} {
		text, err := json.Marshal(map[string]any{"queues": []any{map[string]any{
			"name": name, "vhost": name, "durable": true, "arguments": map[string]any{"x-max-length": 5},
		}}})
		must(t, err)
		b, err := doctor.Parse(text, "")
		must(t, err)
		r := doctor.Check(b)
		i := slices.IndexFunc(r.Findings, func(f doctor.Finding) bool { return f.Rule == "overflow-drops" })
		if i < 0 {
			t.Fatalf("%q: no finding", name)
		}
		words, err := exec.Command("sh", "-c", "rabbitmqctl() { printf '%s\\n' \"$@\"; }\n"+r.Findings[i].Fix).Output()
		must(t, err)
		got := strings.Split(string(words), "\n")
		if len(got) < 7 || got[2] != name || !regexp.MustCompile(got[6]).MatchString(name) {
			t.Errorf("%q: the shell passes %q for %s", name, got, r.Findings[i].Fix)
		}
	}
}

// The doctor finds nothing in what reprise up declares, with the counts of an idle worker.
func TestOwnTopologyIsHealthy(t *testing.T) {
	b, err := doctor.Parse([]byte(`{"rabbitmq_version":"4.3.6","queues":[
		{"name":"orders.failed","durable":true,"arguments":{"x-queue-type":"quorum","x-delivery-limit":2147483647}},
		{"name":"reprise.paused.orders","durable":true,"arguments":{"x-max-length":1}},
		{"name":"reprise.retries.1","exclusive":true,"arguments":{"x-max-length":1000}},
		{"name":"reprise.workers.1","exclusive":true,"arguments":{"x-message-ttl":60000}},
		{"name":"reprise.control.1","exclusive":true,"arguments":{"x-max-length":1000}}],
		"exchanges":[{"name":"reprise.retries","type":"topic","durable":true},{"name":"reprise.workers","type":"fanout","durable":true}]}`), "")
	must(t, err)
	if r := doctor.Check(b); len(r.Findings) > 0 {
		t.Errorf("findings: got %v, want none", r.Findings)
	}
}

// The TTLs in a wait queue of Reprise differ little, so that its head blocks nobody for long.
func TestWaitQueueOfRepriseDoesNotBlock(t *testing.T) {
	back := map[string]any{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "orders"}
	for name, want := range map[string]bool{"orders.wait.1000-1250": false, "orders.delayed": true} {
		b := &doctor.Broker{Queues: []doctor.Queue{
			{Name: "orders", VHost: "/", Kind: "quorum", Durable: true, Consumers: 1},
			{Name: name, VHost: "/", Kind: "quorum", Durable: true, Ready: 2, Args: back},
		}}
		if got := slices.ContainsFunc(doctor.Check(doctor.WithCounts(b)).Findings, func(f doctor.Finding) bool { return f.Rule == "head-blocks" }); got != want {
			t.Errorf("%s: blocks is %v, want %v", name, got, want)
		}
	}
}

// A limit of deliveries in a policy applies to a queue without limit.
func TestDeliveryLimitOfPolicyApplies(t *testing.T) {
	b, err := doctor.Parse([]byte(`{"rabbitmq_version":"4.3.0","queues":[{"name":"q","durable":true,"arguments":{"x-queue-type":"quorum","x-delivery-limit":-1}}],
		"policies":[{"name":"p","pattern":"q","definition":{"delivery-limit":5}}]}`), "")
	must(t, err)
	if r := doctor.Check(b); !slices.ContainsFunc(r.Findings, func(f doctor.Finding) bool {
		return f.Rule == "default-delivery-limit" && strings.Contains(f.Evidence, "limit of 5")
	}) {
		t.Errorf("findings: got %v, want default-delivery-limit of 5", r.Findings)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Definitions are files of others: any text is an error or a report.
func FuzzParse(f *testing.F) {
	f.Add(`{"queues":[{"name":"q","vhost":"/","arguments":{"x-dead-letter-exchange":"x","x-message-ttl":1e300}}],"exchanges":[{"name":"x","vhost":"/","type":"topic","arguments":[]}],
		"bindings":[{"source":"x","destination":"x","destination_type":"exchange","vhost":"/"}],"policies":[{"name":"p","vhost":"/","pattern":".*","definition":{"max-length":-1}}],
		"parameters":[{"component":"operator_policy","value":{"pattern":"("}}],"users":[{"name":"u","tags":["a",1]}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		if b, err := doctor.Parse([]byte(text), ""); err == nil {
			doctor.Check(b)
		}
	})
}

// An argument overrides a policy, so only another declaration of the queue changes it.
func TestFixOfOverriddenPolicyMigrates(t *testing.T) {
	b, err := doctor.Parse([]byte(`{"queues":[
		{"name":"it's","durable":true,"arguments":{"x-max-length":5,"x-overflow":"drop-head"}},
		{"name":"free","durable":true,"arguments":{"x-max-length":5}}]}`), "")
	must(t, err)
	got := map[string]string{}
	for _, f := range doctor.Check(b).Findings {
		if f.Rule == "overflow-drops" {
			got[f.Object] = f.Fix
		}
	}
	want := map[string]string{
		"queue it's": `reprise migrate 'it'\''s' --set x-overflow=reject-publish (a policy cannot change the argument x-overflow)`,
		"queue free": `rabbitmqctl set_policy -p / --apply-to queues NAME '^free$' '{"overflow":"reject-publish"}'`,
	}
	if !maps.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}
