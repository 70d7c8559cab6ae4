package amqpwire

// BasicQos limits the number of unacked deliveries.
type BasicQos struct {
	PrefetchSize  uint32 // in bytes, 0 for no limit
	PrefetchCount uint16 // in messages, 0 for no limit
	Global        bool   // applies to the whole channel; if unset, RabbitMQ applies the limits to each new consumer
}

// ID returns [IDBasicQos].
func (*BasicQos) ID() MethodID { return IDBasicQos }

func (m *BasicQos) arguments(c *codec) *codec {
	return c.long(&m.PrefetchSize).short(&m.PrefetchCount).bits(&m.Global)
}

// BasicQosOk confirms a basic.qos.
type BasicQosOk struct{ noArguments }

// ID returns [IDBasicQosOk].
func (*BasicQosOk) ID() MethodID { return IDBasicQosOk }

// BasicConsume starts a consumer.
type BasicConsume struct {
	Queue       string
	ConsumerTag string // empty if the server must generate a tag
	NoLocal     bool
	NoAck       bool // the server settles deliveries when it sends them
	Exclusive   bool
	NoWait      bool // send no reply
	Arguments   Table
}

// ID returns [IDBasicConsume].
func (*BasicConsume) ID() MethodID { return IDBasicConsume }

func (m *BasicConsume) arguments(c *codec) *codec {
	return c.zeroShort().shortstr(&m.Queue).shortstr(&m.ConsumerTag).
		bits(&m.NoLocal, &m.NoAck, &m.Exclusive, &m.NoWait).table(&m.Arguments)
}

// BasicConsumeOk confirms a basic.consume.
type BasicConsumeOk struct {
	ConsumerTag string
}

// ID returns [IDBasicConsumeOk].
func (*BasicConsumeOk) ID() MethodID { return IDBasicConsumeOk }

func (m *BasicConsumeOk) arguments(c *codec) *codec {
	return c.shortstr(&m.ConsumerTag)
}

// BasicCancel cancels a consumer. RabbitMQ also sends it to the client when it cancels a consumer, for example because the
// queue was deleted.
type BasicCancel struct {
	ConsumerTag string
	NoWait      bool // send no reply
}

// ID returns [IDBasicCancel].
func (*BasicCancel) ID() MethodID { return IDBasicCancel }

func (m *BasicCancel) arguments(c *codec) *codec {
	return c.shortstr(&m.ConsumerTag).bits(&m.NoWait)
}

// BasicCancelOk confirms a basic.cancel.
type BasicCancelOk struct {
	ConsumerTag string
}

// ID returns [IDBasicCancelOk].
func (*BasicCancelOk) ID() MethodID { return IDBasicCancelOk }

func (m *BasicCancelOk) arguments(c *codec) *codec {
	return c.shortstr(&m.ConsumerTag)
}

// BasicPublish sends a message to an exchange.
type BasicPublish struct {
	Exchange   string
	RoutingKey string
	Mandatory  bool // return the message if it cannot be routed
	Immediate  bool // return the message if the broker cannot deliver it immediately; not supported by RabbitMQ
}

// ID returns [IDBasicPublish].
func (*BasicPublish) ID() MethodID { return IDBasicPublish }

func (m *BasicPublish) arguments(c *codec) *codec {
	return c.zeroShort().rawstr(&m.Exchange).rawstr(&m.RoutingKey).bits(&m.Mandatory, &m.Immediate)
}

// BasicReturn returns an unroutable message to its publisher.
type BasicReturn struct {
	ReplyCode  uint16
	ReplyText  string
	Exchange   string
	RoutingKey string
}

// ID returns [IDBasicReturn].
func (*BasicReturn) ID() MethodID { return IDBasicReturn }

func (m *BasicReturn) arguments(c *codec) *codec {
	return c.short(&m.ReplyCode).rawstr(&m.ReplyText).rawstr(&m.Exchange).rawstr(&m.RoutingKey)
}

// BasicDeliver delivers a message to a consumer.
type BasicDeliver struct {
	ConsumerTag string
	DeliveryTag uint64
	Redelivered bool
	Exchange    string
	RoutingKey  string
}

// ID returns [IDBasicDeliver].
func (*BasicDeliver) ID() MethodID { return IDBasicDeliver }

func (m *BasicDeliver) arguments(c *codec) *codec {
	return c.rawstr(&m.ConsumerTag).longlong(&m.DeliveryTag).bits(&m.Redelivered).
		rawstr(&m.Exchange).rawstr(&m.RoutingKey)
}

// BasicGet requests one message from a queue.
type BasicGet struct {
	Queue string
	NoAck bool // the server settles the message when it sends it
}

// ID returns [IDBasicGet].
func (*BasicGet) ID() MethodID { return IDBasicGet }

func (m *BasicGet) arguments(c *codec) *codec {
	return c.zeroShort().shortstr(&m.Queue).bits(&m.NoAck)
}

// BasicGetOk replies to basic.get with a message.
type BasicGetOk struct {
	DeliveryTag  uint64
	Redelivered  bool
	Exchange     string
	RoutingKey   string
	MessageCount uint32 // number of remaining ready messages
}

// ID returns [IDBasicGetOk].
func (*BasicGetOk) ID() MethodID { return IDBasicGetOk }

func (m *BasicGetOk) arguments(c *codec) *codec {
	return c.longlong(&m.DeliveryTag).bits(&m.Redelivered).rawstr(&m.Exchange).
		rawstr(&m.RoutingKey).long(&m.MessageCount)
}

// BasicGetEmpty replies to basic.get for an empty queue.
type BasicGetEmpty struct{}

// ID returns [IDBasicGetEmpty].
func (*BasicGetEmpty) ID() MethodID { return IDBasicGetEmpty }

func (*BasicGetEmpty) arguments(c *codec) *codec { return c.emptyShort() }

// BasicAck acknowledges deliveries. Sent by RabbitMQ, it confirms publications.
type BasicAck struct {
	DeliveryTag uint64
	Multiple    bool // also all earlier ones
}

// ID returns [IDBasicAck].
func (*BasicAck) ID() MethodID { return IDBasicAck }

func (m *BasicAck) arguments(c *codec) *codec {
	return c.longlong(&m.DeliveryTag).bits(&m.Multiple)
}

// BasicReject rejects a delivery.
type BasicReject struct {
	DeliveryTag uint64
	Requeue     bool
}

// ID returns [IDBasicReject].
func (*BasicReject) ID() MethodID { return IDBasicReject }

func (m *BasicReject) arguments(c *codec) *codec {
	return c.longlong(&m.DeliveryTag).bits(&m.Requeue)
}

// BasicRecoverAsync is an obsolete form of basic.recover, to which the server does not reply.
type BasicRecoverAsync struct {
	Requeue bool
}

// ID returns [IDBasicRecoverAsync].
func (*BasicRecoverAsync) ID() MethodID { return IDBasicRecoverAsync }

func (m *BasicRecoverAsync) arguments(c *codec) *codec {
	return c.bits(&m.Requeue)
}

// BasicRecover requests the redelivery of all unacked messages on the channel.
type BasicRecover struct {
	Requeue bool
}

// ID returns [IDBasicRecover].
func (*BasicRecover) ID() MethodID { return IDBasicRecover }

func (m *BasicRecover) arguments(c *codec) *codec {
	return c.bits(&m.Requeue)
}

// BasicRecoverOk confirms a basic.recover.
type BasicRecoverOk struct{ noArguments }

// ID returns [IDBasicRecoverOk].
func (*BasicRecoverOk) ID() MethodID { return IDBasicRecoverOk }

// BasicNack rejects deliveries. Sent by RabbitMQ, it reports that publications failed.
type BasicNack struct {
	DeliveryTag uint64
	Multiple    bool // also all earlier ones
	Requeue     bool
}

// ID returns [IDBasicNack].
func (*BasicNack) ID() MethodID { return IDBasicNack }

func (m *BasicNack) arguments(c *codec) *codec {
	return c.longlong(&m.DeliveryTag).bits(&m.Multiple, &m.Requeue)
}

// ConfirmSelect makes the server confirm the publications on the channel.
type ConfirmSelect struct {
	NoWait bool // send no reply
}

// ID returns [IDConfirmSelect].
func (*ConfirmSelect) ID() MethodID { return IDConfirmSelect }

func (m *ConfirmSelect) arguments(c *codec) *codec {
	return c.bits(&m.NoWait)
}

// ConfirmSelectOk confirms a confirm.select.
type ConfirmSelectOk struct{ noArguments }

// ID returns [IDConfirmSelectOk].
func (*ConfirmSelectOk) ID() MethodID { return IDConfirmSelectOk }

// TxSelect makes the channel transactional.
type TxSelect struct{ noArguments }

// ID returns [IDTxSelect].
func (*TxSelect) ID() MethodID { return IDTxSelect }

// TxSelectOk confirms a tx.select.
type TxSelectOk struct{ noArguments }

// ID returns [IDTxSelectOk].
func (*TxSelectOk) ID() MethodID { return IDTxSelectOk }

// TxCommit commits the transaction and starts a new one.
type TxCommit struct{ noArguments }

// ID returns [IDTxCommit].
func (*TxCommit) ID() MethodID { return IDTxCommit }

// TxCommitOk confirms a tx.commit.
type TxCommitOk struct{ noArguments }

// ID returns [IDTxCommitOk].
func (*TxCommitOk) ID() MethodID { return IDTxCommitOk }

// TxRollback discards the transaction and starts a new one.
type TxRollback struct{ noArguments }

// ID returns [IDTxRollback].
func (*TxRollback) ID() MethodID { return IDTxRollback }

// TxRollbackOk confirms a tx.rollback.
type TxRollbackOk struct{ noArguments }

// ID returns [IDTxRollbackOk].
func (*TxRollbackOk) ID() MethodID { return IDTxRollbackOk }
