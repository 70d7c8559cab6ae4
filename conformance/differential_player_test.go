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

// player plays scripts on one broker, for two clients with a connection each. A third one only looks.
type player struct {
	t      *testing.T
	broker testkit.Target
	lines  [3]*line

	// Of the script that is played.
	prefix  string
	graph   graph
	queues  []string
	lanes   [2]*lane
	watcher *lane
	step    int
}

const watching = 2 // the line of the one that looks

// begin makes ready for a script.
func (p *player) begin(s script, prefix string) {
	p.prefix, p.graph, p.queues, p.step = prefix, graphOf(s), s.queues(), 0
	p.lanes, p.watcher = [2]*lane{}, nil
}

// A name in a script stands for one that nobody else has.
var scriptName = regexp.MustCompile(`^([qx]\d|missing)$`)

func (p *player) name(s string) string {
	if scriptName.MatchString(s) {
		return p.prefix + s
	}
	return s
}

// named turns names back.
func (p *player) named(s string) string { return strings.ReplaceAll(s, p.prefix, "") }

// qualified is a method with names that nobody else has.
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

// methodText writes a method with the fields that are set.
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

// lane returns the client's channel, a new one if it has lost the last.
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

// mixed reports whether the deliveries of a client come from queues whose dead letters might meet.
func (p *player) mixed(ln *lane) bool {
	var queues []string
	for _, d := range ln.pending {
		queues = append(queues, d.queue)
	}
	return p.graph.meet(queues)
}

// shared reports whether several of a client's consumers have deliveries of the same queue, or it has some by basic.get
// and some otherwise.
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

// look tells all that can be seen at the moment, when both clients' channels have said what they had to say: what came
// since the step began, and how many messages and consumers each queue has.
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

// close ends a client's channel, so that its messages are in their queues again.
func (p *player) close(c on) string {
	if ln := p.lanes[c]; ln != nil && ln.open {
		return ln.call(&amqpwire.ChannelClose{})
	}
	return "is closed"
}

// drain takes all messages out of a queue.
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

// clean deletes all that the script has made.
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
