package vhost

import (
	"slices"

	"github.com/reprisemq/reprise/broker/internal/exception"
	"github.com/reprisemq/reprise/broker/internal/queue"
	"github.com/reprisemq/reprise/broker/internal/registry"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

// Load returns the virtual hosts in the registry, by name, with all their saved objects. If a crash interrupted a
// change, the virtual host, exchange or queue of an object may be missing. Load removes such objects.
//
// Until all objects are loaded, no dead letters are sent and no queue expires.
func Load(config Config) (hosts map[string]*VHost, err error) {
	l := loader{config: config, hosts: make(map[string]*VHost)}
	defer func() {
		for _, v := range l.hosts {
			v.registry = config.Registry
			v.loading = false
			v.change.Unlock()
			if err != nil {
				v.Close()
			}
			v.deadLetters.resume()
		}
	}()
	if err := load(config.Registry, hostKind, 1, l.host); err != nil {
		return nil, err
	}
	if err := load(config.Registry, policyKind, 3, l.policy); err != nil {
		return nil, err
	}
	for _, v := range l.hosts {
		v.applyPolicies() // to the predeclared exchanges
	}
	if err := load(config.Registry, exchangeKind, 2, l.exchange); err != nil {
		return nil, err
	}
	if err := load(config.Registry, queueKind, 2, l.queue); err != nil {
		return nil, err
	}
	if err := load(config.Registry, bindingKind, 6, l.binding); err != nil {
		return nil, err
	}
	return l.hosts, l.sweep()
}

func load[T any](r *registry.Registry, kind string, names int, one func(*registry.Document[T]) error) error {
	for d, err := range registry.All[T](r, kind, names) {
		if err == nil {
			err = one(d)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

type loader struct {
	config Config
	hosts  map[string]*VHost
	ids    []uint64 // IDs of the loaded queues, and of the exchanges with waiting messages
}

func (l *loader) host(d *registry.Document[hostDocument]) error {
	v := newVHost(d.Names[0], l.config)
	v.about = About(d.Value)
	v.deadLetters.paused = true
	v.loading = true
	v.change.Lock() // unlocked after all objects are loaded
	l.hosts[v.name] = v
	return nil
}

// vhost returns the virtual host of an object. If the virtual host is missing, it removes the object.
func (l *loader) vhost(kind string, names []string) *VHost {
	v := l.hosts[names[0]]
	if v == nil {
		l.drop(kind, names, "virtual host not found")
	}
	return v
}

func (l *loader) drop(kind string, names []string, why any) {
	l.config.Log.Warn("removed leftover object", "kind", kind, "names", names, "reason", why)
	l.config.Registry.Delete(kind, names...)
}

func (l *loader) policy(d *registry.Document[policyDocument]) error {
	v := l.vhost(policyKind, d.Names)
	if v == nil {
		return nil
	}
	p := &Policy{
		Name: d.Names[2], Operator: d.Names[1] == operatorPolicy, Pattern: d.Value.Pattern, ApplyTo: d.Value.ApplyTo,
		Priority: d.Value.Priority, Definition: d.Value.Definition,
	}
	if err := p.prepare(); err != nil {
		return d.Damaged(err)
	}
	_ = v.reserve(p.size, nil, "") // cannot fail during loading
	v.policiesFor(p.Operator)[p.Name] = p
	return nil
}

func (l *loader) exchange(d *registry.Document[exchangeDocument]) error {
	args, err := d.Value.Arguments.decode()
	if err != nil {
		return d.Damaged(err)
	}
	v := l.vhost(exchangeKind, d.Names)
	if v == nil {
		return nil
	}
	if d.Value.ID != 0 {
		l.ids = append(l.ids, d.Value.ID)
	}
	err = v.addExchange(d.Names[1], d.Value.ID, &amqpwire.ExchangeDeclare{
		Type: d.Value.Type, Durable: true, AutoDelete: d.Value.AutoDelete, Internal: d.Value.Internal, Arguments: args,
	})
	if refused, ok := err.(*exception.Error); ok {
		return d.Damaged(refused)
	}
	return err
}

func (l *loader) queue(d *registry.Document[queueDocument]) error {
	args, err := d.Value.Arguments.decode()
	if err != nil {
		return d.Damaged(err)
	}
	v := l.vhost(queueKind, d.Names)
	if v == nil {
		return nil
	}
	l.ids = append(l.ids, d.Value.ID)
	declared := &amqpwire.QueueDeclare{Durable: true, AutoDelete: d.Value.AutoDelete, Arguments: args}
	config, err := v.queueConfig(d.Names[1], declared)
	if err != nil {
		return d.Damaged(err)
	}
	config.ID = d.Value.ID
	_, err = v.addQueue(declared, nil, config, queue.Restore)
	return err
}

func (l *loader) binding(d *registry.Document[bindingDocument]) error {
	args, err := d.Value.Arguments.decode()
	if err != nil {
		return d.Damaged(err)
	}
	v := l.vhost(bindingKind, d.Names)
	if v == nil {
		return nil
	}
	err = v.bind(BindingInfo{
		Source: d.Names[1], ToExchange: d.Names[2] == toExchange, Destination: d.Names[3], Key: d.Names[4], Arguments: args,
	}, nil)
	if refused, ok := err.(*exception.Error); ok {
		l.drop(bindingKind, d.Names, refused)
		return nil
	}
	return err
}

// sweep removes the stored messages and notes of queues that no longer exist. Such messages were on disk only for lack of
// memory, or the broker crashed before it removed them.
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
