package ledger

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/reprisemq/reprise/internal/amqpvalue"
	"github.com/reprisemq/reprise/topology"
)

// Account is what is balanced: a work queue, and where its messages go and come back
// from. Work queues that share a wait queue or a failed queue are one account; see
// Join. Work is required.
type Account struct {
	Work []string // work queues, one as a rule

	// Wait are wait queues besides those that topology.Buckets makes for the work queues, and
	// NAME.aside, which preset.CDNPurge has beside its wait queue NAME.
	// Those of topology.Levels are named QUEUE.level.*, if workers use that Route: without it,
	// what is in them was scheduled by PublishAt, and came in there.
	Wait []string

	// Failed are the failed queues. Default: QUEUE.failed of each work queue.
	Failed []string
}

// Name is how the account is called: the names of its work queues.
func (a Account) Name() string { return strings.Join(a.Work, ", ") }

func (a Account) withDefaults() Account {
	if len(a.Failed) == 0 {
		for _, q := range a.Work {
			a.Failed = append(a.Failed, topology.FailedQueue(q))
		}
	}
	return a
}

// Validate reports what is missing or contradictory, and what to write instead.
func (a Account) Validate() error {
	if len(a.Work) == 0 {
		return errors.New("ledger: Account.Work is empty: name the work queue, such as orders")
	}
	places := map[string]string{}
	for place, queues := range map[string][]string{"Work": a.Work, "Wait": a.Wait, "Failed": a.Failed} {
		for _, q := range queues {
			if q == "" {
				return fmt.Errorf("ledger: Account.%s has an empty name: leave it out", place)
			}
			if there, found := places[q]; found {
				return fmt.Errorf("ledger: queue %q is in Account.%s and in Account.%s: each is in one place", q, min(there, place), max(there, place))
			}
			places[q] = place
		}
	}
	return nil
}

// Join makes one account of those that share a wait queue or a failed queue: to which
// of them a message there belongs cannot be told from outside.
func Join(accounts []Account) []Account {
	var joined []Account
	for _, a := range accounts {
		a = a.withDefaults()
		apart := joined[:0:0]
		for _, b := range joined {
			if shares(a.Work, b.Work) || shares(a.Wait, b.Wait) || shares(a.Failed, b.Failed) {
				a = Account{union(b.Work, a.Work), union(b.Wait, a.Wait), union(b.Failed, a.Failed)}
			} else {
				apart = append(apart, b)
			}
		}
		joined = append(apart, a)
	}
	slices.SortFunc(joined, func(a, b Account) int { return cmp.Compare(a.Name(), b.Name()) })
	return joined
}

func shares(a, b []string) bool {
	return slices.ContainsFunc(a, func(q string) bool { return slices.Contains(b, q) })
}

func union(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

// place is where in an account a queue is.
type place int

const (
	nowhere place = iota
	work
	wait
	levels // the way of what was scheduled to the work queue
	parked
)

// place returns where in the account a queue is.
func (a Account) place(queue string) place {
	switch {
	case slices.Contains(a.Work, queue):
		return work
	case slices.Contains(a.Wait, queue), slices.Contains(a.Wait, strings.TrimSuffix(queue, ".aside")):
		return wait
	case slices.Contains(a.Failed, queue):
		return parked
	case !amqpvalue.IsWaitQueue(queue):
		return nowhere
	}
	if i := strings.LastIndex(queue, ".wait."); i >= 0 && slices.Contains(a.Work, queue[:i]) {
		return wait
	}
	i := strings.LastIndex(queue, ".level.")
	if i < 0 || !slices.Contains(a.Work, queue[:i]) {
		return nowhere
	}
	if _, err := strconv.Atoi(queue[i+len(".level."):]); err != nil {
		return nowhere
	}
	if slices.Contains(a.Wait, queue[:i]+".level.*") {
		return wait
	}
	return levels
}
