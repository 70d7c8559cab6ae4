package amqpwire

// The most frequent methods list their arguments here a second time, because this is three times as fast as a codec.

// parse implements [Parse] for basic.publish.
func (m *BasicPublish) parse(d *decoder) {
	d.short()
	m.Exchange = d.rawstrCached(m.Exchange)
	m.RoutingKey = d.rawstrCached(m.RoutingKey)
	bits := d.octet()
	m.Mandatory, m.Immediate = bits&1 != 0, bits&2 != 0
}

// parse implements [Parse] for basic.ack.
func (m *BasicAck) parse(d *decoder) {
	m.DeliveryTag = d.longlong()
	m.Multiple = d.octet()&1 != 0
}

// append implements [Append] for basic.deliver.
func (m *BasicDeliver) append(e *encoder) {
	e.shortstr(m.ConsumerTag)
	e.longlong(m.DeliveryTag)
	e.octet(bit(m.Redelivered, 0))
	e.shortstr(m.Exchange)
	e.shortstr(m.RoutingKey)
}
