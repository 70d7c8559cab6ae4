package consume

import (
	"context"
	"errors"
	"time"

	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/internal/retry"
	"github.com/reprisemq/reprise/topology"
)

// attend keeps a consumer of the members queue, so that the other processes count this process. It returns an error if the client is
// closed.
func (g *partitions) attend(ctx context.Context) error {
	c := g.consumer
	retrier := retry.Retrier{Schedule: c.Reconnect}
	for ctx.Err() == nil {
		began := time.Now()
		err := g.declare(ctx)
		if err == nil {
			var conn *amqpconn.Conn
			if conn, err = c.Link.Get(ctx); err == nil {
				err = conn.Do(ctx, func(ch *amqpconn.Channel) error {
					_, err := ch.Consume(ctx, MembersQueue(c.Queue), c.Tag, 1, nil, func(amqpconn.Deliveries) {})
					if err != nil {
						return err
					}
					g.check()
					select {
					case <-ctx.Done():
						return nil
					case <-ch.Context().Done():
						return context.Cause(ch.Context())
					}
				})
			}
		}
		if errors.Is(err, amqpconn.ErrClosed) {
			return err
		}
		_ = retry.Sleep(ctx, retrier.Failed(time.Since(began)))
	}
	return nil
}

// quota returns the number of partitions that this process should own, and the number of processes.
func (g *partitions) quota(ctx context.Context) (quota, members int, err error) {
	conn, err := g.consumer.Link.Get(ctx)
	if err != nil {
		return 0, 0, err
	}
	err = conn.Do(ctx, func(ch *amqpconn.Channel) (err error) {
		_, members, err = ch.Counts(ctx, topology.Queue{Name: MembersQueue(g.consumer.Queue)}, true)
		return err
	})
	members = max(1, members)
	return (len(g.all) + members - 1) / members, members, err
}

// balance releases partitions, one after the other, while this process owns more than its quota.
func (g *partitions) balance(ctx context.Context) {
	tick := time.NewTicker(rebalance)
	defer tick.Stop()
	for {
		select {
		case <-g.joined:
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		quota, _, err := g.quota(ctx)
		if p := g.surplus(quota); err == nil && p != nil {
			select {
			case p.release <- struct{}{}: // disown continues the balance
			default:
			}
		}
	}
}

// check makes balance compare the number of owned partitions with the quota.
func (g *partitions) check() {
	select {
	case g.joined <- struct{}{}:
	default:
	}
}

// surplus returns a partition that this process should release, or nil.
func (g *partitions) surplus(quota int) *partition {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.owned > quota && time.Since(g.unwanted) >= rebalance { // otherwise it would be released and returned again and again
		for _, p := range g.all {
			if p.owns {
				return p
			}
		}
	}
	return nil
}

// accept reports whether this process should own one more partition.
func (p *partition) accept(ctx context.Context) bool {
	quota, members, err := p.group.quota(ctx)
	p.group.mu.Lock()
	defer p.group.mu.Unlock()
	if err == nil && p.group.owned >= quota && p.refusals < members {
		p.refusals++
		return false
	}
	if p.refusals > 0 {
		p.group.unwanted = time.Now()
	}
	p.refusals, p.owns = 0, true
	p.group.owned++
	return true
}

// disown ends the ownership.
func (p *partition) disown() {
	p.group.mu.Lock()
	defer p.group.mu.Unlock()
	p.owns = false
	p.group.owned--
	select {
	case <-p.release:
	default:
	}
	p.group.check()
}
