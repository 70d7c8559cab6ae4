package management

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

	"github.com/reprisemq/reprise/broker/internal/exception"
	"github.com/reprisemq/reprise/broker/internal/node"
	"github.com/reprisemq/reprise/broker/internal/vhost"
)

// definitions contains the lists of a definitions file by name, as JSON that is not yet decoded. Import decodes the
// lists element by element, because decoded elements need much more memory than encoded elements.
type definitions map[string]json.RawMessage

// parseDefinitions decodes a definitions file, which must be a JSON object. Other fields than lists of objects describe
// the origin of the definitions.
func parseDefinitions(text []byte) (d definitions, err error) {
	text = bytes.TrimPrefix(text, []byte("\ufeff")) // editors on Windows write a byte order mark
	if json.Unmarshal(text, &d) != nil || d == nil {
		return nil, badRequest("failed_to_parse_json")
	}
	if name := repeated(json.NewDecoder(bytes.NewReader(text)), make([]string, 0, 64)); name != "" {
		return nil, badRequest(fmt.Sprintf("%q must not occur twice in an object (nothing was imported)", name))
	}
	return d, nil
}

// repeated returns a name that an object in the next value contains twice, or "". The value is valid JSON. RabbitMQ ignores
// the second value, and with it perhaps a list of queues. The names of the enclosing objects are in outer.
func repeated(d *json.Decoder, outer []string) string {
	token, _ := d.Token()
	if token != json.Delim('[') && token != json.Delim('{') {
		return ""
	}
	names := outer // appends overwrite the names of objects that ended
	for d.More() {
		if token == json.Delim('{') {
			name, _ := d.Token()
			names = append(names, name.(string))
		}
		if name := repeated(d, names); name != "" {
			return name
		}
	}
	_, _ = d.Token() // the end
	names = names[len(outer):]
	slices.Sort(names)
	for i := range names {
		if i > 0 && names[i] == names[i-1] {
			return names[i]
		}
	}
	return ""
}

func postDefinitions(c *call, where func() (*vhost.VHost, error)) (any, error) {
	body, err := io.ReadAll(c.Body)
	if err != nil {
		return nil, wrongBody(err)
	}
	if len(body) == 0 {
		body = []byte("{}")
	}
	d, err := parseDefinitions(body)
	if err != nil {
		return nil, err
	}
	into, err := where()
	if err != nil {
		return nil, err
	}
	return done{}, d.apply(importer{node: c.node, into: into, creator: c.user.Name, log: c.h.log})
}

// Import adds the objects in a RabbitMQ definitions file to a node. It replaces users and permissions that already
// exist, sets policies and parameters, and updates the descriptions and tags of virtual hosts. As in RabbitMQ, the limits of a
// virtual host are a parameter, and its field limits has no effect. Import does not change queues, exchanges or bindings that
// already exist. If the definitions contain an invalid or unsupported object, Import makes no changes,
// and returns an error that lists these objects.
func Import(n *node.Node, text []byte, log *slog.Logger) error {
	d, err := parseDefinitions(text)
	if err == nil {
		err = d.apply(importer{node: n, log: log})
	}
	if f, ok := err.(*failure); ok {
		return fmt.Errorf("definitions: %v", f.reason)
	}
	return err
}

// importer adds definitions to a node.
type importer struct {
	node    *node.Node
	into    *vhost.VHost // destination of all exchanges, queues and bindings; nil: according to the definitions
	creator string       // user who gets all permissions in new virtual hosts; "": none
	log     *slog.Logger

	users, vhosts map[string]bool // names in the definitions
	problems      []string        // without duplicates
}

// maxProblems is the maximum number of problems in an error.
const maxProblems = 50

// problem records why an object cannot be imported.
func (im *importer) problem(text string) {
	if !slices.Contains(im.problems, text) {
		im.problems = append(im.problems, text)
	}
}

// full reports whether there are so many problems that it is useless to look for more.
func (im *importer) full() bool { return len(im.problems) >= maxProblems }

// err returns all problems as one error.
func (im *importer) err() error {
	if im.full() {
		im.problem("there may be further problems")
	}
	if len(im.problems) == 0 {
		return nil
	}
	return badRequest(strings.Join(im.problems, "; "))
}

// apply adds the definitions to a node. It first adds them to a copy of the node, so that definitions with a problem
// change nothing.
func (d definitions) apply(im importer) error {
	trial := im
	trial.node = im.node.Trial()
	defer trial.node.Close()
	trial.log = slog.New(slog.DiscardHandler)
	if im.into != nil {
		trial.into = trial.node.VHost(im.into.Name())
	}
	d.add(&trial)
	if err := trial.err(); err != nil {
		return err
	}
	d.add(&im)
	return im.err() // only if the node has changed since, for example if a limit is reached
}

// add adds the supported objects.
func (d definitions) add(im *importer) {
	im.users, im.vhosts = make(map[string]bool), make(map[string]bool)
	if im.into == nil {
		each(d, im, "users", im.addUser, "name")
		each(d, im, "vhosts", im.addVHost, "name")
		each(d, im, "permissions", im.addPermission, "user", "vhost", "configure", "write", "read")
		each(d, im, "global_parameters", im.addGlobalParameter, "name")
	}
	located := []string{"vhost"}
	if im.into != nil {
		located = nil
	}
	each(d, im, "policies", im.addPolicy, append(located, "name", "pattern", "definition")...)
	each(d, im, "parameters", im.addParameter, append(located, "component", "name", "value")...)
	each(d, im, "exchanges", im.addExchange, append(located, "name", "type")...)
	if im.into == nil {
		each(d, im, "topic_permissions", im.addTopicPermission, "user", "vhost", "exchange", "write", "read")
	}
	each(d, im, "queues", im.addQueue, append(located, "name")...)
	each(d, im, "bindings", im.addBinding, append(located, "source", "destination", "destination_type", "routing_key")...)
}

// notNull lists the fields that an object may omit, but must not set to null.
var notNull = []string{"arguments", "password", "password_hash", "apply-to", "priority"}

// each calls add for each element of a list. It records a problem for each element that is not an object of type T, or
// lacks one of the needed fields. The argument of add is valid only during the call.
func each[T any](d definitions, im *importer, list string, add func(*T) error, needed ...string) {
	text, given := d[list]
	if !given {
		return
	}
	if text[0] != '[' {
		im.problem(list + " must be a list")
		return
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	_, _ = decoder.Token() // skip the bracket
	element := new(T)
	var raw json.RawMessage
	for i := 0; decoder.More() && !im.full(); i++ {
		_ = decoder.Decode(&raw) // cannot fail, because the definitions are valid JSON
		*element = *new(T)
		if err := decodeObject(raw, element, needed); err != nil {
			im.problem(fmt.Sprintf("%s[%d]: %v", list, i, err))
		} else if err := add(element); err != nil {
			im.problem(reasonOf(err))
		}
	}
}

// decodeObject decodes an element of a list. Its errors do not contain values, because they may be passwords.
func decodeObject(raw json.RawMessage, object any, needed []string) error {
	var given map[string]json.RawMessage
	if json.Unmarshal(raw, &given) != nil || given == nil {
		return errors.New("element must be an object")
	}
	for _, name := range slices.Concat(needed, notNull) {
		if value, ok := given[name]; string(value) == "null" || !ok && slices.Contains(needed, name) {
			return errors.New(name + " is missing")
		}
	}
	err := json.Unmarshal(raw, object)
	if at, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("%s is a %s and should be a %s", at.Field[strings.LastIndex(at.Field, ".")+1:], at.Value, jsonName(at.Type))
	}
	if err != nil {
		return errors.New(reasonOf(err))
	}
	return nil
}

// reasonOf returns the reason of an error as text.
func reasonOf(err error) string {
	reason := failureOf(err).reason
	if e, ok := errors.AsType[*exception.Error](err); ok {
		reason = e.Text // which is more specific than "Access refused."
	}
	if text, ok := reason.(string); ok {
		return text
	}
	encoded, _ := json.Marshal(reason)
	return string(encoded)
}

// withObject adds to err the name of the object that caused the error.
func withObject(what, name string, err error) error {
	if err == nil {
		return nil
	}
	return badRequest(fmt.Sprintf("%s %q: %s", what, name, reasonOf(err)))
}

type importedUser struct {
	Name string `json:"name"`
	userSettings
}

type importedVHost struct {
	Name string `json:"name"`
	vhostSettings
	Metadata *vhostSettings `json:"metadata"`
}

// settings returns the metadata. In exports from RabbitMQ before 3.8, the metadata fields are on the same level as the
// name.
func (v *importedVHost) settings() *vhostSettings {
	if v.Metadata != nil {
		return v.Metadata
	}
	return &v.vhostSettings
}

// importedQueue is a queue. As in RabbitMQ, only the argument x-queue-type determines its type.
type importedQueue struct {
	Name  string `json:"name"`
	VHost string `json:"vhost"`
	queueSettings
	Durable    exactFlag `json:"durable"`
	AutoDelete exactFlag `json:"auto_delete"`
}

// exactFlag is a boolean that may be missing. Unlike a flag, it cannot be null or a string.
type exactFlag struct{ set, value bool }

// UnmarshalJSON implements [json.Unmarshaler].
func (f *exactFlag) UnmarshalJSON(b []byte) error {
	*f = exactFlag{true, string(b) == "true"}
	if !f.value && string(b) != "false" {
		return badRequest([]any{"not_boolean", json.RawMessage(b)})
	}
	return nil
}

type importedExchange struct {
	Name  string `json:"name"`
	VHost string `json:"vhost"`
	exchangeSettings
	Durable *flag `json:"durable"` // nil if the field is missing
}

type importedBinding struct {
	Source          string    `json:"source"`
	VHost           string    `json:"vhost"`
	Destination     string    `json:"destination"`
	DestinationType string    `json:"destination_type"`
	RoutingKey      string    `json:"routing_key"`
	Arguments       arguments `json:"arguments"`
}
