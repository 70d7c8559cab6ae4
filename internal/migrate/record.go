package migrate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/reprisemq/reprise/internal/mgmtapi"
	"github.com/reprisemq/reprise/internal/retry"
	"github.com/reprisemq/reprise/topology"
)

// record describes a migration. The broker keeps it as an argument of an exchange to which nothing is published.
type record struct {
	Queue      string         `json:"queue"`
	To         string         `json:"to"`
	Args       topology.Table `json:"arguments"`
	Transient  bool           `json:"transient,omitempty"`
	Ordered    bool           `json:"ordered,omitempty"`
	Disconnect bool           `json:"disconnect,omitempty"`
	ByName     bool           `json:"by_name,omitempty"`   // programs have published by the name of the queue
	Unseen     bool           `json:"unseen,omitempty"`    // the broker does not tell whether programs do
	Delete     bool           `json:"delete,omitempty"`    // the user has told that none does any more
	Unlimited  bool           `json:"unlimited,omitempty"` // the holding queue needs x-delivery-limit to be unlimited
	Dead       topology.Table `json:"dead,omitempty"`      // arguments of the holding queue about its dead letters
}

const recordArgument = "x-reprise-migration"

func (r record) exchange() topology.Exchange {
	text, err := json.Marshal(r)
	if err != nil {
		text = nil // impossible: arguments come from JSON or from flags
	}
	return topology.Exchange{Name: RecordPrefix + r.Queue, Kind: "direct", Args: topology.Table{recordArgument: string(text)}}
}

// mover returns the exchange through which messages move, because a message that is published by the name of a queue loses its
// routing key. It routes all messages to one queue.
func (r record) mover() topology.Exchange {
	return topology.Exchange{Name: movePrefix + r.Queue, Kind: "fanout"}
}

func (r record) wanted() topology.Queue {
	return topology.Queue{Name: r.To, Transient: r.Transient, Args: maps.Clone(r.Args)}
}

// hold returns the queue that holds the messages while the name is kept. It has no limits, and no TTL, but the dead letters of the
// wanted queue, because messages with an expiration expire also here. Such messages wait for a retry in several designs.
func (r record) hold() topology.Queue {
	args := topology.Table{}
	maps.Copy(args, r.Dead)
	if kind := kindOf(r.Args); kind != "classic" {
		args[queueType] = kind
		if r.Unlimited {
			args[deliveryLimit] = int64(-1)
		}
	}
	return topology.Queue{Name: r.Queue + holding, Args: args}
}

// conflict returns an error if a change differs from the recorded change. A change without arguments continues every
// migration.
func (r record) conflict(c Change) error {
	same := r.To == cmp.Or(c.To, c.Queue) || c.To == "" && len(c.Set)+len(c.Unset) == 0
	for k, v := range c.Set {
		same = same && equal(r.Args[k], v)
	}
	for _, k := range c.Unset {
		_, found := r.Args[k]
		same = same && (!found || k == queueType) // a queue keeps its type
	}
	if same {
		return nil
	}
	return fmt.Errorf("another migration of queue %q was interrupted, to %q with %s (continue it first, without flags for the queue)", r.Queue, r.To, describe(r.Args))
}

// journal contains the entries of a migration. An entry is the key of a binding from the exchange of the record, to which
// nothing is published, to the exchange of the mover. There are these entries:
//
//	run/ID/N          a run has begun to move messages in batches of N, and has not ended the transfer
//	rebind/QUEUE      bindings are being moved to the queue
//	overlap/QUEUE/N   N messages may have reached both queues while their bindings were moved to the queue
//	limit/N           limit of connections before the pause; none: no limit
type journal []string

// duplicates returns the maximum number of duplicates. An interrupted run has duplicated at most the messages of one batch.
func (j journal) duplicates() (n int64) {
	for _, entry := range j {
		if kind, _, _ := strings.Cut(entry, "/"); kind == "run" || kind == "overlap" {
			count, _ := strconv.ParseInt(entry[strings.LastIndex(entry, "/")+1:], 10, 64)
			n += count
		}
	}
	return n
}

func (j journal) has(entry string) bool {
	return slices.Contains(j, entry)
}

// broker reads the state of a broker.
type broker struct{ api mgmtapi.API }

// queue is a queue on the broker.
type queue struct {
	Name                           string
	Found                          bool
	Kind                           string
	Durable, AutoDelete, Exclusive bool
	Args                           topology.Table
	Policy                         string
	Effective                      topology.Table // definition of the policies
	Ready, Unacked                 int64
	Held                           int64    // delayed for a retry, or dead-lettered and not confirmed: no consumer receives them
	Counted                        bool     // whether the counts are known: RabbitMQ has none until it has collected them
	Consumers                      []string // connections of the consumers
	ByName                         bool     // messages were published by the name of the queue
	Published                      bool     // messages were published to the queue
}

type object = mgmtapi.Field[map[string]any]

// table converts JSON to arguments. Integers become int64.
func table(from object) topology.Table {
	t := topology.Table{}
	for k, v := range from.Value {
		t[k] = integral(v)
	}
	return t
}

func integral(v any) any {
	if n, ok := mgmtapi.Integer(v); ok {
		return n
	}
	return v
}

func equal(a, b any) bool { return reflect.DeepEqual(integral(a), integral(b)) }

func missing(err error) bool {
	status, ok := errors.AsType[*mgmtapi.StatusError](err)
	return ok && status.Code == http.StatusNotFound
}

func (b broker) path(kind, name string) string {
	return kind + b.api.Within() + "/" + url.PathEscape(name)
}

// get requests an object of the management API. It repeats the request after an internal error, which RabbitMQ 3.10 returns while it
// deletes an object.
func (b broker) get(ctx context.Context, path string, into any) (err error) {
	for range 5 {
		err = b.api.Get(ctx, path, into)
		status, ok := errors.AsType[*mgmtapi.StatusError](err)
		if !ok || status.Code != http.StatusInternalServerError || retry.Sleep(ctx, poll) != nil {
			return err
		}
	}
	return err
}

// queue reads a queue.
func (b broker) queue(ctx context.Context, name string) (*queue, error) {
	var answer mgmtapi.Field[struct {
		Name       string                `json:"name"`
		Type       string                `json:"type"`
		Durable    bool                  `json:"durable"`
		AutoDelete bool                  `json:"auto_delete"`
		Exclusive  bool                  `json:"exclusive"`
		Args       object                `json:"arguments"`
		Policy     mgmtapi.Field[string] `json:"policy"`
		Effective  object                `json:"effective_policy_definition"`
		Ready      mgmtapi.Field[int64]  `json:"messages_ready"`
		Unacked    mgmtapi.Field[int64]  `json:"messages_unacknowledged"`
		Delayed    mgmtapi.Field[int64]  `json:"messages_delayed"`
		Dead       mgmtapi.Field[int64]  `json:"messages_dlx"`
		Consumers  []mgmtapi.Field[struct {
			Channel mgmtapi.Field[struct {
				Connection string `json:"connection_name"`
			}] `json:"channel_details"`
		}] `json:"consumer_details"`
		Incoming []mgmtapi.Field[struct {
			Exchange struct {
				Name string `json:"name"`
			} `json:"exchange"`
			Stats struct {
				Publish int64 `json:"publish"`
			} `json:"stats"`
		}] `json:"incoming"`
		Stats mgmtapi.Field[struct {
			Publish int64 `json:"publish"`
		}] `json:"message_stats"`
	}]
	err := b.get(ctx, b.path("queues", name), &answer)
	q := answer.Value
	switch {
	case missing(err), err == nil && answer.Known && q.Name == "": // RabbitMQ 3.10 answers [] during a deletion
		return &queue{Name: name}, nil
	case err != nil:
		return nil, err
	case !answer.Known:
		return nil, fmt.Errorf("the management API describes queue %q in an unknown form", name)
	}
	found := &queue{
		Name: name, Found: true, Kind: q.Type, Durable: q.Durable, AutoDelete: q.AutoDelete, Exclusive: q.Exclusive,
		Args: table(q.Args), Policy: q.Policy.Value, Effective: table(q.Effective),
		Ready: q.Ready.Value, Unacked: q.Unacked.Value, Held: q.Delayed.Value + q.Dead.Value, Counted: q.Ready.Known && q.Unacked.Known,
	}
	if found.Kind == "" {
		found.Kind = kindOf(found.Args)
	}
	found.Published = q.Stats.Value.Publish > 0
	for _, c := range q.Consumers {
		found.Consumers = append(found.Consumers, c.Value.Channel.Value.Connection)
	}
	for _, from := range q.Incoming {
		found.ByName = found.ByName || from.Known && from.Value.Exchange.Name == "" && from.Value.Stats.Publish > 0
	}
	return found, nil
}

// holds reports whether a queue can have messages that no consumer receives: see queue.Held.
func (q *queue) holds() bool {
	strategy, _ := mgmtapi.Effective(q.Kind, q.Args, q.Effective, "dead-letter-strategy")
	retry, _ := mgmtapi.Effective(q.Kind, q.Args, q.Effective, "delayed-retry-type")
	return q.Kind == "quorum" && (strategy == "at-least-once" || retry != nil)
}

func (q *queue) declaration() topology.Queue {
	return topology.Queue{Name: q.Name, Transient: !q.Durable, AutoDelete: q.AutoDelete, Exclusive: q.Exclusive, Args: q.Args}
}

// equals reports whether a queue has the wanted arguments.
func (q *queue) equals(wanted topology.Queue) bool {
	if q.Kind != kindOf(wanted.Args) || q.Durable == wanted.Transient {
		return false
	}
	without := func(args topology.Table) topology.Table {
		args = maps.Clone(args)
		delete(args, queueType)
		for k, v := range args {
			args[k] = integral(v)
		}
		return args
	}
	a, b := without(q.Args), without(wanted.Args)
	return len(a) == len(b) && (len(a) == 0 || reflect.DeepEqual(a, b))
}

// overview reports whether the broker counts messages by their exchange, and its version.
func (b broker) overview(ctx context.Context) (detailed bool, version string, err error) {
	var found struct {
		Mode    string `json:"rates_mode"`
		Version string `json:"rabbitmq_version"`
	}
	err = b.get(ctx, "overview?columns=rates_mode,rabbitmq_version", &found)
	return found.Mode == "detailed", found.Version, err
}

// bindings returns the bindings of a queue, except that of the default exchange and of the mover.
func (b broker) bindings(ctx context.Context, queue string) (all []topology.Binding, err error) {
	var found []struct {
		Source string `json:"source"`
		Key    string `json:"routing_key"`
		Args   object `json:"arguments"`
	}
	err = b.get(ctx, b.path("queues", queue)+"/bindings", &found)
	if missing(err) {
		return nil, nil
	}
	for _, one := range found {
		if one.Source != "" && !strings.HasPrefix(one.Source, movePrefix) {
			all = append(all, topology.Binding{Exchange: one.Source, RoutingKey: one.Key, Queue: queue, Args: table(one.Args)})
		}
	}
	return all, err
}

// record reads the record of a migration.
func (b broker) record(ctx context.Context, queue string) (r record, found bool, err error) {
	var x struct {
		Args object `json:"arguments"`
	}
	err = b.get(ctx, b.path("exchanges", RecordPrefix+queue), &x)
	if missing(err) {
		return r, false, nil
	}
	if err != nil {
		return r, false, err
	}
	text, _ := x.Args.Value[recordArgument].(string)
	if err := json.Unmarshal([]byte(text), &r); err != nil || r.Queue != queue {
		return r, false, fmt.Errorf("exchange %q is not a record of a migration (delete it)", RecordPrefix+queue)
	}
	for _, args := range []topology.Table{r.Args, r.Dead} {
		for k, v := range args {
			args[k] = integral(v)
		}
	}
	return r, true, nil
}

// journal reads the journal of a migration.
func (b broker) journal(ctx context.Context, r record) (j journal, err error) {
	var found []struct {
		Key string `json:"routing_key"`
	}
	err = b.get(ctx, b.path("exchanges", RecordPrefix+r.Queue)+"/bindings/source", &found)
	if missing(err) {
		return nil, nil
	}
	for _, one := range found {
		j = append(j, one.Key)
	}
	return j, err
}

// namedBy returns the queues whose dead letters go to a queue by its name. A binding moves other dead letters.
func (b broker) namedBy(ctx context.Context, name string) (all []string, err error) {
	var found []struct {
		Name      string `json:"name"`
		Args      object `json:"arguments"`
		Effective object `json:"effective_policy_definition"`
	}
	err = b.get(ctx, "queues"+b.api.Within()+"?columns=name,arguments,effective_policy_definition", &found)
	for _, q := range found {
		args, policy := table(q.Args), table(q.Effective)
		exchange, set := mgmtapi.Effective(kindOf(args), args, policy, "dead-letter-exchange")
		key, _ := mgmtapi.Effective(kindOf(args), args, policy, "dead-letter-routing-key")
		if !set || exchange != "" || q.Name == name || q.Name == name+holding {
			continue
		}
		leads := key == name
		if key == nil { // dead letters keep the key with which they reached the queue
			if leads, err = b.receives(ctx, q.Name, name); err != nil {
				return nil, err
			}
		}
		if leads {
			all = append(all, q.Name)
		}
	}
	return all, err
}

// receives reports whether messages with a key may reach a queue through its bindings.
func (b broker) receives(ctx context.Context, queue, key string) (bool, error) {
	bindings, err := b.bindings(ctx, queue)
	return slices.ContainsFunc(bindings, func(one topology.Binding) bool {
		return one.RoutingKey == key || one.RoutingKey == "" || strings.ContainsAny(one.RoutingKey, "*#")
	}), err
}
