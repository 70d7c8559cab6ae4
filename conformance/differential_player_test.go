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

// player plays scripts on one broker. It has two clients with one connection each, and a third connection for the
// observer.
type player struct {
	t      *testing.T
	broker testkit.Target
	conns  [3]*clientConn

	// The state of the current script.
	prefix       string
	graph        graph
	queues       []string
	channels     [2]*clientChannel
	observerChan *clientChannel
	step         int
}

const observer = 2 // index of the observer's connection

// begin resets the state for a new script.
func (p *player) begin(s script, prefix string) {
	p.prefix, p.graph, p.queues, p.step = prefix, graphOf(s), s.queues(), 0
	p.channels, p.observerChan = [2]*clientChannel{}, nil
}

// scriptName matches those names in scripts that the player replaces with unique names.
var scriptName = regexp.MustCompile(`^([qx]\d|missing)$`)

func (p *player) name(s string) string {
	if scriptName.MatchString(s) {
		return p.prefix + s
	}
	return s
}

// named replaces the unique names in s with the names in the script.
func (p *player) named(s string) string { return strings.ReplaceAll(s, p.prefix, "") }

// qualified returns a copy of m in which unique names replace the names in the script.
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

// methodText formats a method. It omits fields with the zero value.
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

func (p *player) conn(i int) *clientConn {
	if p.conns[i] == nil || p.conns[i].closeReason != "" {
		p.conns[i] = dialConn(p.t, p.broker)
	}
	return p.conns[i]
}

// channel returns the open channel of a client. If the channel is missing or closed, it opens a new channel.
func (p *player) channel(c clientIndex) *clientChannel {
	if ln := p.channels[c]; ln != nil && ln.open {
		return ln
	}
	var before frameLog
	if p.channels[c] != nil {
		before = p.channels[c].seen
	}
	ln := p.conn(int(c)).openChannel(1, p.named)
	ln.step = p.step
	ln.seen.others = before.others
	if c == 0 {
		ln.call(&amqpwire.ConfirmSelect{})
	}
	p.channels[c] = ln
	return ln
}

func (p *player) observerChannel() *clientChannel {
	if p.observerChan == nil || !p.observerChan.open {
		p.observerChan = p.conn(observer).openChannel(1, p.named)
	}
	return p.observerChan
}

// hasMixedSources reports whether a client has unsettled deliveries from two queues whose dead letters can reach the
// same queue.
func (p *player) hasMixedSources(ln *clientChannel) bool {
	var queues []string
	for _, d := range ln.pending {
		queues = append(queues, d.queue)
	}
	return p.graph.meet(queues)
}

// hasSharedQueue reports whether a client has unsettled deliveries from one queue through several consumers, or through
// a consumer and basic.get.
func (p *player) hasSharedQueue(ln *clientChannel) bool {
	origins := make(map[string]string)
	for _, d := range ln.pending {
		if of, seen := origins[d.queue]; seen && of != d.origin {
			return true
		}
		origins[d.queue] = d.origin
	}
	return false
}

// look returns the observable state: the frames that the clients have received since the step began, and the numbers of
// messages and consumers of each queue. It first synchronizes the channels of both clients (see sync).
func (p *player) look() string {
	var lines []string
	for i, ln := range p.channels {
		if ln == nil {
			continue
		}
		ln.sync()
		if text := ln.seen.text(clientIndex(i).String()); text != "" {
			lines = append(lines, text)
		}
	}
	for _, q := range p.queues {
		count := p.observerChannel().call(&amqpwire.QueueDeclare{Queue: p.name(q), Passive: true})
		lines = append(lines, count)
	}
	return strings.Join(lines, "\n")
}

// advance begins the next step.
func (p *player) advance() {
	p.step++
	for _, ln := range p.channels {
		if ln != nil {
			ln.seen.clear()
			ln.step = p.step
		}
	}
}

// close closes the channel of a client, so that the broker requeues the unacked messages of the channel.
func (p *player) close(c clientIndex) string {
	if ln := p.channels[c]; ln != nil && ln.open {
		return ln.call(&amqpwire.ChannelClose{})
	}
	return "is closed"
}

// drain removes all messages from a queue and returns them as text.
func (p *player) drain(queue string) string {
	var lines []string
	for {
		p.observerChannel().asked = ""
		got := p.observerChannel().call(&amqpwire.BasicGet{Queue: p.name(queue), NoAck: true})
		lines = append(lines, queue+": "+got)
		if !strings.HasPrefix(got, `"`) {
			return strings.Join(lines, "\n")
		}
	}
}

// clean deletes all queues and exchanges in the script.
func (p *player) clean(s script) {
	p.close(0)
	p.close(1)
	for _, q := range s.queues() {
		p.observerChannel().call(&amqpwire.QueueDelete{Queue: p.name(q)})
	}
	for _, x := range s.exchanges() {
		p.observerChannel().call(&amqpwire.ExchangeDelete{Exchange: p.name(x)})
	}
	p.observerChannel().call(&amqpwire.ChannelClose{})
}
