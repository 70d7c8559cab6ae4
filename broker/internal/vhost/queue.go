package vhost

import (
	"cmp"
	"crypto/rand"
	"encoding/base64"
	"strings"

	"github.com/reprisemq/reprise/broker/internal/budget"
	"github.com/reprisemq/reprise/broker/internal/exception"
	"github.com/reprisemq/reprise/broker/internal/queue"
	"github.com/reprisemq/reprise/broker/internal/quota"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

// Queue is a declared queue.
type Queue struct {
	*queue.Queue
	Durable, AutoDelete bool
	Owner               any // connection that owns an exclusive queue; nil for other queues

	vhost     *VHost
	account   *budget.Account // account of Owner
	arguments amqpwire.Table  // guarded by VHost.mu
	applied   Applied         // changed under VHost.change and VHost.mu
	deleted   bool            // guarded by VHost.change
	waitsFor  string          // exchange whose messages wait in the queue; empty for all other queues
	// Guarded by VHost.sizes:
	owned bool  // counted for Owner
	size  int64 // of the queue and its bindings, if owned
}

// Arguments returns the declared arguments. It returns nil after the queue is deleted. A channel may refer to a deleted
// queue for a long time, and must not keep its arguments in memory.
func (q *Queue) Arguments() amqpwire.Table {
	q.vhost.mu.RLock()
	defer q.vhost.mu.RUnlock()
	return q.arguments
}

// String returns the queue's description for error messages: "queue 'q' in vhost '/'".
func (q *Queue) String() string { return q.vhost.queue(q.Name()) }

// Deleted reports whether the queue was deleted. It returns false for reply queues, which drop messages after their deletion.
func (q *Queue) Deleted() bool {
	if q.waitsFor != "" {
		q.vhost.mu.RLock()
		defer q.vhost.mu.RUnlock()
		return q.vhost.delaying(q) == nil
	}
	return !q.Reply() && q.vhost.lookupQueue(q.Name()) != q
}

// DeclareQueue creates a queue, unless it exists, and returns it. An existing queue must have the same properties. A
// passive declaration does not create a queue, and returns an error if the queue does not exist. If the name is empty,
// the broker generates a name. The argument owner identifies the connection of the client. DeclareQueue calls the function
// may to check the permission of the client.
func (v *VHost) DeclareQueue(d *amqpwire.QueueDeclare, owner any, may func(name string) error) (*Queue, error) {
	name := Clean(d.Queue)
	if strings.HasPrefix(name, ReplyTo) {
		return v.declareReply(name)
	}
	if d.Passive {
		if err := may(name); err != nil {
			return nil, err
		}
		q, err := v.Queue(name, owner)
		if err == nil {
			q.Touch()
		}
		return q, err
	}
	v.change.Lock()
	defer v.change.Unlock()
	d = v.typed(d)
	named := name != ""
	if !named {
		name = RandomName("amq.gen-")
	}
	if err := may(name); err != nil {
		return nil, err
	}
	if q := v.lookupQueue(name); q != nil {
		q.Touch()
		v.config.Stats.Churn.QueuesDeclared.Add(1)
		return q, v.sameQueue(q, d, owner)
	} else if named && strings.HasPrefix(name, "amq.") {
		return nil, reserved("queue", name)
	}

	if err := v.roomForQueue(name); err != nil {
		return nil, err
	}
	config, err := v.queueConfig(name, d)
	if err != nil {
		return nil, err
	}
	if config.Store != nil {
		config.ID = v.registry.QueueID()
	}
	return v.addQueue(d, owner, config, func(c queue.Config) (*queue.Queue, error) {
		if err := v.saveQueue(name, config.ID, d); err != nil {
			return nil, err
		}
		v.config.Stats.Churn.QueuesDeclared.Add(1)
		v.config.Stats.Churn.QueuesCreated.Add(1)
		return queue.New(c), nil
	})
}

// typed returns a declaration with the default queue type of the virtual host, if it contains no type. As in RabbitMQ,
// transient, exclusive and auto-delete queues remain classic.
func (v *VHost) typed(d *amqpwire.QueueDeclare) *amqpwire.QueueDeclare {
	kind, _ := d.Arguments.Get("x-queue-type")
	given, usual := kind != nil && kind != "" && kind != "undefined", v.About().QueueType
	if given || usual == "" || !d.Durable || d.Exclusive || d.AutoDelete {
		return d
	}
	typed := *d
	typed.Arguments = d.Arguments.Set("x-queue-type", usual)
	return &typed
}

// addQueue adds a new queue or a queue from the store.
func (v *VHost) addQueue(
	d *amqpwire.QueueDeclare, owner any, config queue.Config, make_ func(queue.Config) (*queue.Queue, error),
) (*Queue, error) {
	q := &Queue{vhost: v, Durable: d.Durable, AutoDelete: d.AutoDelete, arguments: d.Arguments}
	if d.Exclusive {
		v.addOwned(q, owner)
	}
	size := sizeOfQueue(&config, d.Arguments)
	if err := v.reserve(size, q, v.queue(config.Name)); err != nil {
		return nil, err // never for an exclusive queue
	}
	kind := kindOf(&config)
	if q.applied = v.policiesOfQueue(config.Name, kind); q.applied != (Applied{}) {
		config.Settings = v.settings(kind, d.Arguments, q.applied)
	}
	config.Expired = func() { _, _ = v.DeleteQueue(q, queue.Condition{Over: true}) }
	var err error
	if q.Queue, err = make_(config); err != nil {
		v.free(size, q)
		v.release(q)
		return nil, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.queues[config.Name] = q
	return q, nil
}

func (v *VHost) roomForQueue(name string) error {
	limit := int64(v.config.MaxQueues)
	limits := v.config.Limits(v.name)
	v.mu.RLock()
	defer v.mu.RUnlock()
	n := len(v.queues)
	if limit > 0 && n >= int(limit) || limits != nil {
		n = v.declaredQueues()
	}
	reached := limit > 0 && n >= int(limit)
	if set, full := limits.Reached(quota.MaxQueues, n); full {
		limit, reached = set, true
	}
	if reached {
		return exception.New(exception.PreconditionFailed,
			"cannot declare queue '%s': queue limit in vhost '%s' (%d) is reached", name, v.name, limit)
	}
	return nil
}

// declaredQueues returns the number of queues, excluding the queues of direct reply-to. The caller holds the lock.
func (v *VHost) declaredQueues() (n int) {
	for name := range v.queues {
		if !isReply(name) {
			n++
		}
	}
	return n
}

func (v *VHost) sameQueue(q *Queue, d *amqpwire.QueueDeclare, owner any) error {
	if (q.Owner != nil) != d.Exclusive || d.Exclusive && q.Owner != owner {
		return v.locked(q.Name())
	}
	of := v.queue(q.Name())
	return cmp.Or(
		same("durable", of, d.Durable, q.Durable),
		same("auto_delete", of, d.AutoDelete, q.AutoDelete),
		v.sameArguments(q, d.Arguments),
	)
}

// Queue returns the named queue. It returns an error if the queue does not exist, or is the exclusive queue of
// another connection. A reply queue need not exist.
func (v *VHost) Queue(name string, owner any) (*Queue, error) {
	q := v.lookupQueue(name)
	if q == nil && isReply(name) {
		q = v.deletedReply(name)
	}
	if q == nil {
		return nil, v.noQueue(name)
	}
	if q.Owner != nil && q.Owner != owner && !q.Reply() {
		return nil, v.locked(name)
	}
	return q, nil
}

// DeleteQueue deletes a queue if the conditions are met. It returns the number of ready messages that were in the queue.
// It has no effect on a reply queue.
func (v *VHost) DeleteQueue(q *Queue, if_ queue.Condition) (int, error) {
	if q.Reply() {
		return 0, nil
	}
	v.change.Lock()
	defer v.change.Unlock()
	return v.deleteQueue(q, if_)
}

func (v *VHost) deleteQueue(q *Queue, if_ queue.Condition) (int, error) {
	if q.deleted {
		return 0, nil
	}
	n, failed := q.Delete(if_)
	switch {
	case failed.Empty:
		return 0, exception.New(exception.PreconditionFailed, "%s not empty", v.queue(q.Name()))
	case failed.Unused:
		return 0, exception.New(exception.PreconditionFailed, "%s in use", v.queue(q.Name()))
	}
	q.deleted = true
	v.config.Stats.Churn.QueuesDeleted.Add(1)
	v.free(v.remove(q).Footprint(), q)
	config := q.Config()
	size := sizeOfQueue(&config, nil)
	q.WhenUnheld(func() {
		v.free(size, q)
		v.release(q)
	})
	return n, nil
}

// remove removes a deleted queue from the maps and the registry, and returns its arguments.
func (v *VHost) remove(q *Queue) (args amqpwire.Table) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.queues, q.Name())
	v.routes.DeleteQueue(q)
	v.deleteSavedQueue(q)
	args, q.arguments = q.arguments, nil
	return args
}

// ConsumerGone deletes an auto-delete queue that has no more consumers. Call it after a consumer was removed.
func (v *VHost) ConsumerGone(q *Queue) {
	if !q.AutoDelete {
		return
	}
	v.change.Lock()
	defer v.change.Unlock()
	// The queue remains if a new consumer has subscribed in the meantime.
	_, _ = v.deleteQueue(q, queue.Condition{Unused: true})
}

// OwnerGone deletes the exclusive queues of a closed connection.
func (v *VHost) OwnerGone(owner any) {
	owned := v.ownedBy(owner)
	if len(owned) == 0 {
		return // most connections own no queues and do not need the lock
	}
	v.change.Lock()
	defer v.change.Unlock()
	for _, q := range owned {
		_, _ = v.deleteQueue(q, queue.Condition{}) // cannot fail, because it has no conditions
		v.release(q)
	}
}

func (v *VHost) lookupQueue(name string) *Queue {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.queues[name]
}

func (v *VHost) noQueue(name string) error {
	return exception.New(exception.NotFound, "no %s", v.queue(name))
}

func (v *VHost) locked(name string) error {
	return exception.New(exception.ResourceLocked, "cannot obtain exclusive access to locked %s. "+
		"It could be originally declared on another connection or the exclusive property value "+
		"does not match that of the original declaration.", v.queue(name))
}

// randomBytes is the number of random bytes in a name from [RandomName].
const randomBytes = 16

// RandomName returns a unique name in RabbitMQ's format: the prefix and 22 characters.
func RandomName(prefix string) string {
	var id [randomBytes]byte
	_, _ = rand.Read(id[:]) // never fails
	return prefix + base64.RawURLEncoding.EncodeToString(id[:])
}
