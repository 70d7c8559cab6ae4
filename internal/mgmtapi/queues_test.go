package mgmtapi_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/reprisemq/reprise/internal/mgmtapi"
	"github.com/reprisemq/reprise/topology"
)

// answering returns an API whose responses are the values of the map, by path below /api/.
func answering(t testing.TB, answers map[string]any) mgmtapi.API {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := json.Marshal(answers[strings.TrimPrefix(r.URL.Path, "/api/")])
		if err != nil {
			t.Error(err)
		}
		_, _ = w.Write(body)
	}))
	t.Cleanup(server.Close)
	return mgmtapi.API{URL: server.URL}
}

// values are JSON values that a field of another type may have.
var values = rapid.OneOf(
	rapid.SampledFrom([]json.RawMessage{
		[]byte(`null`), []byte(`[]`), []byte(`{}`), []byte(`[[]]`), []byte(`""`), []byte(`"undefined"`), []byte(`"5"`), []byte(`true`),
		[]byte(`1e400`), []byte(`-1e400`), []byte(`1.5`), []byte(`18446744073709551616`), []byte(`{"rate":{}}`), []byte(`"\ud800"`), []byte(`{"publish":null}`),
		[]byte(strings.Repeat("[", 500) + strings.Repeat("]", 500)),
	}),
	rapid.Map(rapid.String(), func(s string) json.RawMessage { b, _ := json.Marshal(s); return b }),
)

// object is a JSON object in a response.
type object = map[string]any

// spoil replaces or removes a drawn member of an object, and returns its path.
func spoil(t *rapid.T, o object) string {
	names := make([]string, 0, len(o))
	for name := range o {
		names = append(names, name)
	}
	slices.Sort(names)
	name := rapid.SampledFrom(names).Draw(t, "member")
	if inner, ok := o[name].(object); ok && rapid.Bool().Draw(t, "deeper") {
		return name + "." + spoil(t, inner)
	}
	if delete(o, name); rapid.IntRange(0, 4).Draw(t, "how") > 0 {
		o[name] = values.Draw(t, "value")
	}
	return name
}

func queueObject(name string) object {
	return object{
		"name": name, "messages": 7, "messages_ready": 5, "messages_unacknowledged": 2, "consumers": 3, "arguments": object{"x-max-length": 9},
		"message_stats": object{"publish": 40, "ack": 30, "get": 4, "get_no_ack": 2, "deliver_no_ack": 1, "publish_details": object{"rate": 1.5}},
	}
}

// An unexpected value in the description of a queue affects neither other queues nor other fields of the queue.
func TestQueuesContainsUnexpectedValues(t *testing.T) {
	whole := func(name string) mgmtapi.Queue {
		n := func(v int64) mgmtapi.Field[int64] { return mgmtapi.Field[int64]{Value: v, Known: true} }
		return mgmtapi.Queue{
			Name: name, Messages: n(7), Ready: n(5), Unacked: n(2), Consumers: n(3), Args: topology.Table{"x-max-length": int64(9)},
			Stats: mgmtapi.Stats{Published: n(40), Acked: n(30), Get: n(4), GetNoAck: n(2), DeliverNoAck: n(1), PublishRate: mgmtapi.Field[float64]{Value: 1.5, Known: true}},
		}
	}
	rapid.Check(t, func(r *rapid.T) {
		odd := queueObject("odd")
		path := spoil(r, odd)
		list := []any{queueObject("first"), odd, values.Draw(r, "element"), queueObject("last")}
		got, err := answering(t, map[string]any{"queues//": list}).Queues(t.Context())
		if err != nil {
			r.Fatal(err)
		}
		for _, q := range got {
			want := whole(q.Name)
			if q.Name != "first" && q.Name != "last" {
				field, rest, _ := strings.Cut(path, ".")
				switch field {
				case "name":
					want.Name = q.Name
				case "messages":
					want.Messages = q.Messages
				case "messages_ready":
					want.Ready = q.Ready
				case "messages_unacknowledged":
					want.Unacked = q.Unacked
				case "consumers":
					want.Consumers = q.Consumers
				case "arguments":
					want.Args = q.Args
				case "message_stats":
					switch rest {
					case "publish":
						want.Stats.Published = q.Stats.Published
					case "ack":
						want.Stats.Acked = q.Stats.Acked
					case "get":
						want.Stats.Get = q.Stats.Get
					case "get_no_ack":
						want.Stats.GetNoAck = q.Stats.GetNoAck
					case "deliver_no_ack":
						want.Stats.DeliverNoAck = q.Stats.DeliverNoAck
					case "":
						want.Stats = q.Stats
					default:
						want.Stats.PublishRate = q.Stats.PublishRate
					}
				}
			}
			if !reflect.DeepEqual(want, q) { // cmp takes 2ⁿ steps for n nested lists
				r.Errorf("queue %q with an unexpected %s: got %+v, want %+v", q.Name, path, q, want)
			}
		}
		if names := len(got); names < 2 || names == 2 && path != "name" {
			r.Errorf("got %d queues, want the queues first, odd and last", names)
		}
	})
}

// An empty object can be an empty list in the responses of RabbitMQ. Counters that RabbitMQ omits are 0, and counts of
// other types are unknown.
func TestQueuesReadsFields(t *testing.T) {
	type field = mgmtapi.Field[int64]
	for text, want := range map[string]struct{ published, ready field }{
		`{"name":"q","messages_ready":1,"message_stats":[]}`:                   {field{Known: true}, field{Value: 1, Known: true}},
		`{"name":"q","messages_ready":1}`:                                      {field{Known: true}, field{Value: 1, Known: true}},
		`{"name":"q","messages_ready":null,"message_stats":{"publish":3}}`:     {field{Value: 3, Known: true}, field{}},
		`{"name":"q","message_stats":{"publish":null}}`:                        {field{Known: true}, field{}},
		`{"name":"q","messages_ready":"1","message_stats":"none"}`:             {field{}, field{Malformed: true}},
		`{"name":"q","messages_ready":1e99,"message_stats":{"publish":[1,2]}}`: {field{Malformed: true}, field{Malformed: true}},
	} {
		got, err := answering(t, map[string]any{"queues//": []json.RawMessage{json.RawMessage(text)}}).Queues(t.Context())
		if err != nil || len(got) != 1 {
			t.Errorf("%s: got %v, %v; want a queue", text, got, err)
			continue
		}
		if got[0].Stats.Published != want.published || got[0].Ready != want.ready {
			t.Errorf("%s: got %+v and %+v, want %+v", text, got[0].Stats.Published, got[0].Ready, want)
		}
	}
	for _, text := range []string{`null`, `{}`, `"queues"`, `[`} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(text)) }))
		_, err := mgmtapi.API{URL: server.URL}.Queues(t.Context())
		server.Close()
		if err == nil || !strings.Contains(err.Error(), "cannot decode the response") {
			t.Errorf("response %s: got error %v, want cannot decode the response", text, err)
		}
	}
}

// An unexpected value in the description of an exchange or a binding does not affect other objects. A topology that lacks an
// object or has a different object is incomplete, because it does not show the destinations of a message.
func TestTopologyContainsUnexpectedValues(t *testing.T) {
	answers := func() map[string]any {
		return map[string]any{
			"exchanges//": []any{
				object{"name": "first", "type": "topic", "policy": "p", "internal": false, "arguments": object{"n": 1}},
				object{"name": "odd", "type": "direct", "policy": "p", "internal": true, "arguments": object{"alternate-exchange": "first"}},
			},
			"bindings//": []any{
				object{"source": "first", "destination": "orders", "destination_type": "queue", "routing_key": "k", "arguments": object{"n": 1}},
				object{"source": "first", "destination": "odd", "destination_type": "exchange", "routing_key": "#", "arguments": object{"x-match": "all"}},
			},
			"policies//": []any{object{"name": "p", "definition": object{"alternate-exchange": "odd"}}, object{"name": "q", "definition": object{}}},
		}
	}
	whole, err := answering(t, answers()).Topology(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(r *rapid.T) {
		odd := answers()
		list := odd[rapid.SampledFrom([]string{"exchanges//", "bindings//"}).Draw(r, "list")].([]any)
		o := list[1].(object)
		path := spoil(r, o)
		got, err := answering(t, odd).Topology(t.Context())
		if err != nil && !errors.Is(err, mgmtapi.ErrIncomplete) {
			r.Fatalf("unexpected %s: %v", path, err)
		}
		if len(got.Exchanges) == 0 || len(got.Bindings) == 0 || !reflect.DeepEqual(whole.Exchanges[0], got.Exchanges[0]) || !reflect.DeepEqual(whole.Bindings[0], got.Bindings[0]) {
			r.Errorf("unexpected %s: got %+v, want the first exchange and binding of %+v", path, got, whole)
		}
		if err == nil && (len(got.Exchanges) < 2 || len(got.Bindings) < 2) && o["name"] != nil && string(asJSON(o["name"])) != `""` {
			r.Errorf("unexpected %s: got %+v, want all objects or ErrIncomplete", path, got)
		}
	})
}

func asJSON(v any) []byte { b, _ := json.Marshal(v); return b }

func TestDeclarationIncludesPolicies(t *testing.T) {
	for name, tc := range map[string]struct {
		answer object
		want   topology.Queue
	}{
		"lower limit": {
			object{"durable": true, "arguments": object{"x-max-length": 10, "x-message-ttl": 10}, "effective_policy_definition": object{"max-length": 5, "message-ttl": 50, "expires": 7}},
			topology.Queue{Args: topology.Table{"x-max-length": int64(5), "x-message-ttl": int64(10), "x-expires": int64(7)}},
		},
		"argument before policy": {
			object{"durable": true, "auto_delete": true, "arguments": object{"x-overflow": "reject-publish"}, "effective_policy_definition": object{"overflow": "drop-head"}},
			topology.Queue{AutoDelete: true, Args: topology.Table{"x-overflow": "reject-publish"}},
		},
		"no delivery limit in one of them": {
			object{"type": "quorum", "durable": true, "arguments": object{"x-delivery-limit": -1}, "effective_policy_definition": object{"delivery-limit": 5}},
			topology.Queue{Args: topology.Table{"x-delivery-limit": int64(5)}},
		},
		"policy before argument": {
			object{"type": "quorum", "durable": true, "arguments": object{"x-overflow": "reject-publish"}, "effective_policy_definition": object{"overflow": "drop-head"}},
			topology.Queue{Args: topology.Table{"x-overflow": "drop-head"}},
		},
		"unexpected forms": {
			object{"durable": false, "auto_delete": "no", "exclusive": []any{}, "arguments": []any{}, "effective_policy_definition": "none"},
			topology.Queue{Transient: true, Args: topology.Table{}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			tc.want.Name = "q"
			got, err := answering(t, map[string]any{"queues///q": tc.answer}).Declaration(t.Context(), "q")
			if diff := cmp.Diff(tc.want, got); diff != "" || err != nil {
				t.Errorf("error %v\n%s", err, diff)
			}
		})
	}
}
