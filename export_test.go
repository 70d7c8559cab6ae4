package reprise

// SetUser makes the client take its connections for another user's.
func (c *Client) SetUser(name string) { c.publishing.user = name }

// AckTooEarly makes the worker acknowledge before the broker has the copy.
func (w *Worker) AckTooEarly() { w.cfg.Order = ackTooEarly }
