package amqpwire

// The methods that come with each message list their arguments once more, here, without a codec: that takes a third of the
// time.

// parse is [Parse] of a basic.publish.
func (m *BasicPublish) parse(d *decoder) {
	d.short()
	m.Exchange = d.rawstrAgain(m.Exchange)
	m.RoutingKey = d.rawstrAgain(m.RoutingKey)
	bits := d.octet()
	m.Mandatory, m.Immediate = bits&1 != 0, bits&2 != 0
}

// parse is [Parse] of a basic.ack.
func (m *BasicAck) parse(d *decoder) {
	m.DeliveryTag = d.longlong()
	m.Multiple = d.octet()&1 != 0
}

// append is [Append] of a basic.deliver.
func (m *BasicDeliver) append(e *encoder) {
	e.shortstr(m.ConsumerTag)
	e.longlong(m.DeliveryTag)
	e.octet(bit(m.Redelivered, 0))
	e.shortstr(m.Exchange)
	e.shortstr(m.RoutingKey)
}
