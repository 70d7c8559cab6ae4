package staking

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/reprisemq/reprise"
)

// Errors of Ledger.Book after which a retry can succeed.
var (
	// ErrUnavailable is returned if the database does not respond.
	ErrUnavailable = errors.New("staking: database is not available")

	// ErrTooEarly is returned if the preceding event of the stake has not been booked.
	ErrTooEarly = errors.New("staking: too early")
)

// Ledger simulates the database of a staking service. It stores the state of every stake and the newest information
// about the chain. Its methods are safe for concurrent use.
type Ledger struct {
	// FailEvery specifies which bookings fail with ErrUnavailable: 3 means every third booking. Default: 0, no
	// failures.
	FailEvery int

	mu        sync.Mutex
	calls     int
	stakes    map[string]string // from the hash of the staking transaction to the state
	stats     map[string]uint64 // from hash and state to the value
	btc       BtcInfoUpdate
	confirmed ConfirmedInfoUpdate
}

// Book books an event. The broker can deliver a message twice, so a repeated booking has no effect. The queues progress
// at different speeds, so an event can arrive before the preceding event of the same stake. In this case, Book returns
// ErrTooEarly, and the caller should retry later.
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
		if e.Height > l.btc.Height { // a redelivered event can be older than the stored event
			l.btc = *e
		}
	case *ConfirmedInfoUpdate:
		if e.Height > l.confirmed.Height {
			l.confirmed = *e
		}
	}
	return nil
}

// states orders the states of a stake. A stake changes directly from active to unbonded if its time lock expires.
var states = map[string]int{"": 0, "active": 1, "unbonding": 2, "unbonded": 3, "withdrawn": 4}

// step moves a stake to the given state.
func (l *Ledger) step(hash, to string) error {
	from := l.stakes[hash]
	switch {
	case states[to] <= states[from]:
		return nil // already booked
	case from == "" && to != "active", to == "withdrawn" && from != "unbonded":
		return fmt.Errorf("%w: stake %.8s… is %s and cannot become %s yet", ErrTooEarly, hash, named(from), to)
	}
	if l.stakes == nil {
		l.stakes = make(map[string]string)
	}
	l.stakes[hash] = to
	return nil
}

func named(state string) string {
	if state == "" {
		return "unknown"
	}
	return state
}

// Stakes returns the number of stakes in each state.
func (l *Ledger) Stakes() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := make(map[string]int)
	for _, state := range l.stakes {
		n[state]++
	}
	return n
}

// Height returns the heights of the newest block and of the newest confirmed block.
func (l *Ledger) Height() (newest, confirmed uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.btc.Height, l.confirmed.Height
}

// Handler returns a handler that books the events of kind k, or nil if k is unknown. The handler parks a message that
// does not contain an event of this kind.
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
	return reprise.JSON(func(_ context.Context, e E, _ *reprise.Delivery) error { return l.Book(P(&e)) })
}

// Serve books the messages of q until q is stopped or ctx is done. It has the same effect as a worker with Handler, but
// uses the operations of the original client.
func (l *Ledger) Serve(ctx context.Context, q *Queue) error {
	for {
		m, err := q.Receive(ctx)
		if err == nil {
			err = l.settle(q, m)
		}
		switch {
		case ctx.Err() != nil, errors.Is(err, ErrStopped):
			return nil
		case err != nil && !errors.Is(err, ErrStale): // after ErrStale, the broker redelivers the message
			return err
		}
	}
}

func (l *Ledger) settle(q *Queue, m Received) error {
	e, err := Decode(m.Body)
	if err == nil && e.Kind().Queue() != q.Name() {
		err = fmt.Errorf("staking: unexpected %s event in %s", e.Kind(), q.Name())
	}
	if err != nil {
		return q.Park(m.Receipt, err)
	}
	if err := l.Book(e); err != nil {
		return q.Requeue(m.Receipt, err)
	}
	return q.Delete(m.Receipt)
}
