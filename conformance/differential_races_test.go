package conformance

import (
	"slices"

	"github.com/reprisemq/reprise/internal/amqpwire"
)

// graph contains the possible routes of messages in a script. It includes all declarations and bindings, and ignores
// deletions.
type graph struct {
	bound map[string][]string // from an exchange to the bound queues and exchanges
	dead  map[string][]string // from a queue to the targets of its dead letters
	all   []string            // queues
}

func graphOf(s script) graph {
	g := graph{bound: make(map[string][]string), dead: make(map[string][]string)}
	for _, o := range s {
		if m, ok := o.(method); ok {
			g.add(m.m)
		}
	}
	return g
}

func (g *graph) add(m amqpwire.Method) {
	text := func(t amqpwire.Table, name string) (string, bool) {
		v, _ := t.Get(name)
		s, ok := v.(string)
		return s, ok
	}
	switch m := m.(type) {
	case *amqpwire.QueueDeclare:
		if !slices.Contains(g.all, m.Queue) {
			g.all = append(g.all, m.Queue)
		}
		to, ok := text(m.Arguments, "x-dead-letter-exchange")
		key, has := text(m.Arguments, "x-dead-letter-routing-key")
		switch {
		case !ok:
		case to != "":
			g.dead[m.Queue] = append(g.dead[m.Queue], to)
		case has:
			g.dead[m.Queue] = append(g.dead[m.Queue], key)
		default: // the dead letter keeps its key, which can match any queue
			g.dead[m.Queue] = append(g.dead[m.Queue], "")
		}
	case *amqpwire.QueueBind:
		g.bound[m.Exchange] = append(g.bound[m.Exchange], m.Queue)
	case *amqpwire.ExchangeBind:
		g.bound[m.Source] = append(g.bound[m.Source], m.Destination)
	case *amqpwire.ExchangeDeclare:
		if to, ok := text(m.Arguments, "alternate-exchange"); ok {
			g.bound[m.Exchange] = append(g.bound[m.Exchange], to)
		}
	}
}

// reach returns the queues that a message can reach from an exchange or a queue. If dead is set, reach includes the routes
// of dead letters.
func (g *graph) reach(from string, dead bool, seen map[string]bool) []string {
	if seen[from] {
		return nil
	}
	seen[from] = true
	var found []string
	next := g.bound[from]
	if slices.Contains(g.all, from) {
		found = append(found, from)
		next = nil
		if dead {
			next = g.dead[from]
		}
	}
	for _, n := range next {
		if n == "" {
			for _, q := range g.all {
				found = append(found, g.reach(q, dead, seen)...)
			}
			continue
		}
		found = append(found, g.reach(n, dead, seen)...)
	}
	return found
}

// meet reports whether messages from two of the queues can reach the same queue.
func (g *graph) meet(queues []string) bool {
	queues = slices.Compact(slices.Sorted(slices.Values(queues)))
	for i, a := range queues {
		for _, b := range queues[:i] {
			from := g.reach(a, true, map[string]bool{})
			if slices.ContainsFunc(g.reach(b, true, map[string]bool{}), func(q string) bool { return slices.Contains(from, q) }) {
				return true
			}
		}
	}
	return false
}

func (g *graph) racy() bool {
	for x := range g.bound {
		if g.meet(g.reach(x, false, map[string]bool{})) {
			return true
		}
	}
	return false
}

// removeRaces returns a script without the operations whose outcome is random.
func removeRaces(s script) script {
	var kept script
	for i, o := range s {
		if mayLoseTarget(s[:i], s, o) {
			o = withoutAtLeastOnce(o)
		}
		if p, ok := o.(publish); ok && p.n > 1 && expiresInLimitedQueue(s) {
			p.n = 1
			o = p
		}
		next := append(slices.Clone(kept), o)
		g := graphOf(next)
		if g.racy() || transactional(next) && g.meet(g.all) || expiresInPriorityQueue(s, o) || autoAckWithPrefetch(s, o) || replacesActive(s, kept, o) || changesType(kept, o) {
			continue
		}
		if p, ok := o.(publish); ok && p.props.Headers != nil && p.exchange == "" {
			if keys := append(slices.Clone(keysOf(p)), p.key); len(keys) > 1 && g.meet(g.all) {
				continue
			}
		}
		kept = next
	}
	return kept
}

// transactional reports whether a script contains tx.select, so that it can change several queues in one transaction.
func transactional(s script) bool {
	return slices.ContainsFunc(s, func(o operation) bool {
		m, ok := o.(method)
		if !ok {
			return false
		}
		_, ok = m.m.(*amqpwire.TxSelect)
		return ok
	})
}

// mayLoseTarget reports whether an operation declares a queue with the at-least-once strategy whose dead-letter target
// may be missing or full.
func mayLoseTarget(before, all script, o operation) bool {
	m, ok := o.(method)
	if !ok {
		return false
	}
	d, ok := m.m.(*amqpwire.QueueDeclare)
	if !ok {
		return false
	}
	if _, must := d.Arguments.Get("x-dead-letter-strategy"); !must {
		return false
	}
	target, _ := d.Arguments.Get("x-dead-letter-routing-key")
	there := false
	for i, o := range all {
		m, ok := o.(method)
		if !ok {
			continue
		}
		switch m := m.m.(type) {
		case *amqpwire.QueueDeclare:
			_, limited := m.Arguments.Get("x-max-length")
			there = there || i < len(before) && m.Queue == target
			if limited && m.Queue == target {
				return true
			}
		case *amqpwire.QueueDelete:
			return true
		}
	}
	return !there
}

// withoutAtLeastOnce returns the queue declaration o without the at-least-once strategy.
func withoutAtLeastOnce(o operation) operation {
	d := *o.(method).m.(*amqpwire.QueueDeclare)
	d.Arguments = d.Arguments.Delete("x-dead-letter-strategy")
	return call(o.(method).clientIndex, &d)
}

// expiresInPriorityQueue reports whether an operation makes messages expire immediately, in a script with a priority
// queue.
func expiresInPriorityQueue(s script, o operation) bool {
	if !slices.ContainsFunc(s, func(o operation) bool { return declaredWith(o, "x-max-priority") != nil }) {
		return false
	}
	return expiring(o)
}

// autoAckWithPrefetch reports whether an operation starts a consumer with automatic acks and a prefetch, in a script in
// which messages that are not delivered immediately can expire or be dropped.
func autoAckWithPrefetch(s script, o operation) bool {
	c, ok := o.(consume)
	return ok && c.noAck && c.prefetch > 0 && (slices.ContainsFunc(s, expiring) || slices.ContainsFunc(s, limited))
}

// replacesActive reports whether an operation starts a consumer that may replace the single active consumer of a quorum queue.
func replacesActive(s, before script, o operation) bool {
	c, ok := o.(consume)
	return ok && slices.ContainsFunc(s, func(o operation) bool {
		return declaredWith(o, "x-single-active-consumer") == true && declaredWith(o, "x-queue-type") == "quorum" && o.(method).m.(*amqpwire.QueueDeclare).Queue == c.queue
	}) && slices.ContainsFunc(before, func(o operation) bool {
		other, ok := o.(consume)
		return ok && other.queue == c.queue && other.priority < c.priority
	})
}

// changesType reports whether an operation declares a queue that was deleted, with another type.
func changesType(before script, o operation) bool {
	queueDeclare := func(o operation) *amqpwire.QueueDeclare {
		m, _ := o.(method)
		d, _ := m.m.(*amqpwire.QueueDeclare)
		return d
	}
	next := queueDeclare(o)
	if next == nil {
		return false
	}
	deleted, changed := false, false
	for _, b := range before {
		if m, ok := b.(method); ok {
			d, deletes := m.m.(*amqpwire.QueueDelete)
			deleted = deleted || deletes && d.Queue == next.Queue
		}
		if d := queueDeclare(b); d != nil && d.Queue == next.Queue {
			changed = changed || declaredWith(b, "x-queue-type") != declaredWith(o, "x-queue-type")
		}
	}
	return deleted && changed
}

// expiresInLimitedQueue reports whether a script has messages that expire immediately, and queues with a small limit.
// If such a script publishes several messages in a row, it is random whether the earlier messages have expired when the
// later messages arrive.
func expiresInLimitedQueue(s script) bool {
	return slices.ContainsFunc(s, expiring) && slices.ContainsFunc(s, limited)
}

func limited(o operation) bool {
	return declaredWith(o, "x-max-length") != nil || declaredWith(o, "x-max-length-bytes") != nil
}

func expiring(o operation) bool {
	p, ok := o.(publish)
	return declaredWith(o, "x-message-ttl") == int32(0) || ok && p.props.Expiration == "0"
}

// declaredWith returns the argument with the given name if o declares a queue with this argument, and otherwise nil.
func declaredWith(o operation, name string) any {
	if m, ok := o.(method); ok {
		if d, ok := m.m.(*amqpwire.QueueDeclare); ok {
			v, _ := d.Arguments.Get(name)
			return v
		}
	}
	return nil
}

func keysOf(p publish) []string {
	var keys []string
	for _, name := range []string{"CC", "BCC"} {
		v, _ := p.props.Headers.Get(name)
		if a, ok := v.(amqpwire.Array); ok {
			for _, k := range a {
				if s, ok := k.(string); ok {
					keys = append(keys, s)
				}
			}
		}
	}
	return keys
}
