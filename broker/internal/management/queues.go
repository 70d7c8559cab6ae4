package management

import (
	"cmp"
	"fmt"

	"github.com/reprisemq/reprise/broker/internal/access"
	"github.com/reprisemq/reprise/broker/internal/queue"
	"github.com/reprisemq/reprise/broker/internal/session"
	"github.com/reprisemq/reprise/broker/internal/vhost"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

func (h *Handler) queues() {
	h.handle("GET /api/queues", anyone, listQueues)
	h.handle("GET /api/queues/{vhost}", anyone, listQueues)
	h.handle("GET /api/queues/{vhost}/{queue}", anyone, getQueue)
	h.handle("PUT /api/queues/{vhost}/{queue}", anyone, putQueue)
	h.handle("DELETE /api/queues/{vhost}/{queue}", anyone, deleteQueue)
	h.handle("DELETE /api/queues/{vhost}/{queue}/contents", anyone, purgeQueue)
	h.handle("POST /api/queues/{vhost}/{queue}/get", anyone, getFrom)
	h.handle("GET /api/queues/{vhost}/{queue}/bindings", anyone, queueBindings)
}

// declaredQueue returns the fields that the declaration of a queue determines, in the format of the API and of
// definitions.
func declaredQueue(v *vhost.VHost, q *vhost.Queue) fields {
	return fields{
		"name": q.Name(), "vhost": v.Name(), "type": queueType(q.Config()),
		"durable": q.Durable, "auto_delete": q.AutoDelete, "arguments": queueArguments(q),
	}
}

// describeQueue returns an element of GET /api/queues.
func (c *call) describeQueue(v *vhost.VHost, q *vhost.Queue) fields {
	s, config, applied := q.Stats(), q.Config(), q.Applied()
	policy, operator := applied.Names()
	bytes := s.ReadyBytes + s.UnackedBytes
	persistent, persistentBytes := 0, int64(0)
	if q.Durable {
		persistent, persistentBytes = s.Ready+s.Unacked, bytes
	}
	served := 0 // 1 if the queue has consumers and no ready messages
	if s.Consumers > 0 && s.Ready == 0 {
		served = 1
	}
	info := declaredQueue(v, q).with(fields{
		"node":                         NodeName,
		"state":                        "running",
		"exclusive":                    q.Owner != nil,
		"internal":                     false,
		"internal_owner":               false,
		"effective_policy_definition":  effectiveDefinition(applied),
		"consumers":                    s.Consumers,
		"consumer_capacity":            served,
		"consumer_utilisation":         served,
		"memory":                       s.Memory,
		"message_bytes":                bytes,
		"message_bytes_ready":          s.ReadyBytes,
		"message_bytes_unacknowledged": s.UnackedBytes,
		"messages_persistent":          persistent,
		"message_bytes_persistent":     persistentBytes,
		"message_bytes_ram":            bytes - s.OnDiskBytes,
		"messages_ram":                 s.Ready - s.OnDisk + s.Unacked,
	}).with(c.h.rates.depth(q.Queue, s.Ready, s.Unacked)).with(c.h.rates.messageStats(q.Queue, s.Counts, queueCounters))
	if policy != "" {
		info["policy"] = policy
	}
	if operator != "" {
		info["operator_policy"] = operator
	}
	if !config.Quorum {
		return info.with(fields{
			"messages_ready_ram":          s.Ready - s.OnDisk,
			"messages_unacknowledged_ram": s.Unacked,
			"storage_version":             2,
		})
	}
	var limit any = "unlimited"
	if config.DeliveryLimit >= 0 {
		limit = config.DeliveryLimit
	}
	return info.with(fields{
		"leader":            NodeName, // the only member
		"members":           []string{NodeName},
		"online":            []string{NodeName},
		"delivery_limit":    limit,
		"delayed_retry":     delayedRetry(config.Retry),
		"messages_delayed":  s.Delayed,
		"messages_dlx":      s.Dead,
		"message_bytes_dlx": s.DeadBytes,
	})
}

func queueType(c queue.Config) string {
	if c.Quorum {
		return "quorum"
	}
	return "classic"
}

func delayedRetry(r queue.Retry) string {
	switch {
	case r.Min == 0 || !r.Failed && !r.Returned:
		return "disabled"
	case r.Failed && r.Returned:
		return "all"
	case r.Failed:
		return "failed"
	}
	return "returned"
}

// queueArguments returns the arguments of a queue. Like RabbitMQ, it adds the queue type if the declaration did not
// contain it.
func queueArguments(q *vhost.Queue) arguments {
	args := q.Arguments()
	if _, given := args.Get("x-queue-type"); !given {
		args = args.Set("x-queue-type", queueType(q.Config()))
	}
	return arguments(args)
}

func listQueues(c *call) (any, error) {
	vhosts, err := c.visible()
	if err != nil {
		return nil, err
	}
	return pages(func(yield func(element) bool) {
		for _, v := range vhosts {
			for _, q := range v.Queues() {
				if !yield(func() fields { return c.describeQueue(v, q) }) {
					return
				}
			}
		}
	}), nil
}

// detailed adds the fields of a single queue that are not set, as null.
func detailed(queue fields) fields {
	for _, name := range []string{"policy", "operator_policy", "single_active_consumer_tag"} {
		if _, set := queue[name]; !set {
			queue[name] = nil
		}
	}
	return queue
}

func listDetailedQueues(c *call) (any, error) {
	all, err := listQueues(c)
	queues, _ := all.(pages)
	return pages(func(yield func(element) bool) {
		for build := range queues {
			if !yield(func() fields { return detailed(build()) }) {
				return
			}
		}
	}), err
}

// queue returns the queue in the path.
func (c *call) queue() (*vhost.VHost, *vhost.Queue, error) {
	v, err := c.vhost()
	if err != nil {
		return nil, nil, err
	}
	q := v.FindQueue(c.PathValue("queue"))
	if q == nil {
		return nil, nil, notFound
	}
	return v, q, nil
}

func getQueue(c *call) (any, error) {
	v, q, err := c.queue()
	if err != nil {
		return nil, err
	}
	consumers := list(c.consumersIn(v.Name(), q.Name()))
	detail := detailed(c.describeQueue(v, q)).with(fields{
		"consumer_details": consumers, "deliveries": []fields{}, "incoming": []fields{},
	})
	if s, ok := q.Owner.(*session.Session); ok {
		info := s.Info()
		detail["owner_pid_details"] = connectionRef(&info)
	}
	if !q.Config().SingleActive {
		return detail, nil
	}
	for describe := range consumers {
		if consumer := describe(); consumer["active"] == true {
			detail["single_active_consumer_tag"] = consumer["consumer_tag"]
			break
		}
	}
	return detail, nil
}

// queueSettings is the body of a request that declares a queue.
type queueSettings struct {
	Durable    flag      `json:"durable"`
	AutoDelete flag      `json:"auto_delete"`
	Arguments  arguments `json:"arguments"`
}

// httpOwner represents an HTTP client in operations on queues. Unlike a connection, it cannot own exclusive queues.
type httpOwner struct{}

// maxQueueName is the maximum length of a queue name in AMQP methods. RabbitMQ does not limit the names of exchanges.
const maxQueueName = 255

func putQueue(c *call) (any, error) {
	v, err := c.vhostToChange()
	if err != nil {
		return nil, err
	}
	var s struct {
		queueSettings
		Node *string `json:"node"`
	}
	if err := c.decode(&s); err != nil {
		return nil, err
	}
	if s.Node != nil && *s.Node != NodeName {
		return nil, badRequest(fmt.Sprintf("Node %s is not a cluster member", *s.Node))
	}
	name := c.PathValue("queue")
	if len(name) > maxQueueName {
		return nil, badRequest(fmt.Sprintf("queue should be less than %d bytes, actually was %d\n", maxQueueName, len(name)))
	}
	existed := v.FindQueue(name) != nil
	_, err = v.DeclareQueue(s.declaration(name), httpOwner{}, func(name string) error {
		return cmp.Or(c.may(v, access.Configure, name), c.mayForward(v, name, s.Arguments, "x-dead-letter-exchange"))
	})
	return stored(existed), err
}

func (s *queueSettings) declaration(name string) *amqpwire.QueueDeclare {
	return &amqpwire.QueueDeclare{
		Queue: name, Durable: bool(s.Durable), AutoDelete: bool(s.AutoDelete),
		Arguments: amqpwire.Table(s.Arguments),
	}
}

func deleteQueue(c *call) (any, error) {
	v, q, err := c.ownQueue(access.Configure)
	if err != nil {
		return nil, err
	}
	query := c.URL.Query()
	condition := queue.Condition{Unused: query.Get("if-unused") == "true", Empty: query.Get("if-empty") == "true"}
	_, err = v.DeleteQueue(q, condition)
	return done{}, err
}

func purgeQueue(c *call) (any, error) {
	_, q, err := c.ownQueue(access.Read)
	if err != nil {
		return nil, err
	}
	q.Purge()
	return done{}, nil
}

// ownQueue returns the queue in the path. It returns an error if the user does not have the permission op for the
// queue, or if the queue is exclusive.
func (c *call) ownQueue(op access.Operation) (*vhost.VHost, *vhost.Queue, error) {
	v, info, err := c.queue()
	if err != nil {
		return nil, nil, err
	}
	if err := c.may(v, op, info.Name()); err != nil {
		return nil, nil, err
	}
	q, err := v.Queue(info.Name(), httpOwner{})
	return v, q, err
}
