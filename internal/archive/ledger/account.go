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

// Account is the unit of reconciliation: a work queue, its wait queues and its failed queue. Work queues that share a
// wait queue or a failed queue form one account; see Join. Work is required.
type Account struct {
	Work []string // work queues, usually one

	// Wait contains additional wait queues. The account automatically includes the wait queues of topology.Buckets for
	// the work queues, and the queue NAME.aside, which preset.CDNPurge declares for its wait queue NAME. If workers use
	// the Route topology.Levels, add QUEUE.level.*. If these queues are missing, the ledger assumes that PublishAt
	// scheduled their messages, and counts each message as published. Default: none.
	Wait []string

	// Failed contains the failed queues. Default: QUEUE.failed for each work queue.
	Failed []string
}

// Name returns the names of the work queues, separated by commas.
func (a Account) Name() string { return strings.Join(a.Work, ", ") }

func (a Account) withDefaults() Account {
	if len(a.Failed) == 0 {
		for _, q := range a.Work {
			a.Failed = append(a.Failed, topology.FailedQueue(q))
		}
	}
	return a
}

// Validate reports missing and contradictory fields, and suggests valid values.
func (a Account) Validate() error {
	if len(a.Work) == 0 {
		return errors.New("ledger.Account.Work must not be empty (set the work queue, such as orders)")
	}
	places := map[string]string{}
	for place, queues := range map[string][]string{"Work": a.Work, "Wait": a.Wait, "Failed": a.Failed} {
		for _, q := range queues {
			if q == "" {
				return fmt.Errorf("ledger.Account.%s must not contain an empty name", place)
			}
			if there, found := places[q]; found {
				return fmt.Errorf("queue %q must not be in both Account.%s and Account.%s", q, min(there, place), max(there, place))
			}
			places[q] = place
		}
	}
	return nil
}

// Join merges accounts that share a work queue, a wait queue or a failed queue, because the broker does not report which
// account a message in a shared queue belongs to.
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

// place is the role of a queue in an account.
type place int

const (
	nowhere place = iota
	work
	wait
	levels // queues for messages that are scheduled for the work queue
	parked
)

// place returns the role of a queue in the account.
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
