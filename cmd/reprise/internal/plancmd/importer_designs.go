package plancmd

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/reprisemq/reprise/cmd/reprise/internal/config"
	"github.com/reprisemq/reprise/internal/amqpvalue"
	"github.com/reprisemq/reprise/internal/brief"
	"github.com/reprisemq/reprise/internal/doctor"
	"github.com/reprisemq/reprise/internal/mgmtapi"
	"github.com/reprisemq/reprise/internal/preset"
	"github.com/reprisemq/reprise/topology"
)

// presets imports the published designs.
func (m *importer) presets(wanted func(string) bool) {
	m.coverArt(wanted)
	m.staking(wanted)
	for i := range m.broker.Queues {
		q := &m.broker.Queues[i]
		if q.VHost == m.vhost && wanted(q.Name) && !m.taken[q.Name] && !m.workRetry(q) {
			m.cdnPurge(q)
		}
	}
}

// first adds the first of several items that agrees with the broker.
func (m *importer) first(items ...string) bool {
	return slices.ContainsFunc(items, func(item string) bool { return m.add(item, nil) == nil })
}

// queueTypes are the values of queue_type. With "", the design declares no x-queue-type.
var queueTypes = []string{"", "classic", "quorum"}

// presetItems returns an item for each type of the queues of a preset.
func presetItems(name string, with settings, queues ...string) (items []string) {
	for _, kind := range queueTypes {
		s := slices.Clone(with)
		s.set("queue_type", kind, "")
		var text strings.Builder
		text.WriteString("  - preset: " + name + "\n" + s.indented(4) + "    queues:\n")
		for _, queue := range queues {
			text.WriteString("      " + quoteYAML(queue) + ": {" + placeholder + "}\n")
		}
		items = append(items, text.String())
	}
	return items
}

func (m *importer) queue(name string) *doctor.Queue { return m.broker.Queue(m.vhost, name) }

// delay returns the TTL of a wait queue as a setting, or "" without a TTL.
func delay(q *doctor.Queue) string {
	if q == nil {
		return ""
	}
	if ms, ok := mgmtapi.Integer(q.Args["x-message-ttl"]); ok {
		return config.FormatDuration(time.Duration(ms) * time.Millisecond)
	}
	return ""
}

func (m *importer) coverArt(wanted func(string) bool) {
	var keys []string
	for key, queue := range map[string]string{"index": preset.CoverArtIndexQueue, "delete": preset.CoverArtDeleteQueue, "move": preset.CoverArtMoveQueue} {
		if m.queue(queue) != nil && wanted(queue) {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return
	}
	slices.Sort(keys)
	var s settings
	s.set("retry_delay", delay(m.queue(preset.CoverArtRetryQueue)), "4h")
	m.first(presetItems("cover-art", s, keys...)...)
}

// staking imports all work queues with the same settings as one preset.
func (m *importer) staking(wanted func(string) bool) {
	type form struct{ ttl, kind string }
	var forms []form
	groups := map[form][]string{}
	items := func(f form, queues ...string) []string {
		var s settings
		s.set("delay_ttl", f.ttl, "")
		return presetItems("staking", s, queues...)
	}
	for _, q := range m.broker.Queues {
		wait := m.queue(q.Name + preset.StakingDelaySuffix)
		if q.VHost != m.vhost || !wanted(q.Name) || wait == nil || argument(&q, "x-dead-letter-exchange") != preset.StakingExchange {
			continue
		}
		f := form{ttl: delay(wait)}
		for i, item := range items(f, q.Name) {
			if _, err := m.check(item, nil); err != nil {
				continue
			}
			if f.kind = queueTypes[i]; len(groups[f]) == 0 {
				forms = append(forms, f)
			}
			groups[f] = append(groups[f], q.Name)
			break
		}
	}
	for _, f := range forms {
		_ = m.add(items(f, groups[f]...)[slices.Index(queueTypes, f.kind)], nil) // each queue agrees
	}
}

func (m *importer) workRetry(q *doctor.Queue) bool {
	prefix, ok := strings.CutSuffix(q.Name, preset.WorkRetryWorkQueue)
	x := m.broker.Exchange(m.vhost, prefix+preset.WorkRetryWorkExchange)
	if !ok || x == nil {
		return false
	}
	for _, key := range m.bound[q.Name][x.Name] {
		var s settings
		s.set("retry_delay", delay(m.queue(prefix+preset.WorkRetryRetryQueue)), "5m")
		s.set("kind", x.Kind, topology.Direct)
		s.set("key", quoteYAML(key), `""`)
		s.set("transient_exchanges", fmt.Sprint(!x.Durable), "false")
		s.set("prefix", quoteYAML(prefix), `""`)
		if m.first(presetItems("work-retry", s, preset.WorkRetryWorkQueue)...) {
			return true
		}
	}
	return false
}

// cdnPurge imports a work queue with a wait queue that has the same routing keys: the wait queue dead-letters to the exchange of
// the work queue without another key.
func (m *importer) cdnPurge(q *doctor.Queue) {
	if failedName(q.Name) || m.waits(q) {
		return
	}
	for exchange, keys := range m.bound[q.Name] {
		x := m.broker.Exchange(m.vhost, exchange)
		if x == nil || exchange == "" || slices.ContainsFunc(keys, func(key string) bool { // a retry must not reach other queues
			to, err := m.routes.Reach(exchange, key)
			return err != nil || len(to) != 1
		}) {
			continue
		}
		for _, wait := range m.returning[exchange] {
			for source, waitKeys := range m.bound[wait.Name] {
				into := m.broker.Exchange(m.vhost, source)
				if into == nil || source == "" || into == x || !m.waits(wait) || into.Kind != topology.Fanout && !contains(waitKeys, keys) {
					continue
				}
				if m.first(m.cdnPurgeItems(q, wait, x, into, keys)...) {
					return
				}
			}
		}
	}
}

// contains reports whether all contains some.
func contains(all, some []string) bool {
	return !slices.ContainsFunc(some, func(s string) bool { return !slices.Contains(all, s) })
}

func (m *importer) cdnPurgeItems(q, wait *doctor.Queue, x, into *doctor.Exchange, keys []string) (items []string) {
	var s settings
	s.set("exchange", quoteYAML(x.Name), preset.CDNPurgeExchange)
	s.set("wait_exchange", quoteYAML(into.Name), "")
	s.set("wait_queue", quoteYAML(wait.Name), "")
	s.set("routing_keys", "["+quoteAll(keys)+"]", "")
	s.set("kind", x.Kind, topology.Direct)
	s.set("wait_kind", into.Kind, x.Kind)
	s.set("transient_exchanges", fmt.Sprint(!x.Durable), "false")
	s.set("transient_queues", fmt.Sprint(!wait.Durable), "false")
	s.set("auto_delete", fmt.Sprint(wait.AutoDelete), "false")
	if ttl := delay(wait); ttl != "" { // all delays are equal
		s = append(s, "first: "+ttl, "factor: 1", "max: "+ttl, "jitter: none")
	}
	var args []string
	for _, name := range slices.Sorted(maps.Keys(wait.Args)) {
		if name == "x-dead-letter-exchange" || name == "x-queue-type" {
			continue
		}
		value := fmt.Sprint(wait.Args[name])
		if n, ok := mgmtapi.Integer(wait.Args[name]); ok {
			value = fmt.Sprint(n)
		} else if text, ok := wait.Args[name].(string); ok {
			value = quoteYAML(text)
		}
		args = append(args, quoteYAML(name)+": "+value)
	}
	s.set("wait_args", "{"+strings.Join(args, ", ")+"}", "{}")
	for _, failed := range m.failedQueues(q) {
		existing := m.queue(cmp.Or(failed, topology.FailedQueue(q.Name)))
		if existing != nil && existing.Kind != "quorum" { // the preset declares a quorum queue
			continue
		}
		with := slices.Clone(s)
		with.set("failed_queue", quoteYAML(failed), `""`)
		items = append(items, presetItems("cdn-purge", with, q.Name)...)
	}
	return items
}

func quoteAll(names []string) string {
	all := make([]string, len(names))
	for i, name := range names {
		all[i] = quoteYAML(name)
	}
	return strings.Join(all, ", ")
}

// waitName matches usual names of wait queues.
var waitName = regexp.MustCompile(`(?i)(wait|retr|delay|later|hold|backoff)`)

// waits reports whether a queue is a wait queue: its dead letters return to the queue that they come from, or its name says so,
// because programs can also publish to it. A work queue can also have a TTL and a failed queue.
func (m *importer) waits(q *doctor.Queue) bool {
	if _, dead := q.Get("dead-letter-exchange"); !dead || q.Consumers > 0 {
		return false
	}
	to, from := m.broker.Dead(q)
	cycle := hasTTL(q) && slices.ContainsFunc(from, func(other *doctor.Queue) bool { return slices.Contains(to, other) })
	return cycle || waitName.MatchString(q.Name)
}

func hasTTL(q *doctor.Queue) bool {
	_, ttl := q.Get("message-ttl")
	return ttl
}

// failedName reports whether a queue has a usual name of a failed queue.
func failedName(name string) bool {
	return slices.ContainsFunc(failedSuffixes, func(suffix string) bool { return strings.HasSuffix(name, suffix) })
}

// hasDesign reports whether a queue is a work queue with a failed queue or wait queues.
func (m *importer) hasDesign(q *doctor.Queue) bool {
	to, from := m.broker.Dead(q)
	if m.waits(q) || failedName(q.Name) && len(to) == 0 {
		return false
	}
	return len(to) > 0 || slices.ContainsFunc(from, m.waits) || m.queue(topology.FailedQueue(q.Name)) != nil
}

// failedSuffixes are usual endings of the names of failed queues.
var failedSuffixes = []string{"failed", "dead", "dlq", "error", "errors", "parked", "parking", "deadletter", "dead-letter", "DLQ"}

// failedQueues returns possible failed queues of a work queue. "" is the default name.
func (m *importer) failedQueues(q *doctor.Queue) []string {
	all := []string{""}
	for _, suffix := range failedSuffixes {
		for _, between := range []string{".", "_", "-"} {
			if name := q.Name + between + suffix; m.queue(name) != nil {
				all = append(all, name)
			}
		}
	}
	to, _ := m.broker.Dead(q)
	for _, dead := range to {
		if !m.waits(dead) && dead != q && !slices.Contains(all, dead.Name) {
			all = append(all, dead.Name)
		}
	}
	if m.queue(topology.FailedQueue(q.Name)) == nil && len(all) > 1 {
		return all[1:]
	}
	return all
}

// handMade imports a work queue with its bindings, failed queue and delays.
func (m *importer) handMade(q *doctor.Queue) {
	bind, exchanges := m.bind(q)
	var last error
	for _, route := range m.retries(q) {
		for _, failed := range m.failedQueues(q) {
			s := settings{placeholder}
			s = append(s, route...)
			s.set("failed_queue", quoteYAML(failed), `""`)
			if len(bind) > 0 {
				s = append(s, "bind:")
				for _, b := range bind {
					s = append(s, "  - {"+b+"}")
				}
			}
			if last = m.add("  - queue: "+quoteYAML(q.Name)+"\n"+s.indented(4), exchanges); last == nil {
				return
			}
		}
	}
	m.comment("queue %s: %v", brief.Quoted(q.Name), last)
}

// retries returns settings of retries: of the routes of Reprise that declare the work queue with their own arguments, and then of
// the default route with the delays of the present wait queues.
func (m *importer) retries(q *doctor.Queue) (all []settings) {
	if ttl := delay(m.queue(q.Name + ".retry")); ttl != "" {
		all = append(all, settings{"route: {dead-letter: {delay: " + ttl + "}}"})
	}
	if low, ok := mgmtapi.Integer(q.Args["x-delayed-retry-min"]); ok {
		high, _ := mgmtapi.Integer(q.Args["x-delayed-retry-max"])
		text := func(ms int64) string { return config.FormatDuration(time.Duration(ms) * time.Millisecond) }
		all = append(all, settings{fmt.Sprintf("route: {delayed-retry: {min: %s, max: %s}}", text(low), text(cmp.Or(high, low)))})
	}
	if n, _ := mgmtapi.Integer(q.Args["x-delivery-limit"]); n > topology.DeliveryLimit {
		all = append(all, settings{"route: requeue"})
	}
	var delays []time.Duration
	_, from := m.broker.Dead(q)
	for _, wait := range from {
		ms, ok := mgmtapi.Integer(wait.Args["x-message-ttl"])
		if d := time.Duration(ms) * time.Millisecond; ok && m.waits(wait) && !amqpvalue.IsWaitQueue(wait.Name) && !slices.Contains(delays, d) {
			delays = append(delays, d)
		}
	}
	slices.Sort(delays)
	var words []string
	for _, d := range delays {
		words = append(words, config.FormatDuration(d))
	}
	switch len(words) {
	case 0:
		return append(all, nil)
	case 1:
		return append(all, settings{"backoff: {fixed: " + words[0] + "}"})
	}
	return append(all, settings{"backoff: {list: [" + strings.Join(words, ", ") + "]}"})
}

// bind returns the bindings of a queue that a file can express, and the exchanges that a file can declare.
func (m *importer) bind(q *doctor.Queue) (bind []string, exchanges map[string]string) {
	exchanges = map[string]string{}
	for _, b := range m.broker.Bindings {
		if b.VHost != m.vhost || b.Source == "" || b.Destination != q.Name || b.Kind != "queue" || len(b.Args) > 0 || strings.ContainsAny(b.Source, unsupported) {
			continue
		}
		var s settings
		s.set("exchange", quoteYAML(b.Source), "")
		kind := topology.Direct
		if x := m.broker.Exchange(m.vhost, b.Source); x != nil {
			kind = x.Kind
			declarable := kind == topology.Direct || kind == topology.Fanout || kind == topology.Topic
			if declarable && x.Durable && !x.AutoDelete && !x.Internal && x.Args["alternate-exchange"] == nil && !strings.HasPrefix(x.Name, "amq.") {
				exchanges[x.Name] = kind
			}
		}
		if b.Key != "" || kind != topology.Fanout {
			s = append(s, "key: "+quoteYAML(b.Key))
		}
		bind = append(bind, strings.Join(s, ", "))
	}
	return bind, exchanges
}
