package vhost

import "context"

// Sync waits until every change of the topology so far is on disk, if it is to be: then a client may be told of it. An error
// says that it is not.
func (v *VHost) Sync(ctx context.Context) error { return v.config.Registry.Sync(ctx) }
