package vhost

import "context"

// Sync waits until all earlier changes of the topology are durable. A caller must call Sync before it confirms a change to a
// client. Sync returns an error if the changes are not durable.
func (v *VHost) Sync(ctx context.Context) error { return v.config.Registry.Sync(ctx) }
