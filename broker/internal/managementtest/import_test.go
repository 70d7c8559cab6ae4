package managementtest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/internal/testkit/flags"
)

// importCase is a definitions document, and the names of the queues and the number of the bindings after its import. In
// the document, V stands for a virtual host, W for a virtual host that does not exist, and U for a user that does not
// exist.
type importCase struct {
	text     string
	refused  bool
	queues   []string
	bindings int
}

const queueQ = `{"name":"q","vhost":"V","durable":true,"arguments":{}}`

// declared returns the definitions of an exchange, a queue, and their binding.
func declared(exchange, queue, key string) string {
	return fmt.Sprintf(`{"exchanges":[{"name":"x","vhost":"V","type":%q,"durable":true,"arguments":{}}],
		"queues":[{"name":"q","vhost":"V","durable":true,"arguments":{"x-queue-type":%q}}],
		"bindings":[{"source":"x","vhost":"V","destination_type":"queue","destination":"q","routing_key":%q,"arguments":{}}]}`, exchange, queue, key)
}

// limits returns the start of definitions with the limits of a virtual host.
func limits(vhost, value string) string {
	return fmt.Sprintf(`{"parameters":[{"vhost":%q,"component":"vhost-limits","name":"limits","value":%s}]`, vhost, value)
}

func bindingOf(source, kind, destination string) string {
	return fmt.Sprintf(`{"source":%q,"vhost":"V","destination_type":%q,"destination":%q,"routing_key":"k","arguments":{}}`, source, kind, destination)
}

var importCases = []importCase{
	{text: `{"vhosts":[{"name":"W","limits":{ }}]}`},
	{text: `{"vhosts":[{"name":"W","limits":[ ]}]}`},
	{text: `{"vhosts":[{"name":"W","limits":{"max-queues": -1}}]}`},
	{text: `{"vhosts":[{"name":"W","limits":null}]}`},
	{text: `{"vhosts":[{"name":"W","limits":{"max-queues":0}}],"queues":[{"name":"q","vhost":"W"},` + queueQ + `]}`, queues: []string{"q"}},
	{text: `{"vhosts":[{"name":"W"},{"name":"W","description":"second"}]}`},
	{text: `{"vhosts":[{"description":"no name"}]}`, refused: true},
	{text: `{"users":[{"name":"U","password":"x","tags":"","limits":{ "max-channels" : -1 }}]}`},
	{text: `{"users":[{"name":"U","password":"x","tags":"","limits":{"max-channels":5,"max-connections":0}}]}`},
	{text: `{"users":[{"name":"U","password":"x","tags":"","limits":{"max-channels":"5"}}]}`, refused: true},
	{text: `{"users":[{"name":"U","password":"x","tags":"","limits":{"max-queues":5}}]}`, refused: true},
	{text: `{"users":[{"name":"U","password":"x","tags":"","limits":null}]}`, refused: true},
	{text: limits("V", `{"max-queues":2}`) + `,"queues":[` + queueQ + `]}`, queues: []string{"q"}},
	{text: limits("V", `{"max-queues":-1,"max-connections":3}`) + `,"queues":[` + queueQ + `]}`, queues: []string{"q"}},
	{text: limits("V", `[]`) + `}`},
	{text: limits("V", `{"max-queues":"2"}`) + `}`, refused: true},
	{text: limits("V", `{"max-channels":2}`) + `}`, refused: true},
	{text: limits("V", `7`) + `}`, refused: true},
	{text: limits("V", `null`) + `}`, refused: true},
	{text: limits("W", `{"max-queues":2}`) + `}`, refused: true},
	{text: `{"parameters":[{"vhost":"V","component":"nosuch","name":"n","value":{}}]}`, refused: true},
	{text: `{"parameters":[{"vhost":"V","component":"policy","name":"n","value":{}}]}`, refused: true},
	{text: `{"parameters":[{"vhost":"V","name":"n","value":{}}]}`, refused: true},
	{text: `{"users":[{"name":"U","password":"x","tags":""},{"name":"U","password":"y","tags":""}]}`, refused: true},
	{text: `{"users":[{"name":"U","password":"x"}]}`, refused: true},
	{text: `{"users":[{"name":"U","password":null,"tags":""}]}`, refused: true},
	{text: `{"permissions":[{"user":"U","vhost":"V","configure":"","write":"","read":""}]}`, refused: true},
	{text: `{"permissions":[{"user":"guest","vhost":"V","configure":"^(?!amq\\.)","write":"","read":""}]}`},
	{text: `{"permissions":[{"user":"guest","vhost":"V","configure":"(","write":"","read":""}]}`, refused: true},
	{text: `{"permissions":[{"user":"guest","vhost":"V","configure":"","write":""}]}`, refused: true},
	{text: "\ufeff" + `{"queues":[` + queueQ + `]}`, queues: []string{"q"}},
	{text: `{"queues":[` + queueQ + `,{"name":"amq.x","vhost":"V","durable":true,"arguments":{}}]}`, queues: []string{"q"}},
	{text: `{"queues":[{"name":"amq.x","vhost":"V","durable":true}],"bindings":[` + bindingOf("amq.topic", "queue", "amq.x") + `]}`, refused: true},
	{text: `{"queues":[{"name":"q","vhost":"V","durable":true,"type":"quorum"}]}`, queues: []string{"q"}},
	{text: `{"queues":[{"name":"q","vhost":"V","durable":true,"type":7}]}`, queues: []string{"q"}},
	{text: `{"queues":[{"name":"q","vhost":"V","durable":true,"arguments":null}]}`, refused: true},
	{text: `{"queues":[{"name":"q","vhost":"V","durable":true,"arguments":{"n":null}}]}`, refused: true},
	{text: `{"queues":[{"name":"q","vhost":"W","durable":true}]}`, refused: true},
	{text: `{"queues":[{"name":"q","vhost":"V","durable":"true"}]}`, refused: true},
	{text: `{"queues":[{"name":"q","vhost":"V","durable":true,"auto_delete":null}]}`, refused: true},
	{text: `{"exchanges":[{"name":"x","vhost":"V","type":"fanout","durable":"true","auto_delete":null}]}`},
	{text: `{"queues":[{"vhost":"V","durable":true}]}`, refused: true},
	{text: `{"queues":[` + queueQ + `],"bindings":[` + bindingOf("", "queue", "q") + `]}`, queues: []string{"q"}},
	{text: `{"bindings":[` + bindingOf("", "queue", "missing") + `]}`, refused: true},
	{text: `{"bindings":[` + bindingOf("amq.topic", "queue", "missing") + `]}`, refused: true},
	{text: `{"bindings":[` + bindingOf("missing", "exchange", "amq.topic") + `]}`, refused: true},
	{text: `{"bindings":[` + bindingOf("amq.topic", "exchange", "missing") + `]}`, refused: true},
	{text: `{"bindings":[` + bindingOf("amq.topic", "exchange", "amq.fanout") + `]}`, bindings: 1},
	{text: `{"bindings":[` + bindingOf("amq.topic", "stream", "amq.fanout") + `]}`, refused: true},
	{text: `{"bindings":[{"source":"amq.topic","vhost":"V","destination_type":"exchange","destination":"amq.fanout"}]}`, refused: true},
	{text: `{"exchanges":[{"name":"x","vhost":"V","durable":true}]}`, refused: true},
	{text: `{"exchanges":[{"name":"x","vhost":"V","type":"","durable":true}]}`, refused: true},
	{text: `{"exchanges":[{"name":"x","vhost":"V","type":"nosuch","durable":true}]}`, refused: true},
	{text: `{"exchanges":[{"name":"amq.direct","vhost":"V","type":"topic","durable":true}]}`},
	{text: declared("x-modulus-hash", "quorum", "k"), queues: []string{"q"}, bindings: 1},
	{text: declared("x-local-random", "classic", ""), queues: []string{"q"}, bindings: 1},
	{text: declared("x-local-random", "classic", "k"), refused: true},
	{text: declared("x-local-random", "quorum", ""), refused: true},
	{text: `{"Queues":[` + queueQ + `]}`},
	{text: `{"queues":null}`, refused: true},
	{text: `{"queues":{}}`, refused: true},
	{text: `{"queues":[null]}`, refused: true},
	{text: `{"queues":["q"]}`, refused: true},
	{text: `[]`, refused: true},
	{text: `null`, refused: true},
	{text: `{"queues":[]} x`, refused: true},
}

// importer imports documents into a broker.
type importer struct {
	*target
	vhost, missing, user string
}

func newImporter(t *testing.T, b *target) *importer {
	i := &importer{target: b, vhost: testkit.Name(t, "import"), missing: testkit.Name(t, "missing"), user: testkit.Name(t, "user")}
	t.Cleanup(func() { i.reset(t) })
	return i
}

func (i *importer) reset(t *testing.T) {
	for _, path := range []string{"vhosts/" + i.vhost, "vhosts/" + i.missing, "users/" + i.user} {
		i.call(t, "DELETE", "/api/"+path, "")
	}
}

// run imports a document into a new virtual host. It returns whether the broker refused the document, and the names of the
// queues and the number of the bindings.
func (i *importer) run(t *testing.T, text string) (refused bool, queues []string, bindings int, answer string) {
	t.Helper()
	i.reset(t)
	i.must(t, "PUT", "/api/vhosts/"+i.vhost, "")
	i.must(t, "PUT", "/api/queues/"+i.vhost+"/before", `{"durable":true}`)
	status, answer := i.call(t, "POST", "/api/definitions", strings.NewReplacer(`"V"`, `"`+i.vhost+`"`, `"W"`, `"`+i.missing+`"`, `"U"`, `"`+i.user+`"`).Replace(text))
	topology := topologyOf(t, i.target, i.vhost)
	for _, q := range topology["queues"] {
		if name := q.(map[string]any)["name"].(string); name != "before" {
			queues = append(queues, name)
		}
	}
	for _, b := range topology["bindings"] {
		if b.(map[string]any)["source"] != "" { // RabbitMQ also stores bindings to the default exchange, which have no effect
			bindings++
		}
	}
	return status/100 != 2, queues, bindings, answer
}

// Both brokers accept and refuse the same definitions.
func TestImportAcceptsDefinitionsAsRabbitMQ(t *testing.T) {
	both(t, func(t *testing.T, b *target) {
		i := newImporter(t, b)
		for _, c := range importCases {
			refused, queues, bindings, answer := i.run(t, c.text)
			if refused != c.refused || !c.refused && (!slices.Equal(queues, c.queues) || bindings != c.bindings) {
				t.Errorf("%s\ngot  refused %v, queues %q, %d bindings: %s\nwant refused %v, queues %q, %d bindings",
					c.text, refused, queues, bindings, answer, c.refused, c.queues, c.bindings)
			}
		}
	})
}

// A refused import changes nothing, and its error names each invalid object.
func TestRefusedImportChangesNothing(t *testing.T) {
	b := embedded(t, broker.Config{})
	b.must(t, "PUT", "/api/queues/%2F/before", `{"durable":true}`)
	exported := func() string { return b.must(t, "GET", "/api/definitions", "") }
	before := exported()
	status, text := b.call(t, "POST", "/api/definitions", `{
		"users":[{"name":"guest","password":"other","tags":[]},{"name":"new","password":"x","tags":"","limits":{"max-channels":"1"}}],
		"vhosts":[{"name":"new"},{"name":"/","description":"changed"}],
		"permissions":[{"user":"guest","vhost":"new","configure":"","write":"","read":""},{"user":"nobody","vhost":"/","configure":"","write":"","read":""}],
		"queues":[{"name":"q","vhost":"new"},{"name":"bad","vhost":"/","arguments":{"x-message-ttl":-1}}],
		"exchanges":[{"name":"x","vhost":"/","type":"topic"},{"name":"y","vhost":"/","type":"nosuch"}],
		"bindings":[
			{"source":"x","vhost":"/","destination_type":"queue","destination":"one","routing_key":"","arguments":{}},
			{"source":"x","vhost":"/","destination_type":"queue","destination":"before","routing_key":"","arguments":{}},
			{"source":"none","vhost":"new","destination_type":"queue","destination":"q","routing_key":"","arguments":{}}],
		"policies":[{"name":"p","vhost":"/","pattern":".*","definition":{}}]
	}`)
	if after := exported(); after != before {
		t.Errorf("refused import changed the broker:\ngot  %s\nwant %s", after, before)
	}
	var body struct{ Reason string }
	must(t, json.Unmarshal([]byte(text), &body))
	for _, want := range []string{`user "new"`, `user "nobody"`, `queue "bad"`, `exchange "y"`, `"one"`, "'none'", `policy "p"`} {
		if status != 400 || !strings.Contains(body.Reason, want) {
			t.Errorf("got %d %s, want 400 …%s…", status, text, want)
		}
	}
	if strings.Contains(text, "other") {
		t.Errorf("error contains a password: %s", text)
	}
}

// Mutations of valid definitions: each is a path to a field of the document, and values to put there.
var mutations = map[string][]string{
	"users/0/name": {`null`, `1`}, "users/0/tags": {`"a,b"`, `["a"]`, `null`, `7`}, "users/0/password": {`""`, `null`, `[]`},
	"users/0/limits": {`{ }`, `{"max-channels":-1}`, `{"max-channels":5,"max-connections":0}`, `{"max-channels":"5"}`, `{"max-queues":5}`, `[1]`, `null`, `5`}, "users/0": {`null`, `"x"`, `{}`}, "users": {`[]`, `{}`, `null`},
	"vhosts/0/name": {`null`, `3`}, "vhosts/0/limits": {`{ }`, `[]`, `{"max-queues":-1}`, `{"max-queues":0}`, `null`}, "vhosts/0/metadata": {`{}`, `null`, `{"tags":["a"]}`},
	"permissions/0/user": {`"nobody-here"`, `null`, `1`}, "permissions/0/vhost": {`"nowhere"`, `null`}, "permissions/0/configure": {`"("`, `"(?=a)"`, `null`, `1`, `""`},
	"queues/0/name": {`"amq.q"`, `null`, `5`}, "queues/0/vhost": {`"nowhere"`, `null`, `5`}, "queues/0/type": {`"quorum"`, `"other"`, `null`, `3`},
	"queues/0/arguments":   {`{}`, `[]`, `null`, `"x"`, `{"x-message-ttl":5}`, `{"x-message-ttl":-5}`, `{"x-message-ttl":"5"}`, `{"x-queue-type":"nosuch"}`, `{"x-queue-type":"quorum"}`, `{"x-max-priority":999}`, `{"n":null}`, `{"n":[1,{"a":"b"}]}`},
	"queues/0/auto_delete": {`true`, `false`, `"true"`, `null`, `1`}, "queues/0/durable": {`true`, `"true"`, `null`, `1`},
	"exchanges/0/durable": {`false`, `"true"`, `null`, `1`}, "exchanges/0/auto_delete": {`true`, `"false"`, `null`, `1`},
	"policies": {`[]`, `null`, `{}`}, "policies/0/name": {`null`, `5`, `""`}, "policies/0/pattern": {`"("`, `"(?=q)"`, `""`, `null`, `5`}, "policies/0/apply-to": {`"queues"`, `"none"`, `null`, `5`},
	"policies/0/priority": {`-1`, `1.5`, `"7"`, `null`}, "policies/0/definition": {`{}`, `{"max-length":"5"}`, `{"alternate-exchange":"amq.fanout"}`, `{"nosuch":1}`, `{"max-length":0,"expires":1000000}`}, "policies/0/vhost": {`"nowhere"`, `null`},
	"parameters/0/value": {`{"pattern":"x","definition":{"dead-letter-exchange":"x"},"priority":0}`, `{"pattern":"x","priority":0}`, `{"pattern":"x","definition":{"max-length":1},"priority":0,"apply-to":"exchanges"}`},
	"parameters":         {`[]`, `null`}, "parameters/1": {`null`, `[]`, `{}`},
	"parameters/1/vhost": {`"nowhere"`, `null`}, "parameters/1/component": {`"nosuch"`, `"policy"`, `null`, `5`},
	"parameters/1/value": {`{"max-queues":1}`, `{"max-queues":-1,"max-connections":1}`, `{"max-queues":1.5}`, `{"max-queues":"1"}`, `{"max-channels":1}`, `{}`, `[]`, `[1]`, `null`, `"x"`, `5`},
	"global_parameters":  {`[]`, `null`}, "topic_permissions": {`[]`, `null`}, "topic_permissions/0": {`null`, `{}`},
	"topic_permissions/0/user": {`"nobody-here"`, `null`, `1`}, "topic_permissions/0/vhost": {`"nowhere"`, `null`},
	"topic_permissions/0/exchange": {`"nosuch"`, `""`, `"amq.direct"`, `null`, `1`}, "topic_permissions/0/write": {`"("`, `""`, `null`, `1`},
	"vhosts": {`[]`, `null`}, "permissions": {`[]`, `null`}, "exchanges": {`[]`, `null`}, "rabbit_version": {`"3.6.0"`, `null`, `5`, `""`},
	"vhosts/0/description": {`"d"`, `null`, `5`}, "vhosts/0/tags": {`["a"]`, `"a,b"`, `null`, `5`}, "vhosts/0/default_queue_type": {`"classic"`, `null`, `"undefined"`},
	"users/0/password_hash": {`""`, `null`, `"x"`, `5`}, "users/0/hashing_algorithm": {`"rabbit_password_hashing_sha256"`, `null`, `"nosuch"`},
	"exchanges/0/name": {`"amq.new"`, `""`, `"amq.direct"`}, "exchanges/0/type": {`"nosuch"`, `""`, `null`, `"headers"`, `"x-local-random"`, `"x-modulus-hash"`, `2`}, "exchanges/0/vhost": {`"nowhere"`, `null`},
	"exchanges/0/internal": {`true`}, "exchanges/0/arguments": {`{}`, `null`, `{"alternate-exchange":"y"}`, `{"n":null}`},
	"bindings/0/source": {`""`, `"nosuch"`, `null`, `4`}, "bindings/0/destination": {`"nosuch"`, `null`, `4`}, "bindings/0/destination_type": {`"exchange"`, `"nosuch"`, `null`},
	"bindings/0/routing_key": {`""`, `null`, `4`}, "bindings/0/arguments": {`{}`, `[]`, `null`, `{"x-match":"any"}`, `{"n":null}`}, "bindings/0/vhost": {`"nowhere"`, `null`},
	"bindings/0": {`null`, `[]`, `{}`}, "unknown": {`[]`, `{}`, `1`}, "queues": {`[]`, `null`, `"x"`}, "bindings": {`[]`, `null`},
}

// mutate puts a value at a path, or removes the field if value is "".
func mutate(document map[string]any, path, value string) {
	var v any
	if value != "" {
		_ = json.Unmarshal([]byte(value), &v)
	}
	parts := strings.Split(path, "/")
	list, _ := document[parts[0]].([]any)
	if len(parts) > 1 && len(list) > 1 && parts[1] == "1" {
		list = list[1:]
	}
	switch {
	case len(parts) == 1 && value == "":
		delete(document, parts[0])
	case len(parts) == 1:
		document[parts[0]] = v
	case len(list) == 0:
	case len(parts) == 2:
		list[0] = v
	default:
		if object, ok := list[0].(map[string]any); ok && value == "" {
			delete(object, parts[2])
		} else if ok {
			object[parts[2]] = v
		}
	}
}

const validDefinitions = `{
	"users":[{"name":"U","password":"x","tags":"management"}], "vhosts":[{"name":"V"}],
	"permissions":[{"user":"U","vhost":"V","configure":".*","write":".*","read":".*"}],
	"queues":[{"name":"q","vhost":"V","durable":true,"auto_delete":false,"arguments":{"x-queue-type":"classic"}}],
	"exchanges":[{"name":"x","vhost":"V","type":"topic","durable":true,"auto_delete":false,"internal":false,"arguments":{}}],
	"bindings":[{"source":"x","vhost":"V","destination":"q","destination_type":"queue","routing_key":"k","arguments":{}}],
	"topic_permissions":[{"user":"U","vhost":"V","exchange":"x","write":"^a","read":"{username}"}],
	"policies":[{"name":"p","vhost":"V","pattern":"^q","apply-to":"all","definition":{"max-length":5},"priority":1}],
	"parameters":[{"component":"operator_policy","name":"o","vhost":"V","value":{"pattern":"","apply-to":"all","definition":{"message-ttl":900000},"priority":0}},
		{"component":"vhost-limits","vhost":"V","name":"limits","value":{"max-connections":10,"max-queues":5}}]
}`

// For mutated definitions, both brokers give the same verdict and create the same objects. A refused import creates none.
// The embedded broker may also refuse a document that RabbitMQ accepts, if RabbitMQ would store a value of the wrong type.
//
// The seed is fixed so that a run does not depend on chance. To compare other documents:
//
//	go test ./broker/internal/managementtest -run TestImportVerdicts -timeout 0 -rapid.checks=3000 -rapid.seed=$RANDOM
func TestImportVerdictsAreThoseOfRabbitMQ(t *testing.T) {
	flags.Default(t, "rapid.seed", "1")
	theirs, ours := newImporter(t, rabbitMQ(t)), newImporter(t, embedded(t, broker.Config{}))
	paths := slices.Sorted(maps.Keys(mutations))
	rapid.Check(t, func(r *rapid.T) {
		var document map[string]any
		must(t, json.Unmarshal([]byte(validDefinitions), &document))
		stricter := false
		for _, path := range rapid.SliceOfNDistinct(rapid.SampledFrom(paths), 1, 2, rapid.ID[string]).Draw(r, "paths") {
			value := rapid.SampledFrom(append(mutations[path], "")).Draw(r, path)
			mutate(document, path, value)
			stricter = stricter || slices.Contains(wrongTypes, path+"="+value)
		}
		text, err := json.Marshal(document)
		must(t, err)
		refusedThere, queuesThere, bindingsThere, answerThere := theirs.run(t, string(text))
		refused, queues, bindings, answer := ours.run(t, string(text))
		if refused {
			for _, path := range []string{"users/" + ours.user, "exchanges/" + ours.vhost + "/x", "queues/" + ours.vhost + "/q"} {
				if status, _ := ours.call(t, "GET", "/api/"+path, ""); status != 404 {
					r.Fatalf("%s\nrefused import created %s", text, path)
				}
			}
		}
		switch {
		case refused && stricter, refused && refusedThere:
		case refused != refusedThere || !slices.Equal(queues, queuesThere) || bindings != bindingsThere:
			r.Fatalf("%s\ngot  refused %v, queues %q, %d bindings: %s\nwant refused %v, queues %q, %d bindings: %s",
				text, refused, queues, bindings, answer, refusedThere, queuesThere, bindingsThere, answerThere)
		}
	})
}

// wrongTypes lists the mutations that RabbitMQ accepts although they have the wrong type.
// It ignores a parameter that is not an object. (Without a name, a limit would break the virtual host there.)
// It stores a routing key of null or "undefined", unless the type of the exchange reads the key.
var wrongTypes = []string{
	`exchanges/0/name=`, `exchanges/0/durable=1`, `exchanges/0/auto_delete=1`, `vhosts/0/description=5`,
	`policies/0/name=null`, `policies/0/name=5`, `parameters/1=null`, `parameters/1=[]`,
	`bindings/0/routing_key=null`, `bindings/0/routing_key=`,
}
