package reprise

import "time"

// SetUser makes the client take its connections for another user's.
func (c *Client) SetUser(name string) { c.publishing.user = name }

// AckTooEarly makes the worker acknowledge before the broker has the copy, which is
// what tests have to notice. The ack is there for certain before anything is published.
func (w *Worker) AckTooEarly() {
	w.swap = func(d *delivery, c *replacement) *Event {
		d.session.acks.ackNow(d.DeliveryTag)
		_ = w.insist(d.session.ctx, d, c, tryAgain)
		return nil
	}
}

// AgreedHeartbeat is what client and broker have agreed on.
func (c *Client) AgreedHeartbeat() (time.Duration, error) {
	conn, err := c.publishing.standing()
	if err != nil {
		return 0, err
	}
	return conn.Config.Heartbeat, nil
}

// OnDetour reports whether messages are led around a queue that did not confirm.
func (c *Client) OnDetour(queue string) bool {
	d := c.messages.detours
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.late[destination{key: queue}] != nil
}
