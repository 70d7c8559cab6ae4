package framework

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/amqpvalue"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/testkit/hostile"
	"github.com/reprisemq/reprise/topology"
)

// fixture is a failed message of a framework: see testdata/generate.
type fixture struct {
	Library, Version string
	Source           string // program in testdata/generate, or the documentation
	Queue            string
	Properties       json.RawMessage
	Headers          json.RawMessage
	Body             []byte
}

func readFixtures(t testing.TB) map[string]*reprise.Delivery {
	t.Helper()
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no fixtures: %v", err)
	}
	all := map[string]*reprise.Delivery{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var f fixture
		if err := json.Unmarshal(text, &f); err != nil || f.Library == "" || f.Version == "" || f.Source == "" {
			t.Fatalf("%s: library, version and source are required: %v", file, err)
		}
		headers, err := failed.DecodeTable(string(f.Headers))
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		table, err := failed.DecodeTable(string(f.Properties))
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all[strings.TrimSuffix(filepath.Base(file), ".json")] = deliver(f.Queue, failed.Content{Body: f.Body, Headers: headers, Properties: failed.PropertiesOf(table)})
	}
	return all
}

func deliver(queue string, c failed.Content) *reprise.Delivery {
	p := c.Properties
	m := &reprise.Delivery{Queue: queue}
	m.Message = reprise.Message{
		Exchange: p.Exchange, RoutingKey: p.RoutingKey, Body: c.Body, Headers: c.Headers, ContentType: p.ContentType, ContentEncoding: p.ContentEncoding, CorrelationID: p.CorrelationID,
		ReplyTo: p.ReplyTo, MessageID: p.MessageID, Type: p.Type, AppID: p.AppID, Priority: p.Priority, Timestamp: p.Timestamp,
	}
	return m
}

// known is what the archive learns from a fixture.
type known struct {
	Reason, Error string // first line of the error
	Stack         bool   // whether the error has more lines
	Queue         string
	Target        failed.Target
	Attempts      int
	At            string
	Off           []string // headers that a replay takes off, except those of the broker
	Body          string   // that a replay sends; "": the same
	Refused       string   // part of the reason for a refusal
	StringsOnly   bool
}

func TestFixtures(t *testing.T) {
	const charge = "System.InvalidOperationException: no such customer 4711"
	want := map[string]known{
		"nservicebus": {
			Reason: "NServiceBus: moved to queue error", Error: charge, Stack: true, Queue: "billing", Target: failed.Target{RoutingKey: "billing"}, Attempts: 8, At: "2026-11-29T10:02:03.456789Z",
			Off: []string{
				"NServiceBus.ExceptionInfo.Data.Message type", "NServiceBus.ExceptionInfo.ExceptionType", "NServiceBus.ExceptionInfo.HelpLink", "NServiceBus.ExceptionInfo.Message",
				"NServiceBus.ExceptionInfo.Source", "NServiceBus.ExceptionInfo.StackTrace", "NServiceBus.FLRetries", "NServiceBus.FailedQ", "NServiceBus.Retries", "NServiceBus.Retries.Timestamp", "NServiceBus.TimeOfFailure",
			},
		},
		"masstransit": {
			Reason: "MassTransit: moved to queue billing_error", Error: charge, Stack: true, Queue: "billing", Target: failed.Target{RoutingKey: "billing"}, Attempts: 4, At: "2026-11-29T10:02:03.4567891Z",
			Off: []string{
				"MT-Fault-ConsumerType", "MT-Fault-ExceptionType", "MT-Fault-InputAddress", "MT-Fault-Message", "MT-Fault-MessageType", "MT-Fault-RetryCount", "MT-Fault-StackTrace", "MT-Fault-Timestamp",
				"MT-Host-MachineName", "MT-Host-MassTransitVersion", "MT-Host-ProcessName", "MT-Reason", "MT-Redelivery-Count",
			},
		},
		"masstransit-skipped": {
			Reason: "MassTransit: moved to queue billing_skipped", Error: "no consumer for the message in queue billing", Queue: "billing", Target: failed.Target{RoutingKey: "billing"},
			Off: []string{"MT-Host-MachineName", "MT-Reason"},
		},
		"rebus": {
			Reason: "Rebus: moved to queue error", Error: charge, Stack: true, Queue: "billing", Target: failed.Target{RoutingKey: "billing"}, Attempts: 5,
			Off: []string{"rbs2-delivery-count", "rbs2-error-details", "rbs2-source-queue"},
		},
		"easynetq": {
			Reason: "EasyNetQ: moved to queue EasyNetQ_Default_Error_Queue", Error: charge, Stack: true, Queue: "billing", Target: failed.Target{RoutingKey: "billing"}, At: "2026-11-29T10:02:03.4567891Z",
			Body: `{"Customer":4711}`,
		},
		"wolverine": {
			Reason: "Wolverine: moved to queue wolverine-dead-letter-queue", Error: charge, Stack: true, Queue: "billing", Target: failed.Target{RoutingKey: "billing"}, Attempts: 3, At: "2026-11-30T10:02:03.456Z",
			Off: []string{"attempts", "exception-message", "exception-stack", "exception-type", "failed-at", "original-destination"},
		},
		"dramatiq": {
			Reason: "dramatiq: dead-lettered by the broker: rejected in billing", Error: "LookupError: no such customer 4711", Stack: true, Queue: "billing", Target: failed.Target{RoutingKey: "billing"}, Attempts: 4, At: "2026-11-29T10:02:03Z",
			Body: `{"queue_name":"billing","actor_name":"charge","args":[4711],"kwargs":{},"options":{"retries":0},"message_id":"d1","message_timestamp":1796032900000}`,
		},
		"spring": {
			Reason: "Spring: moved to queue errors", Error: "java.lang.IllegalStateException: no such customer 4711", Stack: true, Target: failed.Target{Exchange: "shop", RoutingKey: "charge"},
			Off: []string{"x-exception-message", "x-exception-stacktrace", "x-original-exchange", "x-original-routingKey"},
		},
		"spring-binder": {
			Reason: "Spring: moved to queue shop.billing.dlq", Error: "java.lang.IllegalStateException: no such customer 4711", Stack: true, Queue: "shop.billing", Target: failed.Target{RoutingKey: "shop.billing"},
			Off: []string{"retry-count", "x-exception-message", "x-exception-stacktrace", "x-original-exchange", "x-original-routingKey"},
		},
		"celery": {
			Reason: "Celery: dead-lettered by the broker: rejected in celery", Error: "task shop.charge was rejected in celery", Queue: "celery", Target: failed.Target{RoutingKey: "celery"}, Attempts: 3, At: "2026-11-29T21:31:29Z",
		},
		"rascal-dead": {
			Reason: "rascal: moved to queue rascal-dead", Error: "ENOENT: no such customer 4711", Queue: "rascal-work", Target: failed.Target{RoutingKey: "rascal-work"}, Attempts: 2,
		},
		"rascal-nack-dead": {
			Reason: "rascal: dead-lettered by the broker: rejected in rascal-nack", Error: "ENOENT: no such customer 4711", Queue: "rascal-nack", Target: failed.Target{RoutingKey: "rascal-nack"}, Attempts: 1, At: "2026-11-29T21:32:26Z",
		},
		"symfony-json": {
			Reason: "Symfony Messenger: moved to queue symfony-json-failed", Error: "RuntimeException: no such customer 4711", Queue: "symfony-json", Target: failed.Target{RoutingKey: "symfony-json"}, Attempts: 1, At: "2026-11-29T21:32:56Z",
			Off: []string{symfonyStamp + "DelayStamp", symfonyStamp + "ErrorDetailsStamp", symfonyStamp + "RedeliveryStamp", symfonyStamp + "SentToFailureTransportStamp"},
		},
		"symfony-php": {
			Reason: "Symfony Messenger: moved to queue symfony-php-failed", Error: "RuntimeException: no such customer 4711", Queue: "symfony-php", Target: failed.Target{RoutingKey: "symfony-php"},
			Refused: "the body is serialized by PHP and contains SentToFailureTransportStamp, with which its next failure would be discarded (retry it with `messenger:failed:retry`, or use the Symfony serializer)",
		},
		"watermill": {
			Reason: "Watermill: moved to queue watermill.poison", Error: "no such customer 4711", Target: failed.Target{Exchange: "watermill.charges", RoutingKey: "watermill.charges"},
			Off: []string{"handler_poisoned", "reason_poisoned", "subscriber_poisoned", "topic_poisoned"}, StringsOnly: true,
		},
		"watermill-topic": {
			Reason: "Watermill: moved to queue watermill-topic.poison", Error: "no such customer 4711", Target: failed.Target{Exchange: "watermill-topic.charges", RoutingKey: "watermill-topic.charges"},
			Off: []string{"handler_poisoned", "reason_poisoned", "subscriber_poisoned", "topic_poisoned"}, StringsOnly: true,
		},
	}
	fixtures := readFixtures(t)
	for name, m := range fixtures {
		t.Run(name, func(t *testing.T) {
			content := failed.ContentOf(m)
			before := maps.Clone(content.Headers)
			if diff := cmp.Diff(want[name], knownOf(t, m)); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(before, content.Headers); diff != "" {
				t.Errorf("the original was changed: %s", diff)
			}
		})
	}
	for name := range want {
		if fixtures[name] == nil {
			t.Errorf("fixture %s not found", name)
		}
	}
}

func knownOf(t *testing.T, m *reprise.Delivery) known {
	t.Helper()
	a := Take(m, nil)
	first, rest, _ := strings.Cut(a.Error, "\n")
	k := known{
		Reason: a.Reason, Error: first, Stack: strings.Contains(rest, "\n") || strings.HasPrefix(rest, "   at "), Queue: a.Queue,
		Target: failed.Target{Exchange: a.Exchange, RoutingKey: a.RoutingKey}, Attempts: a.Attempts,
	}
	if !a.LastFailed.IsZero() {
		k.At = a.LastFailed.UTC().Format(time.RFC3339Nano)
	}
	content := failed.ContentOf(m)
	sent, err := Restore(content, m.Queue, content)
	if lost, ok := errors.AsType[*LossError](err); ok {
		k.Refused = lost.Why
		return k
	} else if err != nil {
		t.Fatal(err)
	}
	k.StringsOnly = sent.StringsOnly
	for header := range content.Headers {
		if _, kept := sent.Headers[header]; !kept && !amqpvalue.IsBrokerHeader(header) {
			k.Off = append(k.Off, header)
		}
	}
	slices.Sort(k.Off)
	if string(sent.Body) != string(m.Body) {
		k.Body = string(sent.Body)
	}
	return k
}

// A replay resets the counters of attempts that are parts of a header or of the body.
func TestRestoreResetsAttempts(t *testing.T) {
	all := readFixtures(t)
	restore := func(name string, change func(*failed.Content)) (failed.Content, error) {
		c := failed.ContentOf(all[name])
		c.Headers = maps.Clone(c.Headers)
		change(&c)
		sent, err := Restore(c, all[name].Queue, c)
		return sent.Content, err
	}
	none := func(*failed.Content) {}
	for _, name := range []string{"rascal-dead", "rascal-nack-dead"} {
		c, err := restore(name, none)
		if err != nil {
			t.Fatal(err)
		}
		got := c.Headers["rascal"].(topology.Table)
		if _, found := got["error"]; found || len(got["recovery"].(topology.Table)) > 0 || got["restoreRoutingHeaders"] != true {
			t.Errorf("%s: got %v, want no error and no recovery", name, got)
		}
	}
	c, err := restore("celery", none)
	if err != nil || c.Headers["retries"] != int32(0) || c.Headers["id"] == nil || c.Properties.CorrelationID != c.Headers["id"] {
		t.Errorf("celery: got %v, %v, want 0 retries and the same ID", c.Headers, err)
	}
	_, err = restore("celery", func(c *failed.Content) { c.Headers["expires"] = "2020-01-01T00:00:00.5+00:00" })
	if lost, ok := errors.AsType[*LossError](err); !ok || !strings.Contains(lost.Why, "expired at 2020-01-01T00:00:00Z") {
		t.Errorf("celery: got %v, want a refusal of an expired task", err)
	}
	if _, err = restore("celery", func(c *failed.Content) { c.Headers["expires"] = "2999-01-01T00:00:00" }); err != nil {
		t.Errorf("celery: a task that has not expired: %v", err)
	}
}

func TestEasyNetQRestoresMessage(t *testing.T) {
	m := readFixtures(t)["easynetq"]
	for name, tc := range map[string]struct{ message, kind, want, refused string }{
		"text":        {"hello", "text/plain", "hello", ""},
		"either":      {"word", "text/plain", "", "text or base64"},
		"JSON":        {`{"a":"é"}`, "application/json", `{"a":"é"}`, ""},
		"base64":      {"eyJhIjoxfQ==", "application/json", `{"a":1}`, ""},
		"a JSON word": {`"word"`, "application/json", `"word"`, ""},
		"damaged":     {"a\ufffdb", "application/x-protobuf", "", "damaged"},
	} {
		var envelope map[string]any
		if err := json.Unmarshal(m.Body, &envelope); err != nil {
			t.Fatal(err)
		}
		envelope["Message"] = tc.message
		envelope["BasicProperties"].(map[string]any)["ContentType"] = tc.kind
		c := failed.ContentOf(m)
		var err error
		if c.Body, err = json.Marshal(envelope); err != nil {
			t.Fatal(err)
		}
		sent, err := Restore(c, m.Queue, c)
		if tc.refused != "" {
			if err == nil || !strings.Contains(err.Error(), tc.refused) {
				t.Errorf("%s: got %v, want a refusal", name, err)
			}
			continue
		}
		want := failed.Properties{ContentType: tc.kind, Type: "Shop.Charge, Shop", CorrelationID: "c1", MessageID: "e1", Exchange: c.Properties.Exchange, RoutingKey: c.Properties.RoutingKey}
		headers := topology.Table{"tenant": "acme", "try": int64(1)}
		if err != nil || string(sent.Body) != tc.want || !cmp.Equal(sent.Properties, want) || !cmp.Equal(sent.Headers, headers) {
			t.Errorf("%s: got %q, %+v, %v, error %v", name, sent.Body, sent.Properties, sent.Headers, err)
		}
	}
}

// A message that Reprise has parked is the same with and without this package, whatever other headers it has.
func TestOwnMessagesDoNotChange(t *testing.T) {
	for name, m := range readFixtures(t) {
		m.Headers = maps.Clone(m.Headers)
		m.Headers[topology.HeaderQueue], m.Headers[topology.HeaderAttempts] = "orders", int64(3)
		if diff := cmp.Diff(failed.Take(m, nil), Take(m, nil)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		content := failed.ContentOf(m)
		if got, err := Restore(content, m.Queue, content); err != nil || got.StringsOnly || !cmp.Equal(got.Content, content) {
			t.Errorf("%s: a replay changes the message: %v", name, err)
		}
	}
}

// Messages of any program neither cause a panic nor lose a header, except the headers that the framework owns, and the headers
// that its consumers cannot read. An envelope has no headers of its own.
func TestAnyMessage(t *testing.T) {
	fixtures := readFixtures(t)
	names := slices.Sorted(maps.Keys(fixtures))
	rapid.Check(t, func(t *rapid.T) {
		m := fixtures[rapid.SampledFrom(names).Draw(t, "fixture")]
		content := failed.ContentOf(m)
		content.Headers = maps.Clone(content.Headers)
		if content.Headers == nil {
			content.Headers = topology.Table{}
		}
		maps.Copy(content.Headers, hostile.Headers().Draw(t, "headers"))
		if keys := slices.Sorted(maps.Keys(content.Headers)); len(keys) > 0 && rapid.Bool().Draw(t, "replace") {
			for name, v := range hostile.Headers().Draw(t, "value") {
				content.Headers[rapid.SampledFrom(keys).Draw(t, "key")] = v
				_ = name
			}
		}
		if rapid.Bool().Draw(t, "body") {
			content.Body = []byte(hostile.Text.Draw(t, "text"))
		}
		queue := rapid.SampledFrom([]string{m.Queue, "", "x_error", "x.XQ"}).Draw(t, "queue")
		a := Take(deliver(queue, content), nil)
		if a.Attempts < 0 || a.LastFailed.Year() > 9999 {
			t.Fatalf("got %d attempts, last at %v", a.Attempts, a.LastFailed)
		}
		PlaceOf(deliver(queue, content), nil)
		before := maps.Clone(content.Headers)
		sent, err := Restore(content, queue, content)
		if err != nil {
			return
		}
		fw, _ := find(message{queue, content})
		for name, v := range before {
			_, text := v.(string)
			if _, kept := sent.Headers[name]; !kept && (fw == nil || !fw.owns(name) && !(fw.stringsOnly && !text)) {
				t.Fatalf("header %q is missing", name)
			}
		}
	})
}

func FuzzBody(f *testing.F) {
	for _, m := range readFixtures(f) {
		f.Add(m.Queue, m.Body)
	}
	f.Fuzz(func(_ *testing.T, queue string, body []byte) {
		c := failed.Content{Body: body, Headers: topology.Table{}}
		Take(deliver(queue, c), nil)
		_, _ = Restore(c, queue, c)
	})
}

// A publisher can write all that frameworks write, but it cannot choose the destination of a message that the broker dead-letters.
func TestBrokerNamesWorkQueue(t *testing.T) {
	for name, m := range readFixtures(t) {
		m.Headers = maps.Clone(m.Headers)
		m.Headers["x-death"] = []any{topology.Table{"queue": "rejecting", "reason": "rejected", "exchange": "", "routing-keys": []any{"rejecting"}, "count": int64(1)}}
		if a, at := Take(m, nil), PlaceOf(m, nil); a.Queue != "rejecting" || at != (failed.Place{Queue: "rejecting", Claimed: true}) {
			t.Errorf("%s: got %q and %+v", name, a.Queue, at)
		}
	}
}

// Names and numbers that no framework writes do not reach the archive.
func TestImplausibleClaims(t *testing.T) {
	m := deliver("error", failed.Content{Headers: topology.Table{
		"NServiceBus.FailedQ": strings.Repeat("q", 256), "NServiceBus.FLRetries": "9223372036854775807", "NServiceBus.Retries": "9223372036854775807",
	}})
	if a := Take(m, nil); len(a.Queue) > 255 || len(a.RoutingKey) > 255 || a.Attempts < 0 || a.Attempts > amqpvalue.MaxCount {
		t.Errorf("got %q, %q and %d attempts", a.Queue, a.RoutingKey, a.Attempts)
	}
}

// The name of the failed queue confirms only the work queue after whose name it has a suffix of dead-letter queues.
func TestPlaceIsClaimedUnlessNameConfirms(t *testing.T) {
	for _, tc := range []struct {
		failedQueue, claimed string
		want                 bool
	}{
		{"billing_error", "billing", false},
		{"billing.eu_error", "billing.eu", false},
		{"billing.dead-letter", "billing", false},
		{"billing_error", "b", true},
		{"billing.eu_error", "billing", true},
		{"billing-archive", "billing", true},
		{"error", "billing", true},
	} {
		m := deliver(tc.failedQueue, failed.Content{Headers: topology.Table{"NServiceBus.FailedQ": tc.claimed}})
		if at := PlaceOf(m, nil); at != (failed.Place{Queue: tc.claimed, Claimed: tc.want}) {
			t.Errorf("%s in %s: got %+v, want claimed %t", tc.claimed, tc.failedQueue, at, tc.want)
		}
	}
}

// All fixtures record a failure. A message that waits for its first attempt does not, even if its framework is known.
func TestSignedBy(t *testing.T) {
	for name, m := range readFixtures(t) {
		if SignedBy(m) == "" || !Failed(m) {
			t.Errorf("%s: got %q and failed %t", name, SignedBy(m), Failed(m))
		}
		waiting := *m
		waiting.Headers = maps.Clone(m.Headers)
		maps.DeleteFunc(waiting.Headers, func(name string, _ any) bool {
			return strings.HasPrefix(name, "x-death") || strings.HasPrefix(name, "x-first-death")
		})
		if fw, _ := find(message{m.Queue, failed.ContentOf(m)}); fw.unsigned && (SignedBy(&waiting) != "" || Failed(&waiting)) {
			t.Errorf("%s before its first attempt: got %q and failed %t", name, SignedBy(&waiting), Failed(&waiting))
		}
	}
	parked := deliver("orders.failed", failed.Content{Headers: topology.Table{topology.HeaderQueue: "orders", topology.HeaderAttempts: int64(3)}})
	if by := SignedBy(parked); by != "Reprise" {
		t.Errorf("parked message: got %q", by)
	}
	if m := deliver("orders.failed", failed.Content{Body: []byte("17")}); SignedBy(m) != "" || Failed(m) {
		t.Errorf("message of another program: got %q and failed %t", SignedBy(m), Failed(m))
	}
}
