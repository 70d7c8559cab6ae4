package drift_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/internal/archive/design"
	"github.com/reprisemq/reprise/internal/doctor"
	"github.com/reprisemq/reprise/internal/drift"
	"github.com/reprisemq/reprise/internal/mgmtapi"
	"github.com/reprisemq/reprise/internal/preset"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/internal/testkit/flags"
	"github.com/reprisemq/reprise/topology"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// strategies are drawn for workers on any queue.
var strategies = []topology.Route{
	topology.Buckets{},
	topology.Levels{},
	topology.MessageTTL{},
	topology.Requeuing{},
	topology.Requeuing{Classic: true},
	topology.DeadLettering{Delay: time.Minute},
	topology.ParkIn{Queue: "dead"},
	topology.ParkIn{Route: topology.Levels{}, Queue: "dead"},
}

// worker draws a worker on an own queue, bound to exchanges that it declares.
func worker(t *rapid.T, queue string) reprise.WorkerConfig {
	w := reprise.WorkerConfig{Queue: queue, Strategy: topology.Strategy{Route: rapid.SampledFrom(strategies).Draw(t, "route")}}
	w.Policy.Backoff = rapid.SampledFrom([]backoff.Backoff{nil, backoff.Fixed(time.Minute), backoff.Exponential{Initial: time.Second, Factor: 3, Max: time.Hour}}).Draw(t, "backoff")
	for i := range rapid.IntRange(0, 3).Draw(t, "bindings") {
		x := topology.Exchange{Name: fmt.Sprintf("x%d", i), Kind: []string{topology.Direct, topology.Topic, topology.Headers}[i], Internal: i == 1}
		b := topology.Binding{Exchange: x.Name, Queue: queue, RoutingKey: rapid.SampledFrom([]string{"", "a.*", "é"}).Draw(t, "key")}
		if x.Kind == topology.Headers {
			x.Args = topology.Table{"alternate-exchange": "amq.fanout"}
			b.Args = topology.Table{"x-match": "any", "n": int32(7), "yes": true}
		}
		w.Topology = w.Topology.Merge(topology.Topology{Exchanges: []topology.Exchange{x}, Bindings: []topology.Binding{b}})
	}
	if rapid.Bool().Draw(t, "plain") {
		w.Topology = w.Topology.Merge(topology.Topology{Queues: []topology.Queue{{Name: "other", Args: topology.Table{"x-max-length": int16(9), "x-unknown": "u"}}}})
	}
	return w
}

// workers draws the workers of a file: of own queues or of a published design.
func workers(t *rapid.T) (all []reprise.WorkerConfig) {
	delay := rapid.SampledFrom([]time.Duration{0, 7 * time.Second}).Draw(t, "delay")
	kind := rapid.SampledFrom([]string{"", "classic", "quorum"}).Draw(t, "type")
	switch rapid.IntRange(0, 7).Draw(t, "design") {
	case 0:
		for _, queue := range []string{preset.CoverArtIndexQueue, preset.CoverArtMoveQueue} {
			all = append(all, reprise.WorkerConfig{Queue: queue, Strategy: preset.CoverArt{RetryDelay: delay, QueueType: kind}.Strategy()})
		}
	case 1:
		for _, queue := range []string{preset.StakingActiveQueue, "v2"} {
			all = append(all, reprise.WorkerConfig{Queue: queue, Strategy: preset.Staking{DelayTTL: delay, QueueType: kind}.Strategy()})
		}
	case 2:
		d := preset.WorkRetry{RetryDelay: delay, QueueType: kind, Kind: rapid.SampledFrom([]string{topology.Direct, topology.Topic}).Draw(t, "kind"), Prefix: "p."}
		all = append(all, reprise.WorkerConfig{Queue: d.Queue(), Strategy: d.Strategy()})
	case 3:
		d := preset.CDNPurge{Queue: "purge", QueueType: kind, WaitArgs: topology.Table{"x-message-ttl": 60000}}
		all = append(all, reprise.WorkerConfig{Queue: d.Queue, Strategy: d.Strategy()})
	default:
		for i := range rapid.IntRange(1, 3).Draw(t, "workers") {
			all = append(all, worker(t, fmt.Sprintf("q%d", i)))
		}
	}
	return all
}

// api is the management API of one virtual host.
type api struct {
	t      *testing.T
	url    string
	vhost  string
	client *http.Client
}

func (a api) request(method, path, body string) {
	a.t.Helper()
	r, err := http.NewRequest(method, a.url+"/api/"+path, strings.NewReader(body))
	if err != nil {
		a.t.Fatal(err)
	}
	r.SetBasicAuth("guest", "guest")
	r.Header.Set("Content-Type", "application/json")
	answer, err := a.client.Do(r)
	if err != nil {
		a.t.Fatal(err)
	}
	defer answer.Body.Close()
	if text, _ := io.ReadAll(answer.Body); answer.StatusCode/100 != 2 {
		a.t.Fatalf("%s %s: %s %s", method, path, answer.Status, text)
	}
}

// compare compares workers with the broker.
func (a api) compare(workers []reprise.WorkerConfig) *drift.Plan {
	a.t.Helper()
	b, err := doctor.Read(a.t.Context(), mgmtapi.API{URL: a.url, User: "guest", Password: "guest", Client: a.client}, a.vhost)
	if err != nil {
		a.t.Fatal(err)
	}
	return drift.Compare(workers, b, a.vhost)
}

// virtualHost creates a virtual host, and returns a client of it.
func virtualHost(t *testing.T, b testkit.Target, url string) (api, *reprise.Client) {
	t.Helper()
	a := api{t, url, testkit.Name(t, "plan"), testkit.HTTPClient(t)}
	a.request("PUT", "vhosts/"+a.vhost, "")
	client, err := reprise.Dial(t.Context(), strings.TrimSuffix(b.URL, "/")+"/"+a.vhost, &reprise.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return a, client
}

func (a api) remove(client *reprise.Client) {
	_ = client.Close(a.t.Context())
	a.request("DELETE", "vhosts/"+a.vhost, "")
}

// declarations returns the declarations of workers.
func declarations(all []reprise.WorkerConfig) (t topology.Topology) {
	return topology.Topology{}.Merge(design.Topologies(all)...)
}

// differences returns the objects of a plan that differ, as status and name.
func differences(p *drift.Plan) (all []string) {
	for _, o := range p.Objects {
		if o.Status != drift.Exists && o.Status != drift.Extra {
			all = append(all, string(o.Status)+" "+o.String())
		}
	}
	slices.Sort(all)
	return all
}

// change removes or alters one object, and returns the expected differences.
func (a api) change(t *rapid.T, client *reprise.Client, declared topology.Topology) (want []string) {
	declare := func(objects topology.Topology) {
		if err := client.Declare(a.t.Context(), objects); err != nil {
			t.Fatal(err)
		}
	}
	in := "/" + url.PathEscape(a.vhost) + "/"
	bound := func(same func(topology.Binding) bool) (t topology.Topology, lines []string) {
		for _, b := range declared.Bindings {
			if same(b) {
				t.Bindings = append(t.Bindings, b)
				lines = append(lines, "create "+drift.OfBinding(b).String())
			}
		}
		return t, lines
	}
	alter := rapid.Bool().Draw(t, "alter")
	n := rapid.IntRange(0, len(declared.Exchanges)+len(declared.Queues)+len(declared.Bindings)-1).Draw(t, "object")
	switch {
	case n < len(declared.Exchanges):
		x := declared.Exchanges[n]
		bindings, lines := bound(func(b topology.Binding) bool { return b.Exchange == x.Name || b.ToExchange == x.Name })
		a.request("DELETE", "exchanges"+in+url.PathEscape(x.Name), "")
		if !alter {
			return append(lines, "create exchange "+x.Name)
		}
		if x.Internal = !x.Internal; rapid.Bool().Draw(t, "kind") {
			x.Kind = topology.Fanout
			x.Internal = !x.Internal
			if declared.Exchanges[n].Kind == topology.Fanout {
				x.Kind = topology.Direct
			}
		}
		bindings.Exchanges = []topology.Exchange{x}
		declare(bindings)
		return []string{"change exchange " + x.Name}
	case n < len(declared.Exchanges)+len(declared.Queues):
		q := declared.Queues[n-len(declared.Exchanges)]
		bindings, lines := bound(func(b topology.Binding) bool { return b.Queue == q.Name })
		a.request("DELETE", "queues"+in+url.PathEscape(q.Name), "")
		if !alter {
			return append(lines, "create queue "+q.Name)
		}
		given := q.IfAbsent
		q.Args = q.Args.Clone()
		q.Args["x-max-length"] = int64(12345)
		bindings.Queues = []topology.Queue{q}
		declare(bindings)
		if given {
			return nil
		}
		return []string{"change queue " + q.Name}
	default:
		b := declared.Bindings[n-len(declared.Exchanges)-len(declared.Queues)]
		a.unbind(b)
		return []string{"create " + drift.OfBinding(b).String()}
	}
}

// unbind deletes all bindings between two objects that have the key of b. There is only one.
func (a api) unbind(b topology.Binding) {
	a.t.Helper()
	pair := fmt.Sprintf("bindings/%s/e/%s/q/%s", url.PathEscape(a.vhost), url.PathEscape(b.Exchange), url.PathEscape(b.Queue))
	var all []struct {
		Key        string `json:"routing_key"`
		Properties string `json:"properties_key"`
	}
	if err := (mgmtapi.API{URL: a.url, User: "guest", Password: "guest", Client: a.client}).Get(a.t.Context(), pair, &all); err != nil {
		a.t.Fatal(err)
	}
	for _, one := range all {
		if one.Key == b.RoutingKey {
			a.request("DELETE", pair+"/"+url.PathEscape(one.Properties), "")
		}
	}
}

// A plan of declared workers has no difference. After one object was removed or altered, it names this object and the bindings
// that were removed with it, and no other. The missing objects can be declared, and then there is no difference again.
func TestPlanNamesTheChangedObject(t *testing.T) {
	testkit.EachManaged(t, func(t *testing.T, b testkit.Target, url string) {
		flags.Default(t, "rapid.checks", map[bool]string{false: "150", true: "8"}[b.IsRabbitMQ])
		rapid.Check(t, func(r *rapid.T) {
			a, client := virtualHost(t, b, url)
			defer a.remove(client)
			all := workers(r)
			declared := declarations(all)
			if err := client.Declare(t.Context(), declared); err != nil {
				r.Fatal(err)
			}
			if p := a.compare(all); p.Differences > 0 || p.Count(drift.Extra) > 0 {
				r.Fatalf("after the declaration: got %+v, want only existing objects", p.Objects)
			}
			want := a.change(r, client, declared)
			slices.Sort(want)
			p := a.compare(all)
			if got := differences(p); !slices.Equal(got, want) || p.Differences != len(want) {
				r.Fatalf("after the change: got %q, want %q", got, want)
			}
			if p.Count(drift.Change) > 0 {
				return
			}
			if err := client.Declare(t.Context(), p.Missing()); err != nil {
				r.Fatal(err)
			}
			if got := differences(a.compare(all)); len(got) > 0 {
				r.Fatalf("after the declaration of missing objects: got %q, want none", got)
			}
		})
	})
}

// A policy that overrides an argument of the file is a difference, and another setting of a policy is a note. The default queue type
// of a virtual host applies to queues without a type.
func TestPlanShowsPoliciesAndDefaultTypes(t *testing.T) {
	testkit.EachManaged(t, func(t *testing.T, b testkit.Target, url string) {
		a, client := virtualHost(t, b, url)
		defer a.remove(client)
		kind := "classic"
		if b.Name != "rabbitmq-3.10" { // has no default types
			kind = "quorum"
			a.request("PUT", "vhosts/"+a.vhost, `{"default_queue_type": "quorum"}`)
		}
		untyped := topology.Queue{Name: "untyped"}
		all := []reprise.WorkerConfig{
			{Queue: "work", Strategy: topology.Strategy{Route: topology.Requeuing{}}},
			{Queue: "other", Topology: topology.Topology{Queues: []topology.Queue{untyped}}},
		}
		if err := client.Declare(t.Context(), declarations(all)); err != nil {
			t.Fatal(err)
		}
		if p := a.compare(all); p.Differences > 0 {
			t.Fatalf("before the policy: got %+v, want no difference", p.Objects)
		}
		a.request("PUT", "policies/"+a.vhost+"/limits", `{"pattern": "^work$", "definition": {"delivery-limit": 3, "max-length": 9}}`)
		testkit.Eventually(t, time.Minute, func() error { // RabbitMQ shows effective policies after up to five seconds
			for _, o := range a.compare(all).Objects {
				if o.Name != "work" {
					continue
				}
				want := []drift.Difference{{Property: "x-delivery-limit", File: int64(100000), Broker: int64(3), Policy: "limits"}}
				if !reflect.DeepEqual(o.Differences, want) || !slices.Contains(o.Notes, "policy limits: x-max-length is 9") || o.Fix != "correct policy limits, or the declaration" {
					return fmt.Errorf("got %+v, want %+v", o, want)
				}
				return nil
			}
			return errors.New("queue work not found")
		})
		other := map[string]string{"classic": "quorum", "quorum": "classic"}[kind]
		a.request("DELETE", "queues/"+a.vhost+"/untyped", "")
		untyped.Args = topology.Table{"x-queue-type": other}
		if err := client.Declare(t.Context(), topology.Topology{Queues: []topology.Queue{untyped}}); err != nil {
			t.Fatal(err)
		}
		for _, o := range a.compare(all).Objects {
			want := []drift.Difference{{Property: "x-queue-type", File: kind, Broker: other}}
			if o.Name == "untyped" && (o.Status != drift.Change || !reflect.DeepEqual(o.Differences, want)) {
				t.Errorf("another type: got %+v, want %+v", o, want)
			}
		}
	})
}

// declaration draws a queue with the arguments that brokers compare, and one that they do not compare.
func declaration(t *rapid.T, name string) topology.Queue {
	q := topology.Queue{Name: name, Args: topology.Table{}, AutoDelete: rapid.IntRange(0, 4).Draw(t, "auto-delete") == 0}
	arg := func(name string, values ...any) {
		if v := rapid.SampledFrom(append(values, nil, nil)).Draw(t, name); v != nil {
			q.Args[name] = v
		}
	}
	arg("x-queue-type", "classic", "quorum")
	arg("x-max-length", int64(5), int32(5), int16(6))
	arg("x-dead-letter-exchange", "", "amq.fanout")
	arg("x-overflow", "drop-head", "reject-publish")
	arg("x-single-active-consumer", true, false)
	arg("x-other", "a", "b")
	if q.Args["x-queue-type"] == "quorum" {
		q.AutoDelete = false
		arg("x-delivery-limit", int64(7), int32(8))
	} else {
		arg("x-max-priority", int64(3), byte(4))
	}
	return q
}

// A plan has a difference exactly if the broker refuses to declare the queue again.
func TestPlanAgreesWithTheBroker(t *testing.T) {
	testkit.EachManaged(t, func(t *testing.T, b testkit.Target, url string) {
		flags.Default(t, "rapid.checks", map[bool]string{false: "100", true: "20"}[b.IsRabbitMQ])
		a, client := virtualHost(t, b, url)
		defer a.remove(client)
		n := 0
		rapid.Check(t, func(r *rapid.T) {
			n++
			name := fmt.Sprint("q", n)
			if err := client.Declare(t.Context(), topology.Topology{Queues: []topology.Queue{declaration(r, name)}}); err != nil {
				r.Skip("invalid combination of arguments")
			}
			again := topology.Topology{Queues: []topology.Queue{declaration(r, name)}}
			p := a.compare([]reprise.WorkerConfig{{Queue: "work", Topology: again}})
			i := slices.IndexFunc(p.Objects, func(o drift.Object) bool { return o.Name == name })
			err := client.Declare(t.Context(), again)
			refusal, refused := errors.AsType[*reprise.DeclareError](err)
			if refused && !strings.Contains(refusal.Advice, "already exists") {
				r.Skip("invalid combination of arguments")
			}
			if (p.Objects[i].Status == drift.Change) != refused {
				r.Fatalf("got %+v, and the broker answered: %v", p.Objects[i], err)
			}
		})
	})
}
