package idempotent

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/reprisemq/reprise"
)

// Middleware protects a handler from duplicates. The package comment states the guarantees. Put Middleware before all
// other middleware except oteltrace.Middleware. Then a duplicate does not run the other middleware, and a Timeout does
// not interrupt the calls to the store. See reprise.Middleware.
//
// All workers that may receive the same message must share the store.
//
// Config.Logger receives these events, each with queue and message_id:
//
//	no key                               (Warn: handled without protection, see HandleKeyless)
//	duplicate        key                 (Info: acknowledged without running the handler)
//	busy             key, left, delay    (Info: retried after delay; Warn if left exceeds an hour)
//	claim lost       key, reason         (Warn: the context of the handler is canceled)
//	not released     key, error          (Warn: the key is busy until the lease ends)
//	not remembered   key, error          (Error: the effect has happened, a duplicate would repeat it)
func Middleware(store Store, cfg Config) (reprise.Middleware, error) {
	if store == nil {
		return nil, errors.New("idempotent: Middleware: store must not be nil (use new(Memory) or OpenSQL)")
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	return func(next reprise.Handler) reprise.Handler {
		return &once{store: store, cfg: cfg, keys: cfg.keys(), next: next}
	}, nil
}

// once implements Middleware for one handler.
type once struct {
	store Store
	cfg   Config // with defaults
	keys  keys
	next  reprise.Handler
}

func (o *once) Handle(ctx context.Context, m *reprise.Delivery) error {
	key := o.keys.of(m)
	if key == "" {
		if err := o.keys.checkKeyless(o.cfg.Logger, m); err != nil {
			return err
		}
		return o.next.Handle(ctx, m)
	}
	h := &hold{
		store: o.store,
		log:   o.cfg.Logger.With("queue", m.Queue, "message_id", m.MessageID, "key", key),
		key:   key,
		token: rand.Text(),
		lease: o.cfg.Lease,
	}
	got, err := h.claim(ctx)
	if err != nil {
		h.release(ctx) // a failed Claim may have claimed the key
		return &StoreError{Op: "claim", Key: key, Err: err}
	}
	if got.State != Claimed {
		return refused(o.cfg.Logger, m, key, got)
	}
	takeBusy(m)
	return o.run(ctx, m, h)
}

// errLeft is the result of a handler that panics or calls runtime.Goexit.
var errLeft = errors.New("idempotent: handler did not return")

// run calls the handler and extends the lease until the handler returns. Then it completes or releases the key.
func (o *once) run(ctx context.Context, m *reprise.Delivery, h *hold) (err error) {
	handling, end := context.WithCancelCause(ctx)
	defer end(nil)
	stop := h.keep(ctx, end)
	err = errLeft
	defer func() { // a panic continues afterwards, with its stack unchanged
		stop()
		if err != nil {
			h.release(ctx)
			return
		}
		h.complete(ctx, o.cfg.Retention)
	}()
	return o.next.Handle(handling, m)
}

// timeout limits each call to the store after the first Claim. These calls ignore the context of the handler, which may
// be canceled. timeout is shorter than the time between the cancellation of the handlers and the end of a drain.
const timeout = 3 * time.Second
