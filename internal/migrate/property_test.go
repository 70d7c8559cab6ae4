package migrate_test

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"pgregory.net/rapid"

	"github.com/reprisemq/reprise/internal/migrate"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

var cases = flag.Int("migrate.cases", 12, "number of random migrations of the embedded broker, and of a quarter as many of RabbitMQ")

// random is a random migration of the queue orders.
type random struct {
	Args    topology.Table // of the old queue
	Keys    []string       // of its bindings to the exchange shop
	Named   int            // number of messages that are published by the name of the queue
	Bound   int            // number of messages that are published to the exchange
	Limit   int            // of connections; 0: none
	Change  migrate.Change
	Attempt []attempt
}

// attempt is a run that is killed, and what the operator and other programs do after it.
type attempt struct {
	Kill point
	Acts []string
}

var operatorActs = []string{"publish", "publish by name", "consume", "bind", "change limit", "remove limit", "recover", "undo", "policy"}

// arguments draws arguments that a queue type supports, and that remove no messages in the time of a test.
func arguments(t *rapid.T, label string) topology.Table {
	args := topology.Table{}
	kind := rapid.SampledFrom([]string{"", "classic", "quorum"}).Draw(t, label+" type")
	if kind != "" {
		args["x-queue-type"] = kind
	}
	all := topology.Table{
		"x-message-ttl": int64(3_600_000), "x-max-length": int64(10_000), "x-dead-letter-exchange": "dead",
		"x-single-active-consumer": true, "x-overflow": "reject-publish",
	}
	if kind == "quorum" {
		all["x-delivery-limit"] = int64(50)
	} else {
		all["x-max-priority"] = int64(3)
	}
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if rapid.IntRange(0, 3).Draw(t, label+" "+key) == 0 {
			args[key] = all[key]
		}
	}
	return args
}

var migrations = rapid.Custom(func(t *rapid.T) random {
	r := random{
		Args:  arguments(t, "old"),
		Keys:  rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"new", "paid", "", "orders"}), 0, 3, rapid.ID).Draw(t, "keys"),
		Named: rapid.IntRange(0, 15).Draw(t, "named"), Bound: rapid.IntRange(0, 15).Draw(t, "bound"),
		Limit: rapid.SampledFrom([]int{0, 0, 50}).Draw(t, "limit"),
	}
	next := arguments(t, "new")
	if _, priorities := next["x-max-priority"]; priorities && next["x-queue-type"] == nil {
		next["x-queue-type"] = "classic" // a queue without a new type keeps its type
	}
	r.Change = migrate.Change{Queue: "orders", Set: next, Delete: true}
	for key := range r.Args {
		if _, found := next[key]; !found {
			r.Change.Unset = append(r.Change.Unset, key)
		}
	}
	slices.Sort(r.Change.Unset)
	if rapid.Bool().Draw(t, "rename") {
		r.Change.To = "orders.v2"
	} else {
		r.Change.Disconnect = true
	}
	if rapid.IntRange(0, 2).Draw(t, "ordered") == 0 {
		r.Change.Ordered, r.Change.Disconnect = true, true
	}
	for range rapid.IntRange(0, 4).Draw(t, "attempts") {
		r.Attempt = append(r.Attempt, attempt{
			Kill: point{rapid.SampledFrom([]string{"frame", "answer", "request", "response"}).Draw(t, "place"), rapid.IntRange(1, 120).Draw(t, "n")},
			Acts: rapid.SliceOfN(rapid.SampledFrom(operatorActs), 0, 3).Draw(t, "acts"),
		})
	}
	return r
})

// played is the state of a random migration that is played.
type played struct {
	*fixture
	random
	confirmed, taken []string
	limit            int
	n                int
	duplicates       int64 // maximum number
	uncounted        bool
}

// A migration of random queues that is killed at random points, while operators and programs act between its runs, ends and
// conserves messages, bindings and limits.
func TestRandomMigrations(t *testing.T) {
	t.Parallel()
	testkit.EachManaged(t, func(t *testing.T, b testkit.Target, api string) {
		n := *cases
		if b.IsRabbitMQ {
			n = (n + 3) / 4
		}
		for seed := range n {
			t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
				p := &played{fixture: newFixture(t, b, api), random: migrations.Example(seed)}
				p.settle, p.batch = time.Millisecond, 4
				defer func() {
					if t.Failed() {
						t.Logf("%+v\n%s", p.random, strings.Join(p.steps, "\n"))
					}
				}()
				p.play(t)
			})
		}
	})
}

func (p *played) play(t *testing.T) {
	p.queue(t, "orders", amqp.Table(p.Args))
	p.bound(t, "shop", "orders", p.Keys...)
	p.setLimit(t, p.Limit)
	for range p.Named {
		p.send(t, "", "orders")
	}
	for i := range p.Bound {
		if len(p.Keys) > 0 {
			p.send(t, "shop", p.Keys[i%len(p.Keys)])
		}
	}
	done := false
	for _, a := range p.Attempt {
		err := p.once(t, a.Kill, p.Change)
		if done = err == nil; done {
			break
		}
		p.steps = append(p.steps, fmt.Sprintf("killed at %v: %v", a.Kill, err))
		p.ch = p.reopen(t)
		for _, act := range a.Acts {
			p.steps = append(p.steps, "operator: "+act)
			p.act(t, act)
		}
	}
	for try := 0; !done && try < 30; try++ {
		err := p.once(t, point{}, p.Change)
		if done = err == nil; !done {
			p.steps = append(p.steps, "ended: "+err.Error())
			p.ch = p.reopen(t)
		}
	}
	if !done {
		t.Fatal("the migration does not end")
	}
	p.ch = p.reopen(t)
	p.check(t)
}

// once runs a migration. A completed migration ends the count of its duplicates.
func (p *played) once(t *testing.T, at point, c migrate.Change) error {
	t.Helper()
	result, _, err := p.run(t, at, c)
	p.uncounted = p.uncounted || result.Uncounted
	if err == nil {
		p.duplicates += result.Duplicates
	}
	return err
}

// reopen opens a channel when connections are permitted again.
func (p *played) reopen(t *testing.T) (ch *amqp.Channel) {
	t.Helper()
	testkit.Eventually(t, time.Minute, func() error {
		if _, err := migrate.Recover(t.Context(), p.api, "orders"); err != nil && !errors.Is(err, migrate.ErrRunning) {
			return err
		}
		conn, err := amqp.Dial(p.url)
		if err != nil {
			return err
		}
		t.Cleanup(func() { conn.Close() })
		ch, err = conn.Channel()
		return err
	})
	return ch
}

func (p *played) send(t *testing.T, exchange, key string) {
	t.Helper()
	prefix := fmt.Sprint("m", p.n)
	p.n++
	p.publish(t, exchange, key, prefix, 1)
	p.confirmed = append(p.confirmed, prefix+"-0")
}

func (p *played) setLimit(t *testing.T, n int) {
	t.Helper()
	p.Limit, p.limit = n, n
	path := "vhost-limits" + p.api.Within() + "/max-connections"
	err := p.api.Delete(t.Context(), path)
	if n > 0 {
		err = p.api.Put(t.Context(), path, map[string]int{"value": n})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// act does what an operator or another program may do between two runs.
func (p *played) act(t *testing.T, act string) {
	t.Helper()
	exists := p.arguments(t, "orders") != nil
	switch act {
	case "publish":
		if len(p.Keys) > 0 {
			p.send(t, "shop", p.Keys[0])
		}
	case "publish by name":
		if exists { // RabbitMQ drops it otherwise
			p.send(t, "", "orders")
		}
	case "consume":
		if d, found, err := p.ch.Get("orders", true); exists && err == nil && found {
			p.taken = append(p.taken, string(d.Body))
		} else if err != nil {
			p.ch = p.reopen(t)
		}
	case "bind":
		if exists {
			p.bound(t, "shop", "orders", "late")
			p.Keys = append(p.Keys, "late")
		}
	case "change limit":
		p.setLimit(t, 70)
	case "remove limit":
		p.setLimit(t, 0)
	case "recover":
		if _, err := migrate.Recover(t.Context(), p.api, "orders"); err != nil && !errors.Is(err, migrate.ErrRunning) {
			t.Error(err)
		}
	case "undo":
		undo := p.Change
		undo.Undo, undo.Set, undo.Unset = true, nil, nil
		p.steps = append(p.steps, fmt.Sprint("undone: ", p.once(t, point{}, undo)))
		p.ch = p.reopen(t)
	case "policy":
		policy := map[string]any{"pattern": "^orders$", "apply-to": "queues", "definition": map[string]any{"max-length": 5000}}
		if err := p.api.Put(t.Context(), "policies"+p.api.Within()+"/limit", policy); err != nil {
			t.Error(err)
		}
	}
}

// check checks the state after a migration.
func (p *played) check(t *testing.T) {
	t.Helper()
	queue := "orders"
	if p.Change.To != "" {
		queue = p.Change.To
	}
	p.clean(t, queue)
	args := p.arguments(t, queue)
	for k, v := range p.Change.Set {
		if fmt.Sprint(args[k]) != fmt.Sprint(v) {
			t.Errorf("argument %s: got %v, want %v", k, args[k], v)
		}
	}
	for _, k := range p.Change.Unset {
		if v, found := args[k]; found && k != "x-queue-type" {
			t.Errorf("argument %s is still %v", k, v)
		}
	}
	var bindings []struct {
		Source string `json:"source"`
		Key    string `json:"routing_key"`
	}
	if err := p.api.Get(t.Context(), "queues"+p.api.Within()+"/"+queue+"/bindings", &bindings); err != nil {
		t.Fatal(err)
	}
	keys := []string{}
	for _, b := range bindings {
		if b.Source != "" {
			keys = append(keys, b.Key)
		}
	}
	want := slices.Clone(p.Keys)
	slices.Sort(want)
	slices.Sort(keys)
	if want = slices.Compact(want); !slices.Equal(keys, want) {
		t.Errorf("got bindings %q, want %q", keys, want)
	}
	limit := 0
	for _, one := range p.limits(t) {
		limit = one.Value["max-connections"]
	}
	if limit != p.limit {
		t.Errorf("got limit %d, want %d", limit, p.limit)
	}
	if p.uncounted {
		p.duplicates = int64(len(p.confirmed))
	}
	conserved(t, p.confirmed, append(p.bodies(t, queue), p.taken...), p.duplicates)
}
