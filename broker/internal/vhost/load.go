package vhost

import (
	"slices"

	"github.com/reprisemq/reprise/broker/internal/exception"
	"github.com/reprisemq/reprise/broker/internal/queue"
	"github.com/reprisemq/reprise/broker/internal/registry"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

// Load returns the virtual hosts that are in the registry, by name, with everything in them as it was declared. A process
// that died may have left a part of what it was changing: what belongs to something that is not there is removed.
//
// No dead letter is sent, and no queue's lease ends, before everything is there.
func Load(config Config) (hosts map[string]*VHost, err error) {
	l := loader{config: config, hosts: make(map[string]*VHost)}
	defer func() {
		for _, v := range l.hosts {
			v.registry = config.Registry
			v.change.Unlock()
			if err != nil {
				v.Close()
			}
			v.letters.release()
		}
	}()
	for _, part := range []struct {
		kind  string
		names int
		load  func(*registry.Document) error
	}{
		{hostKind, 1, l.host},
		{exchangeKind, 2, l.exchange},
		{queueKind, 2, l.queue},
		{bindingKind, 6, l.binding},
	} {
		for d, err := range config.Registry.All(part.kind, part.names) {
			if err == nil {
				err = part.load(d)
			}
			if err != nil {
				return nil, err
			}
		}
	}
	return l.hosts, l.sweep()
}

type loader struct {
	config Config
	hosts  map[string]*VHost
	ids    []uint64 // of the queues
}

func (l *loader) host(d *registry.Document) error {
	var kept hostDocument
	if err := d.Decode(&kept); err != nil {
		return err
	}
	v := newVHost(d.Names[0], l.config)
	v.about = About(kept)
	v.letters.held = true
	v.change.Lock() // until everything is there
	l.hosts[v.name] = v
	return nil
}

// open decodes a document and the arguments in it. It returns the virtual host that the document belongs to, or removes the
// document if there is none.
func (l *loader) open(d *registry.Document, kind string, kept any, encoded *encodedArgs) (*VHost, amqpwire.Table, error) {
	if err := d.Decode(kept); err != nil {
		return nil, nil, err
	}
	args, err := encoded.decode()
	if err != nil {
		return nil, nil, d.Damaged(err)
	}
	v := l.hosts[d.Names[0]]
	if v == nil {
		l.drop(d, kind, "there is no such virtual host")
	}
	return v, args, nil
}

func (l *loader) drop(d *registry.Document, kind string, why any) {
	l.config.Log.Warn("left over and removed", "kind", kind, "names", d.Names, "reason", why)
	l.config.Registry.Delete(kind, d.Names...)
}

func (l *loader) exchange(d *registry.Document) error {
	var kept exchangeDocument
	v, args, err := l.open(d, exchangeKind, &kept, &kept.Arguments)
	if v == nil {
		return err
	}
	err = v.addExchange(d.Names[1], &amqpwire.ExchangeDeclare{
		Type: kept.Type, Durable: true, AutoDelete: kept.AutoDelete, Internal: kept.Internal, Arguments: args,
	})
	if err != nil {
		return d.Damaged(err)
	}
	return nil
}

func (l *loader) queue(d *registry.Document) error {
	var kept queueDocument
	v, args, err := l.open(d, queueKind, &kept, &kept.Arguments)
	if v == nil {
		return err
	}
	l.ids = append(l.ids, kept.ID)
	declared := &amqpwire.QueueDeclare{Durable: true, AutoDelete: kept.AutoDelete, Arguments: args}
	config, err := v.queueConfig(d.Names[1], declared)
	if err != nil {
		return d.Damaged(err)
	}
	config.ID = kept.ID
	_, err = v.addQueue(declared, nil, config, queue.Restore)
	return err
}

func (l *loader) binding(d *registry.Document) error {
	var kept bindingDocument
	v, args, err := l.open(d, bindingKind, &kept, &kept.Arguments)
	if v == nil {
		return err
	}
	err = v.bind(BindingInfo{
		Source: d.Names[1], ToExchange: d.Names[2] == toExchange, Destination: d.Names[3], Key: d.Names[4], Arguments: args,
	}, nil)
	if refused, ok := err.(*exception.Error); ok {
		l.drop(d, bindingKind, refused)
		return nil
	}
	return err
}

// sweep removes what the store has of queues that did not last: messages that were on disk because there was no room in
// memory, or that nobody came to delete before the process died, and notes about them.
func (l *loader) sweep() error {
	if l.config.Store == nil {
		return nil
	}
	all, err := l.config.Store.Queues()
	if err != nil {
		return err
	}
	noted, err := queue.Noted(l.config.Store)
	if err != nil {
		return err
	}
	slices.Sort(l.ids)
	for _, id := range slices.Concat(all, noted) {
		if _, lasts := slices.BinarySearch(l.ids, id); !lasts {
			queue.Remove(l.config.Store, id)
		}
	}
	return nil
}
