package consume

import (
	"context"
	"slices"
	"time"

	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/internal/guard"
	"github.com/reprisemq/reprise/internal/ordered"
	"github.com/reprisemq/reprise/internal/protocol"
	"github.com/reprisemq/reprise/topology"
)

// Keys returns the blocked keys in the partitions that this process owns, and the n keys that have been blocked for the longest
// time. It omits partitions whose goroutines do not answer until ctx is done.
func (c *Consumer) Keys(ctx context.Context, n int) (all protocol.Keys) {
	if c.Keyed == nil {
		return all
	}
	all.Partitions = c.Keyed.Partitions
	g := c.partitions.Load()
	if g == nil {
		return all
	}
	for _, p := range g.all {
		t := p.owner.Load()
		if t == nil {
			continue
		}
		all.Owned++
		answer := make(chan struct{})
		ask := func() {
			defer close(answer)
			blocked, behind, oldest := t.machine.Blocked(n)
			all.Blocked += blocked
			all.Behind += behind
			for _, b := range oldest {
				all.Oldest = append(all.Oldest, b.Message.(*Delivery).blocked(b))
			}
		}
		select {
		case t.calls <- ask:
			<-answer
		case <-t.ended:
		case <-ctx.Done():
		}
	}
	slices.SortFunc(all.Oldest, func(x, y protocol.BlockedKey) int { return x.Since.Compare(y.Since) })
	all.Oldest = all.Oldest[:min(n, len(all.Oldest))]
	return all
}

// blocked describes the key whose first message is d. An attempt may use d at the same time.
func (d *Delivery) blocked(b ordered.Blocked) protocol.BlockedKey {
	k := protocol.BlockedKey{Key: b.Key, Next: b.Due, Behind: b.Behind}
	_ = guard.Call("strategy", func() error { // without marks, the cause is unknown
		h := d.session.consumer.Marks.Read(d.at(amqpconn.ReadTable(d.Headers)))
		k.Since, k.Attempts = h.FirstFailed, h.Attempts
		if len(h.Errors) > 0 {
			k.Error = h.Errors[len(h.Errors)-1].Error
		}
		return nil
	})
	return k
}

// ErrParkedBy is the reason for parking a message that an operator has parked.
type ErrParkedBy string

func (e ErrParkedBy) Error() string { return "parked by " + string(e) }

// KeyRequest returns the message with which an operator requests an act for a key. The caller publishes it to the held queues. The
// limit is the maximum number of messages that ordered.ParkAll parks, or 0.
func KeyRequest(id, key, act, by string, limit int) (*amqpconn.Message, error) {
	headers, err := amqpconn.EncodeTable(topology.Table{headerOrder: topology.Table{
		"kind": string(ordered.Request), "owner": id, "key": key, "act": act, "by": by, "limit": int64(limit),
	}})
	return &amqpconn.Message{Timestamp: time.Now(), Headers: headers}, err
}
