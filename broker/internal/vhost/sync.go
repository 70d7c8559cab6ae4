package vhost

import "context"

// Sync waits until all topology changes made before the call are durable. A caller must call Sync before it confirms
// a change to a client. Sync returns an error if the store has failed or ctx is done first.
func (v *VHost) Sync(ctx context.Context) error { return v.config.Registry.Sync(ctx) }
