package staking

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/reprisemq/reprise"
)

// Errors of booking. Both are over some time, or may be.
var (
	// ErrUnavailable: the database does not answer.
	ErrUnavailable = errors.New("staking: the database is not available")

	// ErrTooEarly: what the event follows on has not been booked.
	ErrTooEarly = errors.New("staking: too early")
)

// Ledger stands in for the database of a staking service: it knows the state of
// every stake, and what was told of the chain. Its methods may be called at once.
type Ledger struct {
	// FailEvery makes each nth booking fail with ErrUnavailable; 0 is never.
	FailEvery int

	mu        sync.Mutex
	calls     int
	stakes    map[string]string // state, by the staking transaction's hash
	stats     map[string]uint64 // value, by hash and state
	btc       BtcInfoUpdate
	confirmed ConfirmedInfoUpdate
}

// Book books an event. Booking again does nothing: a message can come twice. Each
// queue has its own pace, so that an event may come before the one that it
// follows on: that is ErrTooEarly, and it should come again.
func (l *Ledger) Book(e Event) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.calls++; l.FailEvery > 0 && l.calls%l.FailEvery == 0 {
		return ErrUnavailable
	}
	switch e := e.(type) {
	case *ActiveStaking:
		return l.step(e.StakingTxHash, "active")
	case *UnbondingStaking:
		return l.step(e.StakingTxHash, "unbonding")
	case *ExpiredStaking:
		return l.step(e.StakingTxHash, "unbonded")
	case *WithdrawStaking:
		return l.step(e.StakingTxHash, "withdrawn")
	case *StakingStats:
		if l.stats == nil {
			l.stats = make(map[string]uint64)
		}
		l.stats[e.StakingTxHash+" "+e.State] = e.Value
	case *BtcInfoUpdate:
		if e.Height > l.btc.Height { // one that comes again may be old
			l.btc = *e
		}
	case *ConfirmedInfoUpdate:
		if e.Height > l.confirmed.Height {
			l.confirmed = *e
		}
	}
	return nil
}

// states are those of a stake, in their order. It may go from active to unbonded:
// not every stake is taken back before its time.
var states = map[string]int{"": 0, "active": 1, "unbonding": 2, "unbonded": 3, "withdrawn": 4}

// step takes a stake to its next state.
func (l *Ledger) step(hash, to string) error {
	from := l.stakes[hash]
	switch {
	case states[to] <= states[from]:
		return nil // booked before
	case from == "" && to != "active", to == "withdrawn" && from != "unbonded":
		return fmt.Errorf("%w: stake %.8s… is %s, and cannot be %s yet", ErrTooEarly, hash, named(from), to)
	}
	if l.stakes == nil {
		l.stakes = make(map[string]string)
	}
	l.stakes[hash] = to
	return nil
}

func named(state string) string {
	if state == "" {
		return "not known"
	}
	return state
}

// Stakes returns how many stakes are in each state.
func (l *Ledger) Stakes() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := make(map[string]int)
	for _, state := range l.stakes {
		n[state]++
	}
	return n
}

// Height returns the newest block that was told of, and the newest confirmed one.
func (l *Ledger) Height() (newest, confirmed uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.btc.Height, l.confirmed.Height
}

// Handler returns a handler that books the events of a kind, nil if there is no
// such kind. What is no such event is parked.
func (l *Ledger) Handler(k Kind) reprise.Handler {
	switch k {
	case Active:
		return booking[ActiveStaking](l)
	case Unbonding:
		return booking[UnbondingStaking](l)
	case Withdraw:
		return booking[WithdrawStaking](l)
	case Expired:
		return booking[ExpiredStaking](l)
	case Stats:
		return booking[StakingStats](l)
	case BtcInfo:
		return booking[BtcInfoUpdate](l)
	case ConfirmedInfo:
		return booking[ConfirmedInfoUpdate](l)
	}
	return nil
}

func booking[E any, P interface {
	*E
	Event
}](l *Ledger,
) reprise.Handler {
	return reprise.JSON(func(_ context.Context, e E, _ *reprise.Message) error { return l.Book(P(&e)) })
}

// Serve books what comes from a Queue until it is stopped, or ctx ends: the same as
// Handler, in the manner of the design's own client.
func (l *Ledger) Serve(ctx context.Context, q *Queue) error {
	for {
		m, err := q.Receive(ctx)
		if err == nil {
			err = l.settle(q, m)
		}
		switch {
		case ctx.Err() != nil, errors.Is(err, ErrStopped):
			return nil
		case err != nil && !errors.Is(err, ErrStale): // what is stale comes again, and is booked once
			return err
		}
	}
}

func (l *Ledger) settle(q *Queue, m Received) error {
	e, err := Decode(m.Body)
	if err == nil && e.Kind().Queue() != q.Name() {
		err = fmt.Errorf("staking: a %s event in %s", e.Kind(), q.Name())
	}
	if err != nil {
		return q.Park(m.Receipt, err)
	}
	if err := l.Book(e); err != nil {
		return q.Requeue(m.Receipt, err)
	}
	return q.Delete(m.Receipt)
}
