package move

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/internal/mgmtapi"
	"github.com/reprisemq/reprise/internal/migrate"
	"github.com/reprisemq/reprise/internal/retry"
	"github.com/reprisemq/reprise/topology"
)

// left determines the messages that are on the source. The management API may count messages that have moved as unacked, for some seconds.
func (m *Move) left(ctx context.Context) error {
	until := time.Now().Add(m.cfg.Settle)
	for {
		var found []struct {
			Name    string               `json:"name"`
			Unacked mgmtapi.Field[int64] `json:"messages_unacknowledged"`
			Delayed mgmtapi.Field[int64] `json:"messages_delayed"`
			Dead    mgmtapi.Field[int64] `json:"messages_dlx"`
		}
		if err := m.cfg.From.API.Get(ctx, "queues"+m.cfg.From.API.Within()+"?columns=name,messages_unacknowledged,messages_delayed,messages_dlx", &found); err != nil {
			return err
		}
		m.result.Left = nil
		late := false
		for _, q := range m.Plan.Queues {
			one := Left{Queue: q.Name}
			ready, err := m.ready(ctx, q.Name)
			if err != nil {
				return err
			}
			one.Ready = int64(ready)
			for _, f := range found {
				if f.Name == q.Name {
					one.Unacked, one.Delayed, one.Dead = f.Unacked.Value, f.Delayed.Value, f.Dead.Value
				}
			}
			late = late || one.Unacked+one.Dead > 0
			if one.Ready+one.Unacked+one.Delayed+one.Dead > 0 {
				m.result.Left = append(m.result.Left, one)
			}
		}
		if !late || time.Now().After(until) {
			return nil
		}
		if err := retry.Sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// InUseError is returned if the queues of the source are not deleted, because messages would be lost.
type InUseError struct{ Reason string }

func (e *InUseError) Error() string { return "the queues of the source are not deleted: " + e.Reason }

// delete deletes the queues of the source, if they are empty and no other program is connected for twice the time after which the
// management API shows it.
func (m *Move) delete(ctx context.Context) error {
	from := &m.cfg.From
	for idle := time.Now(); ; {
		if len(m.result.Left) > 0 {
			return &InUseError{"messages are left"}
		}
		others, err := migrate.Others(ctx, from.API, from.Name)
		if err != nil {
			return err
		}
		if len(others) > 0 {
			return &InUseError{fmt.Sprintf("other programs are connected to the virtual host (%s)", list(others))}
		}
		if time.Since(idle) >= 2*m.cfg.Settle {
			break
		}
		if err := retry.Sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
		if err := m.left(ctx); err != nil {
			return err
		}
	}
	m.step("delete %d queues of the source", len(m.Plan.Queues))
	kinds := map[string]string{}
	for _, q := range m.Plan.Queues {
		kinds[q.Name] = q.kind
	}
	for _, name := range slices.Sorted(maps.Keys(kinds)) {
		err := from.conn.Do(ctx, func(ch *amqpconn.Channel) error {
			if kinds[name] == "classic" {
				return ch.DeleteIdleQueue(ctx, name)
			}
			// RabbitMQ does not check quorum queues.
			if n, consumers, err := ch.Counts(ctx, topology.Queue{Name: name}, true); err != nil || n+consumers > 0 {
				return cmp.Or(err, error(&InUseError{"queue " + name + " is in use again"}))
			}
			return ch.DeleteQueue(ctx, name)
		})
		if err != nil {
			return fmt.Errorf("cannot delete queue %q: %w", name, err)
		}
		m.result.Deleted++
	}
	return nil
}
