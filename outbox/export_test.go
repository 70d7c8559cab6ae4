package outbox

import "context"

// Step makes a relay publish one batch.
func Step(ctx context.Context, r *Relay) (more bool, err error) { return r.step(ctx) }

// Tick inserts the occurrences that are due.
func Tick(ctx context.Context, b *Box) error { return b.tickAll(ctx) }

// Renew renews the lease of a relay, as it does while it waits for confirms.
func Renew(ctx context.Context, r *Relay) (held bool, err error) {
	_, held, err = r.renew(ctx, false)
	return held, err
}

// ParseSchedule and Next are the parts of a schedule.
var ParseSchedule = parseSchedule

// Next returns the first time of a schedule after t.
var Next = (*schedule).next

// Release gives up the lease of a relay.
func Release(ctx context.Context, r *Relay) { r.release(ctx) }

// Move makes a relay move the rows of its tables to the box.
func Move(ctx context.Context, r *Relay) error {
	for _, t := range r.tables {
		if err := t.pass(ctx); err != nil {
			return err
		}
	}
	return nil
}
