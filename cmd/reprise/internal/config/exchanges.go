package config

import (
	"slices"
	"strings"

	"github.com/reprisemq/reprise/internal/brief"
	"github.com/reprisemq/reprise/topology"
)

// exchanges contains the exchanges that the file declares.
type exchanges struct {
	embedded bool // the broker has only the objects that the file declares
	all      []exchange
}

type exchange struct {
	topology.Exchange
	field
	bound bool
}

// decode reads the mapping from names to types.
func (e *exchanges) decode(v value) {
	f, ok := v.fields("exchanges")
	if !ok {
		return
	}
	for _, p := range f.pairs {
		switch {
		case p.key == "" || len(p.key) > maxName:
			v.failAt(p.keyAt, "exchange name must have 1 to %d bytes", maxName)
			continue
		case strings.HasPrefix(p.key, reserved):
			v.failAt(p.keyAt, "exchange %s is predeclared by the broker: remove it", brief.Quoted(p.key))
			continue
		}
		kind, _ := exchangeKind(p.value)
		e.all = append(e.all, exchange{Exchange: topology.Exchange{Name: p.key, Kind: kind}, field: p})
	}
}

// bind reads the bindings of a queue. It also returns the exchanges that the bindings need.
func (e *exchanges) bind(v value, queue string) topology.Topology {
	var t topology.Topology
	t.Bindings, _ = list("a list such as [{exchange: NAME, key: ROUTING-KEY}]", mapping("a binding", func(f *fields, b *topology.Binding) {
		b.Queue = queue
		if x, ok := f.get("exchange"); !ok {
			f.missing("a binding needs an exchange: add exchange: NAME", "exchange")
		} else if b.Exchange, ok = amqpName("orders", 0)(x.value); ok {
			t.Exchanges = append(t.Exchanges, e.use(x.value, b.Exchange)...)
		}
		kind := e.kind(b.Exchange)
		if !read(f, "key", &b.RoutingKey, value.routingKey) && (kind == topology.Topic || kind == topology.Direct) {
			f.fail("a binding to exchange %s of kind %s needs a key: add key: ROUTING-KEY", brief.Quoted(b.Exchange), kind)
		}
	}))(v)
	return t
}

func (e *exchanges) kind(name string) string {
	for _, x := range e.all {
		if x.Name == name {
			return x.Kind
		}
	}
	return ""
}

// use marks an exchange as bound, and returns its declaration in the file, if any. On the embedded broker, it reports an
// undeclared exchange.
func (e *exchanges) use(v value, name string) []topology.Exchange {
	i := e.require(v, name)
	if i < 0 {
		return nil
	}
	e.all[i].bound = true
	return []topology.Exchange{e.all[i].Exchange}
}

// require returns the index of an exchange in the file, or -1. On the embedded broker, it reports an undeclared exchange.
func (e *exchanges) require(v value, name string) int {
	i := slices.IndexFunc(e.all, func(x exchange) bool { return x.Name == name })
	if i >= 0 || strings.HasPrefix(name, reserved) || !e.embedded {
		return i
	}
	var names []string
	for _, x := range e.all {
		names = append(names, x.Name)
	}
	if near, ok := closest(name, names); ok {
		v.fail("exchange %s not found: did you mean %s?", brief.Quoted(name), near)
	} else {
		v.fail("%s", "exchange "+brief.Quoted(name)+" not found in the embedded broker, which starts empty: declare it with exchanges: {"+name+": topic}")
	}
	return -1
}

// finish reports exchanges without bindings.
func (e *exchanges) finish() {
	for _, x := range e.all {
		if !x.bound {
			x.failAt(x.keyAt, "no worker is bound to exchange %s, so its messages are dropped: "+
				"add bind: [{exchange: %s, key: …}] to a worker, or remove the exchange", brief.Quoted(x.Name), x.Name)
		}
	}
}
