package amqpwire

// The frequent methods list their arguments here a second time, without a codec. This takes a third of the time of a codec.

// parse is [Parse] for a basic.publish.
func (m *BasicPublish) parse(d *decoder) {
	d.short()
	m.Exchange = d.rawstrAgain(m.Exchange)
	m.RoutingKey = d.rawstrAgain(m.RoutingKey)
	bits := d.octet()
	m.Mandatory, m.Immediate = bits&1 != 0, bits&2 != 0
}

// parse is [Parse] for a basic.ack.
func (m *BasicAck) parse(d *decoder) {
	m.DeliveryTag = d.longlong()
	m.Multiple = d.octet()&1 != 0
}

// append is [Append] for a basic.deliver.
func (m *BasicDeliver) append(e *encoder) {
	e.shortstr(m.ConsumerTag)
	e.longlong(m.DeliveryTag)
	e.octet(bit(m.Redelivered, 0))
	e.shortstr(m.Exchange)
	e.shortstr(m.RoutingKey)
}
