package conformance

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/reprisemq/reprise/internal/amqpwire"
	"github.com/reprisemq/reprise/internal/testkit"
)

// player plays scripts on one broker. It has two clients with a connection each, and a third connection for observations.
type player struct {
	t      *testing.T
	broker testkit.Target
	lines  [3]*line

	// The state of the current script.
	prefix  string
	graph   graph
	queues  []string
	lanes   [2]*lane
	watcher *lane
	step    int
}

const watching = 2 // the index of the observer's connection

// begin resets the state for a new script.
func (p *player) begin(s script, prefix string) {
	p.prefix, p.graph, p.queues, p.step = prefix, graphOf(s), s.queues(), 0
	p.lanes, p.watcher = [2]*lane{}, nil
}

// scriptName matches the names in scripts that the player replaces with unique names.
var scriptName = regexp.MustCompile(`^([qx]\d|missing)$`)

func (p *player) name(s string) string {
	if scriptName.MatchString(s) {
		return p.prefix + s
	}
	return s
}

// named replaces unique names with the names in the script.
func (p *player) named(s string) string { return strings.ReplaceAll(s, p.prefix, "") }

// qualified returns a copy of a method with unique names.
func (p *player) qualified(m amqpwire.Method) amqpwire.Method {
	v := reflect.New(reflect.TypeOf(m).Elem())
	v.Elem().Set(reflect.ValueOf(m).Elem())
	for info, field := range v.Elem().Fields() {
		if !info.IsExported() {
			continue
		}
		switch f := field; value := f.Interface().(type) {
		case string:
			f.SetString(p.name(value))
		case amqpwire.Table:
			f.Set(reflect.ValueOf(p.table(value)))
		}
	}
	return v.Interface().(amqpwire.Method)
}

func (p *player) table(t amqpwire.Table) amqpwire.Table {
	t = slices.Clone(t)
	for i := range t {
		if s, ok := t[i].Value.(string); ok {
			t[i].Value = p.name(s)
		}
	}
	return t
}

// methodText formats a method, without fields that have the zero value.
func methodText(m amqpwire.Method) string {
	var text strings.Builder
	text.WriteString(m.ID().String())
	v := reflect.ValueOf(m).Elem()
	for i := range v.NumField() {
		if f := v.Field(i); !f.IsZero() {
			value := f.Interface()
			if t, ok := value.(amqpwire.Table); ok {
				value = valueText(t)
			}
			text.WriteString(fmt.Sprintf(" %s=%v", v.Type().Field(i).Name, value))
		}
	}
	return text.String()
}

func (p *player) line(i int) *line {
	if p.lines[i] == nil || p.lines[i].down != "" {
		p.lines[i] = dialLine(p.t, p.broker)
	}
	return p.lines[i]
}

// lane returns the channel of a client. It opens a new channel if the previous one is closed.
func (p *player) lane(c on) *lane {
	if ln := p.lanes[c]; ln != nil && ln.open {
		return ln
	}
	var before seen
	if p.lanes[c] != nil {
		before = p.lanes[c].seen
	}
	ln := p.line(int(c)).lane(1, p.named)
	ln.step = p.step
	ln.seen.others = before.others
	if c == 0 {
		ln.call(&amqpwire.ConfirmSelect{})
	}
	p.lanes[c] = ln
	return ln
}

func (p *player) watch() *lane {
	if p.watcher == nil || !p.watcher.open {
		p.watcher = p.line(watching).lane(1, p.named)
	}
	return p.watcher
}

// mixed reports whether the deliveries of a client come from queues whose dead letters may reach the same queue.
func (p *player) mixed(ln *lane) bool {
	var queues []string
	for _, d := range ln.pending {
		queues = append(queues, d.queue)
	}
	return p.graph.meet(queues)
}

// shared reports whether a client has unsettled deliveries of one queue from several consumers, or from a consumer and basic.get.
func (p *player) shared(ln *lane) bool {
	origins := make(map[string]string)
	for _, d := range ln.pending {
		if of, seen := origins[d.queue]; seen && of != d.origin {
			return true
		}
		origins[d.queue] = d.origin
	}
	return false
}

// look returns the observable state: the frames that the clients have received since the step began, and the number of messages and
// consumers of each queue. It first synchronizes the channels of both clients.
func (p *player) look() string {
	var lines []string
	for i, ln := range p.lanes {
		if ln == nil {
			continue
		}
		ln.sync()
		if text := ln.seen.text(on(i).String()); text != "" {
			lines = append(lines, text)
		}
	}
	for _, q := range p.queues {
		count := p.watch().call(&amqpwire.QueueDeclare{Queue: p.name(q), Passive: true})
		lines = append(lines, count)
	}
	return strings.Join(lines, "\n")
}

// advance begins the next step.
func (p *player) advance() {
	p.step++
	for _, ln := range p.lanes {
		if ln != nil {
			ln.seen.clear()
			ln.step = p.step
		}
	}
}

// close closes the channel of a client, so that the broker requeues its messages.
func (p *player) close(c on) string {
	if ln := p.lanes[c]; ln != nil && ln.open {
		return ln.call(&amqpwire.ChannelClose{})
	}
	return "is closed"
}

// drain removes all messages from a queue and returns them.
func (p *player) drain(queue string) string {
	var lines []string
	for {
		p.watch().asked = ""
		got := p.watch().call(&amqpwire.BasicGet{Queue: p.name(queue), NoAck: true})
		lines = append(lines, queue+": "+got)
		if !strings.HasPrefix(got, `"`) {
			return strings.Join(lines, "\n")
		}
	}
}

// clean deletes all objects that the script has declared.
func (p *player) clean(s script) {
	p.close(0)
	p.close(1)
	for _, q := range s.queues() {
		p.watch().call(&amqpwire.QueueDelete{Queue: p.name(q)})
	}
	for _, x := range s.exchanges() {
		p.watch().call(&amqpwire.ExchangeDelete{Exchange: p.name(x)})
	}
	p.watch().call(&amqpwire.ChannelClose{})
}
