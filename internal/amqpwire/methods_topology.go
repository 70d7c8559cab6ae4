package amqpwire

// ExchangeDeclare creates an exchange if it does not exist.
type ExchangeDeclare struct {
	Exchange   string
	Type       string
	Passive    bool // only check that it exists
	Durable    bool
	AutoDelete bool
	Internal   bool // clients cannot publish to it, but other exchanges can route to it
	NoWait     bool // send no reply
	Arguments  Table
}

// ID returns [IDExchangeDeclare].
func (*ExchangeDeclare) ID() MethodID { return IDExchangeDeclare }

func (m *ExchangeDeclare) arguments(c *codec) *codec {
	return c.zeroShort().shortstr(&m.Exchange).shortstr(&m.Type).
		bits(&m.Passive, &m.Durable, &m.AutoDelete, &m.Internal, &m.NoWait).table(&m.Arguments)
}

// ExchangeDeclareOk confirms an exchange.declare.
type ExchangeDeclareOk struct{ noArguments }

// ID returns [IDExchangeDeclareOk].
func (*ExchangeDeclareOk) ID() MethodID { return IDExchangeDeclareOk }

// ExchangeDelete deletes an exchange.
type ExchangeDelete struct {
	Exchange string
	IfUnused bool // only if it has no bindings
	NoWait   bool // send no reply
}

// ID returns [IDExchangeDelete].
func (*ExchangeDelete) ID() MethodID { return IDExchangeDelete }

func (m *ExchangeDelete) arguments(c *codec) *codec {
	return c.zeroShort().shortstr(&m.Exchange).bits(&m.IfUnused, &m.NoWait)
}

// ExchangeDeleteOk confirms an exchange.delete.
type ExchangeDeleteOk struct{ noArguments }

// ID returns [IDExchangeDeleteOk].
func (*ExchangeDeleteOk) ID() MethodID { return IDExchangeDeleteOk }

// ExchangeBind binds one exchange to another.
type ExchangeBind struct {
	Destination string
	Source      string
	RoutingKey  string
	NoWait      bool // send no reply
	Arguments   Table
}

// ID returns [IDExchangeBind].
func (*ExchangeBind) ID() MethodID { return IDExchangeBind }

func (m *ExchangeBind) arguments(c *codec) *codec {
	return c.zeroShort().shortstr(&m.Destination).shortstr(&m.Source).
		shortstr(&m.RoutingKey).bits(&m.NoWait).table(&m.Arguments)
}

// ExchangeBindOk confirms an exchange.bind.
type ExchangeBindOk struct{ noArguments }

// ID returns [IDExchangeBindOk].
func (*ExchangeBindOk) ID() MethodID { return IDExchangeBindOk }

// ExchangeUnbind removes the binding of one exchange to another.
type ExchangeUnbind ExchangeBind

// ID returns [IDExchangeUnbind].
func (*ExchangeUnbind) ID() MethodID { return IDExchangeUnbind }

func (m *ExchangeUnbind) arguments(c *codec) *codec { return (*ExchangeBind)(m).arguments(c) }

// ExchangeUnbindOk confirms an exchange.unbind.
type ExchangeUnbindOk struct{ noArguments }

// ID returns [IDExchangeUnbindOk].
func (*ExchangeUnbindOk) ID() MethodID { return IDExchangeUnbindOk }

// QueueDeclare creates a queue if it does not exist.
type QueueDeclare struct {
	Queue      string // empty if the server must generate a name
	Passive    bool   // only check that it exists
	Durable    bool
	Exclusive  bool // for this connection only
	AutoDelete bool
	NoWait     bool // send no reply
	Arguments  Table
}

// ID returns [IDQueueDeclare].
func (*QueueDeclare) ID() MethodID { return IDQueueDeclare }

func (m *QueueDeclare) arguments(c *codec) *codec {
	return c.zeroShort().shortstr(&m.Queue).
		bits(&m.Passive, &m.Durable, &m.Exclusive, &m.AutoDelete, &m.NoWait).table(&m.Arguments)
}

// QueueDeclareOk confirms a queue.declare.
type QueueDeclareOk struct {
	Queue         string
	MessageCount  uint32 // number of ready messages
	ConsumerCount uint32
}

// ID returns [IDQueueDeclareOk].
func (*QueueDeclareOk) ID() MethodID { return IDQueueDeclareOk }

func (m *QueueDeclareOk) arguments(c *codec) *codec {
	return c.shortstr(&m.Queue).long(&m.MessageCount).long(&m.ConsumerCount)
}

// QueueBind binds a queue to an exchange.
type QueueBind struct {
	Queue      string
	Exchange   string
	RoutingKey string
	NoWait     bool // send no reply
	Arguments  Table
}

// ID returns [IDQueueBind].
func (*QueueBind) ID() MethodID { return IDQueueBind }

func (m *QueueBind) arguments(c *codec) *codec {
	return c.zeroShort().shortstr(&m.Queue).shortstr(&m.Exchange).
		shortstr(&m.RoutingKey).bits(&m.NoWait).table(&m.Arguments)
}

// QueueBindOk confirms a queue.bind.
type QueueBindOk struct{ noArguments }

// ID returns [IDQueueBindOk].
func (*QueueBindOk) ID() MethodID { return IDQueueBindOk }

// QueuePurge removes the ready messages of a queue.
type QueuePurge struct {
	Queue  string
	NoWait bool // send no reply
}

// ID returns [IDQueuePurge].
func (*QueuePurge) ID() MethodID { return IDQueuePurge }

func (m *QueuePurge) arguments(c *codec) *codec {
	return c.zeroShort().shortstr(&m.Queue).bits(&m.NoWait)
}

// QueuePurgeOk confirms a queue.purge.
type QueuePurgeOk struct {
	MessageCount uint32 // number of removed messages
}

// ID returns [IDQueuePurgeOk].
func (*QueuePurgeOk) ID() MethodID { return IDQueuePurgeOk }

func (m *QueuePurgeOk) arguments(c *codec) *codec {
	return c.long(&m.MessageCount)
}

// QueueDelete deletes a queue.
type QueueDelete struct {
	Queue    string
	IfUnused bool // only if it has no consumers
	IfEmpty  bool // only if it has no messages
	NoWait   bool // send no reply
}

// ID returns [IDQueueDelete].
func (*QueueDelete) ID() MethodID { return IDQueueDelete }

func (m *QueueDelete) arguments(c *codec) *codec {
	return c.zeroShort().shortstr(&m.Queue).bits(&m.IfUnused, &m.IfEmpty, &m.NoWait)
}

// QueueDeleteOk confirms a queue.delete.
type QueueDeleteOk struct {
	MessageCount uint32 // number of deleted messages
}

// ID returns [IDQueueDeleteOk].
func (*QueueDeleteOk) ID() MethodID { return IDQueueDeleteOk }

func (m *QueueDeleteOk) arguments(c *codec) *codec {
	return c.long(&m.MessageCount)
}

// QueueUnbind removes the binding of a queue to an exchange.
type QueueUnbind struct {
	Queue      string
	Exchange   string
	RoutingKey string
	Arguments  Table
}

// ID returns [IDQueueUnbind].
func (*QueueUnbind) ID() MethodID { return IDQueueUnbind }

func (m *QueueUnbind) arguments(c *codec) *codec {
	return c.zeroShort().shortstr(&m.Queue).shortstr(&m.Exchange).
		shortstr(&m.RoutingKey).table(&m.Arguments)
}

// QueueUnbindOk confirms a queue.unbind.
type QueueUnbindOk struct{ noArguments }

// ID returns [IDQueueUnbindOk].
func (*QueueUnbindOk) ID() MethodID { return IDQueueUnbindOk }
