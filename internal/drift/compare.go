package drift

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/reprisemq/reprise/internal/amqpvalue"
	"github.com/reprisemq/reprise/internal/brief"
	"github.com/reprisemq/reprise/internal/doctor"
	"github.com/reprisemq/reprise/internal/mgmtapi"
	"github.com/reprisemq/reprise/topology"
)

// comparison is the state of Compare.
type comparison struct {
	*Plan
	broker   *doctor.Broker
	declared topology.Topology // when workers start
	waits    topology.Topology // when workers retry
}

func (c *comparison) add(o Object) { c.Objects = append(c.Objects, o) }

// declares returns the declaration of a queue, or nil.
func (c *comparison) declares(queue string) *topology.Queue {
	for i, q := range c.declared.Queues {
		if q.Name == queue {
			return &c.declared.Queues[i]
		}
	}
	return nil
}

// declaresExchange reports whether workers declare an exchange, now or later.
func (c *comparison) declaresExchange(name string) bool {
	return slices.ContainsFunc(slices.Concat(c.declared.Exchanges, c.waits.Exchanges), func(x topology.Exchange) bool { return x.Name == name })
}

// differ adds an existing object with its differences.
func (c *comparison) differ(o Object, differences []Difference) {
	if o.Status, o.Differences = Exists, differences; len(differences) > 0 {
		o.Status, o.Fix = Change, advice(o)
	}
	c.add(o)
}

// advice returns what to do about differences. RabbitMQ refuses a declaration with other properties (406), and changes none.
func advice(o Object) string {
	var set []string // of reprise migrate
	migrates, policy := o.Kind == "queue", ""
	for _, d := range o.Differences {
		kind, _ := d.File.(string)
		switch {
		case d.Policy != "":
			policy = d.Policy
		case !strings.HasPrefix(d.Property, "x-"):
			migrates = false
		case d.Property == "x-queue-type":
			set = append(set, "--type "+brief.Shell(kind))
		case d.File == nil:
			set = append(set, "--unset "+brief.Shell(d.Property))
		default:
			set = append(set, "--set "+brief.Shell(fmt.Sprintf("%s=%v", d.Property, d.File)))
		}
	}
	switch {
	case len(set) == 0 && migrates:
		return fmt.Sprintf("correct policy %s, or the declaration", word(policy))
	case migrates:
		return fmt.Sprintf("correct the declaration, or: reprise migrate %s %s", brief.Shell(o.Name), strings.Join(set, " "))
	case o.Kind == "queue":
		return "correct the declaration, or delete the queue when it is empty, and declare it again"
	}
	return "correct the declaration, or delete the exchange, and declare it again"
}

// flag appends a difference between two booleans.
func flag(to []Difference, property string, file, broker bool) []Difference {
	if file == broker {
		return to
	}
	return append(to, Difference{Property: property, File: file, Broker: broker})
}

// exchange compares an exchange. If later is set, workers declare it only when they need it. RabbitMQ compares no other argument than alternate-exchange.
func (c *comparison) exchange(x topology.Exchange, later bool) {
	o := Object{Kind: "exchange", Name: x.Name}
	is := c.broker.Exchange(c.VHost, x.Name)
	switch {
	case is == nil && c.broker.HasExchange(c.VHost, x.Name):
		o.Status = Exists // predeclared
		c.add(o)
		return
	case is == nil:
		if !later {
			o.Status = Create
			c.missing.Exchanges = append(c.missing.Exchanges, x)
			c.add(o)
		}
		return
	}
	var d []Difference
	if is.Kind != x.Kind {
		d = append(d, Difference{Property: "type", File: x.Kind, Broker: is.Kind})
	}
	d = flag(d, "durable", !x.Transient, is.Durable)
	d = flag(d, "auto_delete", x.AutoDelete, is.AutoDelete)
	d = flag(d, "internal", x.Internal, is.Internal)
	if file, broker := x.Args["alternate-exchange"], is.Args["alternate-exchange"]; !reflect.DeepEqual(file, broker) {
		d = append(d, Difference{Property: "alternate-exchange", File: file, Broker: broker})
	}
	c.differ(o, d)
}

// queue compares a queue. If later is set, workers declare the queue only when they need it.
func (c *comparison) queue(q topology.Queue, later bool) {
	o := Object{Kind: "queue", Name: q.Name}
	is := c.broker.Queue(c.VHost, q.Name)
	if is == nil {
		if !later {
			o.Status = Create
			c.missing.Queues = append(c.missing.Queues, q)
			c.add(o)
		}
		return
	}
	if is.Exclusive && !q.Exclusive {
		o.Status = Conflict
		o.Notes = []string{"it belongs to another connection (exclusive)"}
		o.Fix = "close the connection that owns it, or use another name"
		c.add(o)
		return
	}
	d := c.queueDifferences(q, is)
	if !q.IfAbsent {
		d = append(d, policyDifferences(q, is, d)...)
	}
	o.Notes = policyNotes(q, is)
	if q.IfAbsent && len(d) > 0 {
		o.Notes = append(o.Notes, "the worker uses it as it is, although "+sentence(d))
		d = nil
	}
	c.differ(o, d)
}

// queueDifferences returns the differences for which RabbitMQ refuses the declaration.
func (c *comparison) queueDifferences(q topology.Queue, is *doctor.Queue) (d []Difference) {
	kind, _ := q.Args["x-queue-type"].(string)
	switch {
	case kind != "":
	case q.Transient || q.AutoDelete || q.Exclusive:
		kind = "classic"
	default:
		kind = c.broker.DefaultQueueType(c.VHost)
	}
	if kind != "" && kind != is.Kind {
		d = append(d, Difference{Property: "x-queue-type", File: kind, Broker: is.Kind})
	}
	d = flag(d, "durable", !q.Transient, is.Durable)
	d = flag(d, "auto_delete", q.AutoDelete, is.AutoDelete)
	compared := amqpvalue.ComparedArguments(is.Kind)
	if kind != "" && kind != is.Kind { // the new type has other arguments
		compared = append(compared, amqpvalue.ComparedArguments(kind)...)
		slices.Sort(compared)
		compared = slices.Compact(compared)
	}
	for _, name := range compared {
		file, broker := plain(q.Args[name]), plain(is.Args[name])
		if name != "x-queue-type" && !reflect.DeepEqual(file, broker) {
			d = append(d, Difference{Property: name, File: file, Broker: broker})
		}
	}
	return d
}

// policyDifferences returns the arguments of the declaration that a policy overrides, except those that differ anyway.
func policyDifferences(q topology.Queue, is *doctor.Queue, known []Difference) (d []Difference) {
	for _, name := range slices.Sorted(maps.Keys(q.Args)) {
		key, _ := strings.CutPrefix(name, "x-")
		if _, set := is.Policy[key]; !set || slices.ContainsFunc(known, func(d Difference) bool { return d.Property == name }) {
			continue
		}
		effective, _ := is.Get(key)
		if file, broker := plain(q.Args[name]), plain(effective); !reflect.DeepEqual(file, broker) {
			d = append(d, Difference{Property: name, File: file, Broker: broker, Policy: policyName(is)})
		}
	}
	return d
}

// policyNotes describes the settings of policies that the declaration does not contain.
func policyNotes(q topology.Queue, is *doctor.Queue) (notes []string) {
	for _, key := range slices.Sorted(maps.Keys(is.Policy)) {
		effective, _ := is.Get(key)
		if _, declared := q.Args["x-"+key]; !declared || q.IfAbsent {
			notes = append(notes, fmt.Sprintf("policy %s: x-%s is %s", word(policyName(is)), key, show(plain(effective))))
		}
	}
	return notes
}

// policyName returns the name of the policy of a queue. An operator policy has no name here.
func policyName(q *doctor.Queue) string {
	if q.PolicyName == "" {
		return "of the operator"
	}
	return q.PolicyName
}

// binding compares a binding. A binding to an exchange that neither exists nor is declared cannot be created.
func (c *comparison) binding(x topology.Binding) {
	o := OfBinding(x)
	switch {
	case slices.ContainsFunc(c.broker.Bindings, func(is doctor.Binding) bool { return is.VHost == c.VHost && equal(x, fromBroker(is)) }):
		o.Status = Exists
	case !c.broker.HasExchange(c.VHost, x.Exchange) && !c.declaresExchange(x.Exchange):
		o.Status = Conflict
		o.Notes = []string{fmt.Sprintf("exchange %s does not exist, and no worker declares it", word(x.Exchange))}
		o.Fix = "start the program that declares the exchange, or declare it (exchanges: in the file)"
	default:
		o.Status = Create
		c.missing.Bindings = append(c.missing.Bindings, x)
	}
	c.add(o)
}

// OfBinding returns the object of a binding, without a status.
func OfBinding(x topology.Binding) Object {
	return Object{
		Kind: "binding", Name: x.String(), Exchange: x.Exchange, Queue: x.Queue, ToExchange: x.ToExchange,
		RoutingKey: &x.RoutingKey, Args: x.Args,
	}
}

func fromBroker(is doctor.Binding) topology.Binding {
	x := topology.Binding{Exchange: is.Source, Queue: is.Destination, RoutingKey: is.Key, Args: is.Args}
	if is.Kind == "exchange" {
		x.Queue, x.ToExchange = "", is.Destination
	}
	return x
}

func equal(a, b topology.Binding) bool {
	return a.Exchange == b.Exchange && a.Queue == b.Queue && a.ToExchange == b.ToExchange && a.RoutingKey == b.RoutingKey &&
		reflect.DeepEqual(plainTable(a.Args), plainTable(b.Args))
}

// deadLetterExchanges adds exchanges to which queues of the file dead-letter, and which neither exist nor are declared.
func (c *comparison) deadLetterExchanges() {
	var found []string
	for _, q := range slices.Concat(c.declared.Queues, c.waits.Queues) {
		to, set := q.Args["x-dead-letter-exchange"]
		if is := c.broker.Queue(c.VHost, q.Name); is != nil {
			to, set = is.Get("dead-letter-exchange")
		} else if c.declares(q.Name) == nil {
			continue
		}
		name, _ := to.(string)
		if !set || c.broker.HasExchange(c.VHost, name) || c.declaresExchange(name) || slices.Contains(found, name) {
			continue
		}
		found = append(found, name)
		c.add(Object{
			Status: Conflict, Kind: "exchange", Name: name,
			Notes: []string{fmt.Sprintf("queue %s dead-letters to it, it does not exist, and no worker declares it: RabbitMQ drops these messages", word(q.Name))},
			Fix:   "start the program that declares the exchange, or correct x-dead-letter-exchange",
		})
	}
}

// extras adds objects of the broker that belong to objects of the file: bindings of its exchanges and queues, and the queues at
// the other end of dead letters.
func (c *comparison) extras() {
	known := slices.Concat(c.declared.Bindings, c.waits.Bindings)
	ours := map[string]bool{} // exchanges and queues
	for _, x := range slices.Concat(c.declared.Exchanges, c.waits.Exchanges) {
		ours["exchange "+x.Name] = true
	}
	for _, q := range c.declared.Queues {
		ours["queue "+q.Name] = true
	}
	for _, is := range c.broker.Bindings {
		if is.VHost != c.VHost || is.Source == "" || !ours["exchange "+is.Source] && !ours[is.Kind+" "+is.Destination] {
			continue
		}
		x := fromBroker(is)
		if !slices.ContainsFunc(known, func(b topology.Binding) bool { return equal(b, x) }) {
			o := OfBinding(x)
			o.Status = Extra
			c.add(o)
		}
	}
	const maxNotes = 5
	others, hidden := map[string]int{}, map[int]int{} // index in c.Objects of a queue or an exchange; number of further notes
	note := func(kind, name, note string) {
		i, found := others[kind+name]
		if !found {
			i = len(c.Objects)
			others[kind+name] = i
			c.add(Object{Status: Extra, Kind: kind, Name: name})
		}
		if len(c.Objects[i].Notes) == maxNotes {
			hidden[i]++
			return
		}
		c.Objects[i].Notes = append(c.Objects[i].Notes, note)
	}
	defer func() {
		for i, n := range hidden {
			c.Objects[i].Notes = append(c.Objects[i].Notes, fmt.Sprintf("and %d more", n))
		}
	}()
	for _, q := range c.declared.Queues {
		is := c.broker.Queue(c.VHost, q.Name)
		if is == nil {
			continue
		}
		if v, _ := is.Get("dead-letter-exchange"); v != nil {
			name, _ := v.(string)
			if c.broker.Exchange(c.VHost, name) != nil && name != "" && !c.declaresExchange(name) {
				note("exchange", name, "receives dead letters of queue "+word(q.Name))
			}
		}
		to, from := c.broker.Dead(is)
		for _, other := range to {
			if !c.knows(other.Name) {
				note("queue", other.Name, "receives dead letters of queue "+word(q.Name))
			}
		}
		for _, other := range from {
			if !c.knows(other.Name) {
				note("queue", other.Name, "dead-letters to queue "+word(q.Name))
			}
		}
	}
}

// knows reports whether workers declare a queue, now or later.
func (c *comparison) knows(queue string) bool {
	return c.declares(queue) != nil || slices.ContainsFunc(c.waits.Queues, func(w topology.Queue) bool { return w.Name == queue })
}

// plain makes values of AMQP and of JSON comparable.
func plain(v any) any {
	if n, ok := mgmtapi.Integer(v); ok {
		return n
	}
	switch v := v.(type) {
	case topology.Table:
		return plainTable(v)
	case map[string]any:
		return plainTable(v)
	case []any:
		all := make([]any, len(v))
		for i, e := range v {
			all[i] = plain(e)
		}
		return all
	}
	return v
}

func plainTable(t map[string]any) map[string]any {
	all := map[string]any{}
	for k, v := range t {
		all[k] = plain(v)
	}
	return all
}

// String describes the difference from a file.
func (d Difference) String() string { return d.Text("file") }

// Text describes the difference from a declaration in the given place.
func (d Difference) Text(place string) string {
	by := ""
	if d.Policy != "" {
		by = " by policy " + word(d.Policy)
	}
	return fmt.Sprintf("%s is %s%s (%s: %s)", d.Property, show(d.Broker), by, place, show(d.File))
}

func sentence(all []Difference) string {
	var parts []string
	for _, d := range all {
		parts = append(parts, d.String())
	}
	return strings.Join(parts, ", ")
}

func show(v any) string {
	switch v := v.(type) {
	case nil:
		return "not set"
	case string:
		return brief.Quoted(v)
	}
	return brief.Visible(fmt.Sprint(v))
}

// word returns a name for a sentence, in quotation marks unless it consists of the usual characters.
func word(name string) string {
	odd := func(r rune) bool {
		return !(r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || strings.ContainsRune("._-:/*#", r))
	}
	if name == "" || strings.ContainsFunc(name, odd) {
		return brief.Quoted(name)
	}
	return name
}

// String names the object, such as "queue orders" or "binding shop → orders, key order.*".
func (o Object) String() string {
	if o.Kind != "binding" {
		return o.Kind + " " + word(o.Name)
	}
	to := word(o.Queue)
	if o.ToExchange != "" {
		to = "exchange " + word(o.ToExchange)
	}
	s := fmt.Sprintf("binding %s → %s", word(o.Exchange), to)
	if *o.RoutingKey != "" {
		s += ", key " + word(*o.RoutingKey)
	}
	if len(o.Args) > 0 {
		text, _ := json.Marshal(plainTable(o.Args)) // never fails for values of AMQP except NaN
		s += ", arguments " + brief.Visible(string(text))
	}
	return s
}
