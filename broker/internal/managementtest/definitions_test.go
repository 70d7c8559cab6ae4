package managementtest

import (
	"encoding/json"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/internal/testkit"
)

// declareSome declares queues, exchanges and bindings of several kinds.
func declareSome(t *testing.T, b *target, vhost string) {
	t.Helper()
	conn := b.dial(t, vhost)
	ch := get[*amqp.Channel](t)(conn.Channel())
	must(t, ch.ExchangeDeclare("x", "topic", true, false, false, false, amqp.Table{"alternate-exchange": "y"}))
	must(t, ch.ExchangeDeclare("y", "headers", true, true, false, false, nil))
	for name, args := range map[string]amqp.Table{
		"classic": {"x-message-ttl": 60000, "x-max-priority": 5, "x-overflow": "reject-publish", "x-dead-letter-exchange": ""},
		"quorum":  {"x-queue-type": "quorum", "x-delivery-limit": 3, "x-single-active-consumer": true},
	} {
		get[amqp.Queue](t)(ch.QueueDeclare(name, true, false, false, false, args))
		must(t, ch.QueueBind(name, "a.*.b/c", "x", false, amqp.Table{"n": 1, "s": "t", "nested": amqp.Table{"a": []any{"b", true}}}))
		must(t, ch.QueueBind(name, "", "y", false, amqp.Table{"x-match": "any", "h": 1.5}))
	}
	get[amqp.Queue](t)(ch.QueueDeclare("mine", false, false, true, false, nil)) // not exported, because it is exclusive
	must(t, ch.QueueBind("mine", "k", "x", false, nil))
	must(t, ch.ExchangeBind("y", "k", "x", false, nil))
	for x, q := range map[string]string{"x-local-random": "classic", "x-modulus-hash": "quorum"} {
		must(t, ch.ExchangeDeclare(x, x, true, false, false, false, nil))
		must(t, ch.QueueBind(q, "", x, false, nil))
	}
	must(t, conn.Close())
	testkit.Eventually(t, published, func() bool {
		status, _ := b.call(t, "GET", "/api/queues/"+url.PathEscape(vhost)+"/mine", "")
		return status == 404
	})
}

// topologyOf returns the sorted definitions of a virtual host, without the fields that name the virtual host.
func topologyOf(t *testing.T, b *target, vhost string) map[string][]any {
	t.Helper()
	var all map[string]any
	must(t, json.Unmarshal([]byte(b.must(t, "GET", "/api/definitions/"+url.PathEscape(vhost), "")), &all))
	found := map[string][]any{}
	for _, part := range []string{"queues", "exchanges", "bindings", "parameters", "policies"} {
		found[part] = all[part].([]any)
		slices.SortFunc(found[part], func(a, b any) int {
			x, _ := json.Marshal(a)
			y, _ := json.Marshal(b)
			return strings.Compare(string(x), string(y))
		})
	}
	return found
}

// Each broker imports the definitions that the other broker exports, and then exports the same definitions.
func TestDefinitionsRoundTripWithRabbitMQ(t *testing.T) {
	us, rabbit := embedded(t, broker.Config{}), rabbitMQ(t)
	for name, way := range map[string]struct{ from, to *target }{"out": {us, rabbit}, "in": {rabbit, us}} {
		t.Run(name, func(t *testing.T) {
			from, to := way.from.vhost(t), way.to.vhost(t)
			declareSome(t, way.from, from)
			way.to.must(t, "POST", "/api/definitions/"+url.PathEscape(to), way.from.must(t, "GET", "/api/definitions/"+url.PathEscape(from), ""))
			want, got := topologyOf(t, way.from, from), topologyOf(t, way.to, to)
			if !reflect.DeepEqual(got, want) {
				t.Errorf("got  %v\nwant %v", got, want)
			}
			if len(got["queues"]) != 2 || len(got["exchanges"]) != 4 || len(got["bindings"]) != 7 {
				t.Errorf("definitions: got %v, want 2 queues, 4 exchanges and 7 bindings", got)
			}
		})
	}
}

// RabbitMQ imports all definitions of an embedded broker, including users, passwords and permissions.
func TestDefinitionsWithUsers(t *testing.T) {
	rabbit := rabbitMQ(t)
	user, vhost := testkit.Name(t, "user"), testkit.Name(t, "vhost")
	t.Cleanup(func() {
		rabbit.must(t, "DELETE", "/api/users/"+user, "")
		rabbit.must(t, "DELETE", "/api/vhosts/"+vhost, "")
	})
	us := embedded(t, broker.Config{Users: map[string]string{user: "s3cret"}})
	for _, r := range [][3]string{
		{"PUT", "/api/vhosts/" + vhost, `{"description":"of a test","tags":["a"]}`},
		{"PUT", "/api/permissions/" + vhost + "/" + user, `{"configure":"^c","write":".*","read":""}`},
		{"PUT", "/api/queues/" + vhost + "/q", `{"durable":true}`},
	} {
		if status, text := us.callAs(t, user, "s3cret", r[0], r[1], r[2]); status/100 != 2 {
			t.Fatalf("%v: got %d, want 2xx: %s", r, status, text)
		}
	}
	_, exported := us.callAs(t, user, "s3cret", "GET", "/api/definitions", "")
	rabbit.must(t, "POST", "/api/definitions", exported)
	if status, text := rabbit.callAs(t, user, "s3cret", "GET", "/api/queues/"+vhost+"/q?columns=name", ""); status != 200 {
		t.Errorf("GET queue: got %d, want 200: %s", status, text)
	}
	var p struct{ Configure, Write, Read string }
	must(t, json.Unmarshal([]byte(rabbit.must(t, "GET", "/api/permissions/"+vhost+"/"+user, "")), &p))
	if p.Configure != "^c" || p.Write != ".*" || p.Read != "" {
		t.Errorf("unexpected permission: %+v", p)
	}
}

// A new embedded broker imports all definitions of a RabbitMQ broker.
func TestNewImportsDefinitionsOfRabbitMQ(t *testing.T) {
	rabbit := rabbitMQ(t)
	vhost := rabbit.vhost(t)
	declareSome(t, rabbit, vhost)
	var d map[string]any
	must(t, json.Unmarshal([]byte(rabbit.must(t, "GET", "/api/definitions", "")), &d))
	for _, part := range []string{"queues", "exchanges", "bindings"} { // other tests may be changing their objects
		d[part] = slices.DeleteFunc(d[part].([]any), func(v any) bool { return v.(map[string]any)["vhost"] != vhost })
	}
	mine := func(v any) bool {
		m := v.(map[string]any)
		return m["name"] != "guest" && m["user"] != "guest"
	}
	d["users"] = slices.DeleteFunc(d["users"].([]any), mine)
	d["permissions"] = slices.DeleteFunc(d["permissions"].([]any), mine)
	definitions, err := json.Marshal(d)
	must(t, err)
	us := embedded(t, broker.Config{Definitions: definitions})
	if got, want := topologyOf(t, us, vhost), topologyOf(t, rabbit, vhost); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func TestImportRejectsUnsupportedObjects(t *testing.T) {
	b := embedded(t, broker.Config{})
	for definitions, want := range map[string]string{
		`{"policies":[{"name":"ha","vhost":"/","pattern":".*","definition":{"ha-mode":"all"}}]}`:                   "policy \"ha\": Validation failed\n\n[{<<\"ha-mode\">>,<<\"all\">>}] are not recognised policy settings\n",
		`{"topic_permissions":[{"user":"guest","vhost":"/","exchange":"x","write":"","read":""}]}`:                 `["no_such_exchange","x"]`,
		`{"users":[{"name":"u","tags":"","password_hash":"x","hashing_algorithm":"rabbit_password_hashing_md5"}]}`: "hashing_algorithm must be rabbit_password_hashing_sha256: got rabbit_password_hashing_md5",
		`{"vhosts":[{"name":"v","metadata":{"default_queue_type":"stream"}}]}`:                                     "default_queue_type must be classic or quorum: streams are not supported",
		`{"queues":[{"name":"q","vhost":"/","arguments":{"x-queue-type":"stream"}}]}`:                              "queue \"q\"",
		`{"queues":[{"name":"q","vhost":"/"}],"queues":[]}`:                                                        "\"queues\" must not occur twice in an object (nothing was imported)",
		`{"queues":[{"name":"q","vhost":"/","name":"r"}]}`:                                                         "\"name\" must not occur twice in an object",
		`{"x":[1,{"a":{"b":1,"\u0062":2}}]}`:                                                                       "\"b\" must not occur twice in an object",
		`{"queues":"q"}`:                                                                                           "queues must be a list",
		`nonsense`:                                                                                                 "failed_to_parse_json",
	} {
		status, text := b.call(t, "POST", "/api/definitions", definitions)
		var body struct{ Reason string }
		_ = json.Unmarshal([]byte(text), &body)
		if status != 400 || !strings.Contains(body.Reason, want) {
			t.Errorf("%s\ngot  %d %s\nwant 400 …%s…", definitions, status, text, want)
		}
		if _, err := broker.New(broker.Config{Definitions: []byte(definitions)}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New: got error %v, want …%s…", err, want)
		}
	}
	if text := b.must(t, "GET", "/api/queues", ""); text != "[]" {
		t.Errorf("rejected import created objects: %s", text)
	}
}

// The management API and New reject definitions whose objects exceed the memory limit for queues, exchanges and
// bindings.
func TestImportRejectsDefinitionsAboveMemoryLimit(t *testing.T) {
	var queues []string
	for i := range 10 {
		queues = append(queues, fmt.Sprintf(`{"name":"q%d","vhost":"/","arguments":{"x-comment":"%s"}}`, i, strings.Repeat("x", 1000)))
	}
	definitions := `{"queues":[` + strings.Join(queues, ",") + `]}`
	config := broker.Config{TopologyMemoryLimit: 10_000}
	b := embedded(t, config)
	const want = "memory limit for queues, exchanges and bindings (10000 bytes) is reached"
	if status, text := b.call(t, "POST", "/api/definitions", definitions); status != 400 || !strings.Contains(text, want) {
		t.Errorf("got  %d %s\nwant 400 …%s…", status, text, want)
	}
	if status, text := b.call(t, "PUT", "/api/queues/%2F/q9", `{"arguments":{"x-comment":"`+strings.Repeat("x", 10_000)+`"}}`); status != 400 || !strings.Contains(text, want) {
		t.Errorf("got  %d %s\nwant 400 …%s…", status, text, want)
	}
	config.Definitions = []byte(definitions)
	if _, err := broker.New(config); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("New: got error %v, want …%s…", err, want)
	}
}

// An import does not change existing queues, but replaces existing users.
func TestImportKeepsExistingObjects(t *testing.T) {
	b := embedded(t, broker.Config{})
	b.must(t, "PUT", "/api/queues/%2F/q", `{"durable":true,"arguments":{"x-message-ttl":5}}`)
	b.must(t, "POST", "/api/definitions", `{"queues":[{"name":"q","vhost":"/","durable":true,"arguments":{}}],
		"users":[{"name":"guest","password":"other","tags":["administrator"]}]}`)
	status, text := b.callAs(t, "guest", "other", "GET", "/api/queues/%2F/q?columns=arguments", "")
	if want := `{"arguments":{"x-message-ttl":5,"x-queue-type":"classic"}}`; status != 200 || text != want {
		t.Errorf("existing queue: got %d %s, want %s", status, text, want)
	}
	if status, _ := b.call(t, "GET", "/api/whoami", ""); status != 401 {
		t.Errorf("login with the old password: got %d, want 401", status)
	}
}
