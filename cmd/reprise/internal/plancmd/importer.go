package plancmd

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/reprisemq/reprise/cmd/reprise/internal/config"
	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
	"github.com/reprisemq/reprise/internal/amqpvalue"
	"github.com/reprisemq/reprise/internal/archive/design"
	"github.com/reprisemq/reprise/internal/brief"
	"github.com/reprisemq/reprise/internal/doctor"
	"github.com/reprisemq/reprise/internal/drift"
	"github.com/reprisemq/reprise/topology"
)

// importer writes a configuration for the queues of a virtual host. It guesses items of the file from the broker, and keeps an
// item only if the configuration is valid and has no difference from the broker.
type importer struct {
	broker *doctor.Broker
	vhost  string
	url    string // of the broker

	routes    topology.Topology
	bound     map[string]map[string][]string // keys of bindings without arguments, by queue and exchange
	returning map[string][]*doctor.Queue     // queues whose dead letters keep their keys, by dead-letter exchange

	items     []string          // YAML of workers
	exchanges map[string]string // kinds by name
	config    *config.Config    // of all items
	taken     map[string]bool   // queues of the items
	comments  []string          // what the file does not contain
}

func newImporter(b *doctor.Broker, vhost, url string) *importer {
	m := &importer{
		broker: b, vhost: vhost, url: url, routes: b.Routes(vhost), bound: map[string]map[string][]string{}, returning: map[string][]*doctor.Queue{},
		exchanges: map[string]string{}, taken: map[string]bool{},
	}
	for _, x := range b.Bindings {
		if x.VHost != vhost || x.Kind != "queue" || len(x.Args) > 0 {
			continue
		}
		if m.bound[x.Destination] == nil {
			m.bound[x.Destination] = map[string][]string{}
		}
		m.bound[x.Destination][x.Source] = append(m.bound[x.Destination][x.Source], x.Key)
	}
	for i, q := range b.Queues {
		exchange, dead := q.Args["x-dead-letter-exchange"].(string)
		if _, keyed := q.Args["x-dead-letter-routing-key"]; q.VHost == vhost && dead && !keyed && !internalQueue(q.Name) {
			m.returning[exchange] = append(m.returning[exchange], &b.Queues[i])
		}
	}
	return m
}

// run imports the named queues, or all queues with a retry design.
func (m *importer) run(only []string) (err error) {
	wanted := func(queue string) bool { return len(only) == 0 || slices.Contains(only, queue) }
	m.presets(wanted)
	var left []string
	for i := range m.broker.Queues {
		q := &m.broker.Queues[i]
		switch {
		case q.VHost != m.vhost || m.taken[q.Name] || !wanted(q.Name) || internalQueue(q.Name):
		case len(only) == 0 && !m.hasDesign(q):
			left = append(left, q.Name)
		case q.Kind == "stream" || q.Exclusive:
			m.comment("queue %s: a worker does not consume streams and exclusive queues", brief.Quoted(q.Name))
		default:
			m.handMade(q)
		}
	}
	left = slices.DeleteFunc(left, func(name string) bool { return m.taken[name] })
	for i, name := range left {
		if i == maxObjects {
			m.comment("%d other queues without a retry design", len(left)-i)
			break
		}
		m.comment("queue %s: no retry design (--queue NAME imports it)", brief.Quoted(name))
	}
	if len(m.items) == 0 {
		return fmt.Errorf("no retry design found in virtual host %s (import a queue with --queue NAME)%s", brief.Quoted(m.vhost), strings.Join(append([]string{""}, m.comments...), "\n"))
	}
	m.config, err = m.parse(m.items, m.exchanges)
	return err
}

// internalQueue reports whether a queue belongs to Reprise itself or to the broker.
func internalQueue(name string) bool {
	return amqpvalue.IsWaitQueue(name) || strings.HasPrefix(name, "reprise.") || strings.HasPrefix(name, "amq.")
}

func (m *importer) comment(format string, args ...any) {
	m.comments = append(m.comments, fmt.Sprintf(format, args...))
}

// parse returns the configuration of items with their exchanges.
func (m *importer) parse(items []string, exchanges map[string]string) (*config.Config, error) {
	return config.Parse("reprise.yaml", []byte(m.body(items, exchanges)), func(string) (string, bool) { return "", false })
}

// check returns the plan of an item, and an error if its configuration is invalid or does not agree with the broker.
func (m *importer) check(item string, exchanges map[string]string) (*drift.Plan, error) {
	cfg, err := m.parse([]string{item}, exchanges)
	if problems, ok := errors.AsType[*config.Problems](err); ok {
		return nil, errors.New(problems.List[0].Text)
	}
	if err != nil {
		return nil, err
	}
	p := m.compare(cfg)
	return p, m.agrees(p, cfg)
}

// add adds an item, if it agrees with the broker.
func (m *importer) add(item string, exchanges map[string]string) error {
	p, err := m.check(item, exchanges)
	if err != nil {
		return err
	}
	m.items = append(m.items, item)
	maps.Copy(m.exchanges, exchanges)
	for _, o := range p.Objects {
		if q := m.queue(o.Name); o.Kind == "queue" && (o.Status != drift.Extra || m.waits(q)) {
			m.taken[o.Name] = true
		}
	}
	return nil
}

func (m *importer) compare(cfg *config.Config) *drift.Plan {
	return drift.Compare(cfg.WorkerConfigs(), m.broker, m.vhost)
}

// agrees returns an error if the broker differs from a configuration, except for objects that Reprise adds to a design: failed
// queues, and further keys of existing bindings.
func (m *importer) agrees(p *drift.Plan, cfg *config.Config) error {
	failed := design.FailedQueues(cfg.WorkerConfigs())
	for _, o := range p.Objects {
		switch {
		case o.Status == drift.Exists, o.Status == drift.Extra:
		case o.Status == drift.Create && o.Kind == "queue" && slices.Contains(failed, o.Name):
		case o.Status == drift.Create && o.Kind == "binding" && len(m.bound[o.Queue][o.Exchange]) > 0:
		default:
			return fmt.Errorf("%s would differ: %s", o, strings.Join(append(o.Notes, string(o.Status)), "; "))
		}
	}
	return nil
}

// text returns the file.
func (m *importer) text() string {
	p := m.compare(m.config)
	var todo, rest []string
	for _, o := range p.Objects {
		switch o.Status {
		case drift.Create:
			todo = append(todo, "create "+o.String()+": run reprise topology apply")
		case drift.Extra:
			rest = append(rest, o.String()+": "+extraReason(o))
		}
	}
	if more := len(rest) - maxObjects; more > 0 {
		rest = append(rest[:maxObjects], fmt.Sprintf("%d others: see reprise topology plan --json", more))
	}
	rest = append(rest, m.comments...)
	of := "RabbitMQ"
	if m.broker.Version != "" {
		of += " " + m.broker.Version
	}
	var b strings.Builder
	comment := func(s string) {
		b.WriteString("# " + terminal.OneLine(brief.Visible(s)) + "\n")
	}
	comment(fmt.Sprintf("Queues of virtual host %s of %s, by reprise topology import. Before reprise up:", brief.Quoted(m.vhost), of))
	comment("- broker: add the user and the password of the workers, such as amqp://app:${PASSWORD}@rabbit, and check the host")
	comment("- exec: replace each YOUR-HANDLER with a program, or with http: URL; only you know the handlers")
	comment("- attempts, and backoff if it is not set: the defaults apply (19 attempts in a day); set those of your programs")
	for _, s := range todo {
		comment("- " + s)
	}
	if len(rest) > 0 {
		comment("The file does not contain these objects, which remain unchanged:")
	}
	for _, s := range rest {
		comment("- " + s)
	}
	b.WriteString(m.body(m.items, m.exchanges))
	return b.String()
}

// extraReason returns why the file does not contain an object of a design.
func extraReason(o drift.Object) string {
	switch {
	case o.Kind == "binding" && strings.ContainsAny(o.Exchange, unsupported):
		return "names of a file have no line breaks"
	case o.Kind == "binding" && len(o.Args) > 0:
		return "bindings of a file have no arguments"
	case o.Kind == "binding":
		return "the binding is not part of the preset, or belongs to another queue"
	}
	return strings.Join(o.Notes, ", ") + "; the worker does not need it"
}

// body returns the YAML of items.
func (m *importer) body(items []string, exchanges map[string]string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "broker: %s\n", quoteYAML(m.url))
	if len(exchanges) > 0 {
		b.WriteString("exchanges:\n")
		for _, name := range slices.Sorted(maps.Keys(exchanges)) {
			fmt.Fprintf(&b, "  %s: %s\n", quoteYAML(name), exchanges[name])
		}
	}
	b.WriteString("workers:\n" + strings.Join(items, ""))
	return b.String()
}

// unsupported contains the characters that names in a file must not contain.
const unsupported = "\x00\r\n"

const placeholder = "exec: [YOUR-HANDLER]"

var plainYAML = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9._-]*[A-Za-z0-9])?$`)

// quoteYAML returns a string of YAML. Names come from others, so that most characters need quotes.
func quoteYAML(s string) string {
	switch strings.ToLower(s) {
	case "true", "false", "null", "yes", "no", "on", "off", "y", "n": // also of YAML 1.1
		return strconv.Quote(s)
	}
	if plainYAML.MatchString(s) {
		return s
	}
	return strconv.Quote(s)
}

// settings are keys of YAML with values, in order.
type settings []string

// set adds a key unless its value is the default.
func (s *settings) set(key, value, byDefault string) {
	if value != byDefault {
		*s = append(*s, key+": "+value)
	}
}

// indented returns the lines of the settings with an indentation.
func (s settings) indented(spaces int) string {
	var b strings.Builder
	for _, line := range s {
		b.WriteString(strings.Repeat(" ", spaces) + line + "\n")
	}
	return b.String()
}

// argument returns the text of an argument of a queue, or "".
func argument(q *doctor.Queue, name string) string {
	s, _ := q.Args[name].(string)
	return s
}
