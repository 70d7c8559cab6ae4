package management

import (
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

// queueInfo is an element of GET /api/queues.
type queueInfo struct {
	Name                string    `json:"name"`
	VHost               string    `json:"vhost"`
	Type                string    `json:"type"`
	Node                string    `json:"node"`
	State               string    `json:"state"`
	Durable             bool      `json:"durable"`
	AutoDelete          bool      `json:"auto_delete"`
	Exclusive           bool      `json:"exclusive"`
	Internal            bool      `json:"internal"`
	InternalOwner       bool      `json:"internal_owner"`
	Arguments           arguments `json:"arguments"`
	EffectivePolicy     struct{}  `json:"effective_policy_definition"`
	Consumers           int       `json:"consumers"`
	ConsumerCapacity    float64   `json:"consumer_capacity"`
	ConsumerUtilisation float64   `json:"consumer_utilisation"`
	Memory              int64     `json:"memory"`
	depth
	Bytes        int64       `json:"message_bytes"`
	BytesReady   int64       `json:"message_bytes_ready"`
	BytesUnacked int64       `json:"message_bytes_unacknowledged"`
	BytesRAM     int64       `json:"message_bytes_ram"`
	RAM          int         `json:"messages_ram"`
	MessageStats *queueStats `json:"message_stats,omitempty"`
	*classicInfo
	*quorumInfo
}

// classicInfo is what classic queues have beyond that.
type classicInfo struct {
	ReadyRAM       int `json:"messages_ready_ram"`
	UnackedRAM     int `json:"messages_unacknowledged_ram"`
	StorageVersion int `json:"storage_version"`
}

// quorumInfo is what quorum queues have beyond that. There is one member, this node.
type quorumInfo struct {
	Leader        string   `json:"leader"`
	Members       []string `json:"members"`
	Online        []string `json:"online"`
	DeliveryLimit any      `json:"delivery_limit"` // a number or, without one, the word unlimited
	DelayedRetry  string   `json:"delayed_retry"`
	Delayed       int      `json:"messages_delayed"`
	DeadLetters   int      `json:"messages_dlx"`
	BytesDead     int64    `json:"message_bytes_dlx"`
}

// queueDetail is GET /api/queues/{vhost}/{name}.
type queueDetail struct {
	queueInfo
	Owner          *connectionRef `json:"owner_pid_details,omitempty"`
	Details        []consumerInfo `json:"consumer_details"`
	Deliveries     []struct{}     `json:"deliveries"`
	Incoming       []struct{}     `json:"incoming"`
	Policy         *string        `json:"policy"`
	OperatorPolicy *string        `json:"operator_policy"`
	SingleActive   *string        `json:"single_active_consumer_tag"`
}

func (c *call) describeQueue(v *vhost.VHost, q vhost.QueueInfo) queueInfo {
	s, config := q.Stats(), q.Config()
	bytes := s.ReadyBytes + s.UnackedBytes
	info := queueInfo{
		Name: q.Name(), VHost: v.Name(), Type: queueType(config), Node: NodeName, State: "running",
		Durable: q.Durable, AutoDelete: q.AutoDelete, Exclusive: q.Owner != nil, Arguments: queueArguments(q),
		Consumers: s.Consumers, Memory: s.Memory, depth: c.h.rates.depth(q.Queue, s.Ready, s.Unacked),
		Bytes: bytes, BytesReady: s.ReadyBytes, BytesUnacked: s.UnackedBytes, BytesRAM: bytes - s.OnDiskBytes, RAM: s.Ready - s.OnDisk + s.Unacked,
		MessageStats: c.h.rates.queue(q.Queue, s.Counts),
	}
	if s.Consumers > 0 && s.Ready == 0 {
		info.ConsumerCapacity, info.ConsumerUtilisation = 1, 1 // nothing waits for want of a consumer
	}
	if !config.Quorum {
		info.classicInfo = &classicInfo{ReadyRAM: s.Ready - s.OnDisk, UnackedRAM: s.Unacked, StorageVersion: 2}
		return info
	}
	info.quorumInfo = &quorumInfo{
		Leader: NodeName, Members: []string{NodeName}, Online: []string{NodeName},
		DeliveryLimit: any(config.DeliveryLimit), DelayedRetry: delayedRetry(config.Retry),
		Delayed: s.Delayed, DeadLetters: s.Dead, BytesDead: s.DeadBytes,
	}
	if config.DeliveryLimit < 0 {
		info.DeliveryLimit = "unlimited"
	}
	return info
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

// queueArguments always tell the type, which RabbitMQ adds at the declaration.
func queueArguments(q vhost.QueueInfo) arguments {
	if _, given := q.Arguments.Get("x-queue-type"); given {
		return arguments(q.Arguments)
	}
	return arguments(q.Arguments.Set("x-queue-type", queueType(q.Config())))
}

func listQueues(c *call) (any, error) {
	vhosts, err := c.visible()
	if err != nil {
		return nil, err
	}
	all := pagesOf[queueInfo]{}
	for _, v := range vhosts {
		for _, q := range v.Queues() {
			all = append(all, c.describeQueue(v, q))
		}
	}
	return all, nil
}

// queue returns the queue of the path.
func (c *call) queue() (*vhost.VHost, vhost.QueueInfo, error) {
	v, err := c.vhost()
	if err != nil {
		return nil, vhost.QueueInfo{}, err
	}
	q, known := v.QueueInfo(c.PathValue("queue"))
	if !known {
		return nil, q, notFound
	}
	return v, q, nil
}

func getQueue(c *call) (any, error) {
	v, q, err := c.queue()
	if err != nil {
		return nil, err
	}
	d := queueDetail{
		queueInfo: c.describeQueue(v, q), Details: c.consumersIn(v.Name(), q.Name()),
		Deliveries: []struct{}{}, Incoming: []struct{}{},
	}
	if s, ok := q.Owner.(*session.Session); ok {
		info := s.Info()
		owner := newConnectionRef(info.Name, info.Peer)
		d.Owner = &owner
	}
	for i := range d.Details {
		if q.Config().SingleActive && d.Details[i].Active {
			d.SingleActive = &d.Details[i].Tag
		}
	}
	return d, nil
}

// queueSettings are the body of PUT.
type queueSettings struct {
	Durable    flag      `json:"durable"`
	AutoDelete flag      `json:"auto_delete"`
	Arguments  arguments `json:"arguments"`
}

// nobody is whom a queue belongs to that is asked for over HTTP: nobody who could have an exclusive one.
type nobody struct{}

func putQueue(c *call) (any, error) {
	v, err := c.vhostToChange()
	if err != nil {
		return nil, err
	}
	var s queueSettings
	if err := c.decode(&s); err != nil {
		return nil, err
	}
	name := c.PathValue("queue")
	_, existed := v.QueueInfo(name)
	_, err = v.DeclareQueue(s.declaration(name), nobody{}, func(name string) error {
		return first(c.may(v, access.Configure, name), c.mayLead(v, name, s.Arguments, "x-dead-letter-exchange"))
	})
	switch {
	case err != nil:
		return nil, err
	case existed:
		return done{}, nil
	}
	return created{}, nil
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
	if _, err := v.DeleteQueue(q, condition); err != nil {
		return nil, err
	}
	return done{}, nil
}

func purgeQueue(c *call) (any, error) {
	_, q, err := c.ownQueue(access.Read)
	if err != nil {
		return nil, err
	}
	q.Purge()
	return done{}, nil
}

// ownQueue returns the queue of the path to do something with, which belongs to no connection alone.
func (c *call) ownQueue(op access.Operation) (*vhost.VHost, *vhost.Queue, error) {
	v, info, err := c.queue()
	if err != nil {
		return nil, nil, err
	}
	if err := c.may(v, op, info.Name()); err != nil {
		return nil, nil, err
	}
	q, err := v.Queue(info.Name(), nobody{})
	return v, q, err
}
