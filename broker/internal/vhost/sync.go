package vhost

import "context"

// Sync waits until all earlier changes of the topology are durable. Call it before you confirm a change to a client. It
// returns an error if the changes are not durable.
func (v *VHost) Sync(ctx context.Context) error { return v.config.Registry.Sync(ctx) }
