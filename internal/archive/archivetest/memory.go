package archivetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/topology"
)

// Memory is an in-memory archive for tests in virtual time. It implements the methods of Archive that an Ingest and a
// Replayer need, and fails on request.
type Memory struct {
	Succeeds  bool // a worker reports the success of each sent message
	mu        sync.Mutex
	All       []*failed.Message // by ID, from 1
	digests   []string
	unsettled map[failed.ID]string // session of each delivery whose ack is not recorded
	replays   []*failed.Replay
	items     map[failed.ReplayID][]failed.ID
	owners    map[failed.ReplayID]string
	leases    map[failed.ReplayID]time.Time
	queues    map[string]queueLease // by failed queue
	calls     int

	// before runs before each call, and after runs when the call is complete. They do not run
	// concurrently.
	before, after func(call string) error
	asking        sync.Mutex
}

type queueLease struct {
	owner string
	until time.Time
}

func NewMemory() *Memory {
	return &Memory{unsettled: map[failed.ID]string{}, items: map[failed.ReplayID][]failed.ID{}, owners: map[failed.ReplayID]string{}, leases: map[failed.ReplayID]time.Time{}, queues: map[string]queueLease{}}
}

func (a *Memory) do(ctx context.Context, call string, f func() error) error {
	a.mu.Lock()
	a.calls++
	before, after := a.before, a.after
	a.mu.Unlock()
	ask := func(f func(string) error) error {
		if f == nil {
			return nil
		}
		a.asking.Lock()
		defer a.asking.Unlock()
		return f(call)
	}
	if err := ask(before); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	a.mu.Lock()
	err := f()
	a.mu.Unlock()
	if err == nil {
		err = ask(after)
	}
	return err
}

// Called returns the number of calls.
func (a *Memory) Called() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.calls
}

func (a *Memory) Failing(before, after func(string) error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.before, a.after = before, after
}

func sameBytes(m failed.Message) string {
	headers := maps.Clone(m.Headers)
	delete(headers, "x-delivery-count")
	delete(headers, "x-acquired-count")
	return fmt.Sprintf("%q %v %v %q", m.FailedQueue, m.Properties, headers, m.Body)
}

func (a *Memory) AddDelivered(ctx context.Context, arrivals []failed.Arrived) (ids []failed.ID, err error) {
	err = a.do(ctx, "Add", func() error {
		for _, x := range arrivals {
			if string(x.Body) == "poison" {
				return errors.New("message refused")
			}
		}
		for _, x := range arrivals {
			if x.Owner != "" && a.queues[x.FailedQueue].owner != x.Owner {
				return failed.ErrState
			}
		}
		for _, x := range arrivals {
			ids = append(ids, a.add(x))
		}
		return nil
	})
	return ids, err
}

func (a *Memory) add(x failed.Arrived) failed.ID {
	d := sameBytes(x.Message)
	if x.Redelivered {
		for i, known := range a.digests {
			if session, unknown := a.unsettled[failed.ID(i+1)]; unknown && known == d && session != x.Session {
				a.unsettled[failed.ID(i+1)] = x.Session
				return failed.ID(i + 1)
			}
		}
	}
	m := x.Message
	m.ID, m.State, m.Archived = failed.ID(len(a.All)+1), failed.Failed, time.Now()
	if m.Queue == "" {
		m.Queue = strings.TrimSuffix(m.FailedQueue, ".failed")
	}
	if mark, ok := m.Headers[topology.HeaderReplay].(string); ok {
		_, _ = fmt.Sscanf(mark, "%d/%d", &m.Back, &m.BackOf)
		for _, r := range a.replays {
			if r.ID == m.Back {
				r.Back++
			}
		}
	}
	a.All, a.digests = append(a.All, &m), append(a.digests, d)
	a.unsettled[m.ID] = x.Session
	return m.ID
}

func (a *Memory) MarkSettled(ctx context.Context, ids []failed.ID) error {
	return a.do(ctx, "Settled", func() error {
		for _, id := range ids {
			delete(a.unsettled, id)
		}
		return nil
	})
}

func (a *Memory) ClaimQueue(ctx context.Context, queue, owner string, lease time.Duration) (mine bool, err error) {
	err = a.do(ctx, "ClaimQueue", func() error {
		now := time.Now()
		if x := a.queues[queue]; x.owner == owner || !now.Before(x.until) {
			mine, a.queues[queue] = true, queueLease{owner, now.Add(lease)}
		}
		return nil
	})
	return mine, err
}

func (a *Memory) RenewQueue(ctx context.Context, queue, owner string, lease time.Duration) (mine bool, err error) {
	err = a.do(ctx, "RenewQueue", func() error {
		if mine = a.queues[queue].owner == owner; mine {
			a.queues[queue] = queueLease{owner, time.Now().Add(lease)}
		}
		return nil
	})
	return mine, err
}

func (a *Memory) ReleaseQueue(ctx context.Context, queue, owner string) error {
	return a.do(ctx, "ReleaseQueue", func() error {
		if a.queues[queue].owner == owner {
			a.queues[queue] = queueLease{owner: owner}
		}
		return nil
	})
}

// Begin begins a replay of all failed messages.
func (a *Memory) Begin(p failed.Plan) failed.ReplayID {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := &failed.Replay{ID: failed.ReplayID(len(a.replays) + 1), Plan: p, State: failed.ReplayRunning, Begun: time.Now()}
	for _, m := range a.All {
		if m.State == failed.Failed {
			m.State = failed.Replaying
			a.items[r.ID] = append(a.items[r.ID], m.ID)
			r.Total++
		}
	}
	a.replays = append(a.replays, r)
	return r.ID
}

func (a *Memory) Running(ctx context.Context) (all []failed.Replay, err error) {
	err = a.do(ctx, "Running", func() error {
		for _, r := range a.replays {
			if r.Ended.IsZero() {
				all = append(all, *r)
			}
		}
		return nil
	})
	return all, err
}

func (a *Memory) Replay(ctx context.Context, id failed.ReplayID) (r *failed.Replay, err error) {
	err = a.do(ctx, "Replay", func() error {
		if int(id) > len(a.replays) {
			return failed.ErrNotFound
		}
		seen := *a.replays[id-1]
		r = &seen
		return nil
	})
	return r, err
}

func (a *Memory) UnsentOf(ctx context.Context, id failed.ReplayID, n int) (next []*failed.Message, err error) {
	err = a.do(ctx, "Next", func() error {
		if a.replays[id-1].State != failed.ReplayRunning {
			return nil
		}
		for _, item := range a.items[id] {
			if m := a.All[item-1]; m.State == failed.Replaying && len(next) < n {
				seen := *m
				next = append(next, &seen)
			}
		}
		return nil
	})
	return next, err
}

func (a *Memory) MarkSent(ctx context.Context, id failed.ReplayID, ids []failed.ID, _ store.UnaskedReason, _ string) error {
	if len(ids) == 0 {
		return nil
	}
	return a.do(ctx, "Sent", func() error {
		for _, sent := range ids {
			if m := a.All[sent-1]; m.State != failed.Replayed {
				m.State, m.ReplayedBy = failed.Replayed, id
				a.replays[id-1].Sent++
				if a.Succeeds {
					a.replays[id-1].Succeeded++
				}
			}
		}
		return nil
	})
}

func (a *Memory) MarkRefused(ctx context.Context, id failed.ReplayID, refusals []store.Refusal) error {
	if len(refusals) == 0 {
		return nil
	}
	return a.do(ctx, "Refuse", func() error {
		for _, r := range refusals {
			if m := a.All[r.ID-1]; m.State == failed.Replaying {
				m.State, m.Refused = failed.Failed, r.Why
				a.replays[id-1].Refused++
				a.replays[id-1].Why = cmp.Or(a.replays[id-1].Why, store.RefusalText(r))
			}
		}
		return nil
	})
}

func (a *Memory) ClaimReplay(ctx context.Context, id failed.ReplayID, owner string, lease time.Duration) (mine bool, err error) {
	err = a.do(ctx, "Claim", func() error {
		now := time.Now()
		if a.replays[id-1].Ended.IsZero() && (a.owners[id] == owner || !now.Before(a.leases[id])) {
			mine, a.owners[id], a.leases[id] = true, owner, now.Add(lease)
		}
		return nil
	})
	return mine, err
}

func (a *Memory) ReleaseReplay(ctx context.Context, id failed.ReplayID, owner string) error {
	return a.do(ctx, "Release", func() error {
		if a.owners[id] == owner {
			delete(a.leases, id)
			if r := a.replays[id-1]; r.State == failed.ReplayCancelling {
				a.end(r, failed.ReplayCancelled)
			}
		}
		return nil
	})
}

func (a *Memory) EndReplay(ctx context.Context, id failed.ReplayID, s failed.ReplayState, why string, _ failed.Actor) error {
	return a.do(ctx, "EndReplay", func() error {
		r := a.replays[id-1]
		if r.State != failed.ReplayRunning || s == failed.ReplayDone && r.Left() > 0 {
			return failed.ErrState
		}
		r.State, r.Why = failed.ReplayCancelling, cmp.Or(why, r.Why)
		if s != failed.ReplayCancelled || !time.Now().Before(a.leases[id]) {
			a.end(r, s)
		}
		return nil
	})
}

func (a *Memory) end(r *failed.Replay, s failed.ReplayState) {
	r.State, r.Ended = s, time.Now()
	for _, item := range a.items[r.ID] {
		if m := a.All[item-1]; m.State == failed.Replaying {
			m.State = failed.Failed
		}
	}
}

func (a *Memory) List(ctx context.Context, f failed.Filter, p store.Page) (list []failed.Summary, next string, err error) {
	err = a.do(ctx, "List", func() error {
		var from int
		_, _ = fmt.Sscan(string(p.After), &from)
		for _, m := range slices.Backward(a.All) {
			if m.Back == f.Replay {
				list = append(list, failed.Summary{ID: m.ID, Queue: m.Queue, Error: m.Error, Back: m.Back, BackOf: m.BackOf})
			}
		}
		list = list[min(from, len(list)):]
		if size := cmp.Or(p.Size, store.DefaultPageSize); len(list) > size {
			list, next = list[:size], string(fmt.Sprint(from+size))
		}
		return nil
	})
	return list, next, err
}

func (a *Memory) Get(ctx context.Context, id failed.ID) (m *failed.Message, err error) {
	err = a.do(ctx, "Get", func() error {
		if id < 1 || int(id) > len(a.All) {
			return failed.ErrNotFound
		}
		seen := *a.All[id-1]
		m = &seen
		return nil
	})
	return m, err
}

// Bodies returns the bodies of all messages, by ID.
func (a *Memory) Bodies() (all []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, m := range a.All {
		all = append(all, string(m.Body))
	}
	return all
}

// Open returns the number of messages whose ack is not recorded.
func (a *Memory) Open() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.unsettled)
}

func (a *Memory) ReplayOf(id failed.ReplayID) failed.Replay {
	a.mu.Lock()
	defer a.mu.Unlock()
	return *a.replays[id-1]
}

func (a *Memory) States() map[failed.State]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := map[failed.State]int{}
	for _, m := range a.All {
		n[m.State]++
	}
	return n
}

// Fill adds n messages that failed in a queue.
func (a *Memory) Fill(queue string, n int) {
	for i := range n {
		a.add(failed.Arrived{Message: failed.Message{
			FailedQueue: queue + ".failed", Queue: queue, Error: fmt.Sprintf("failure %d", i),
			Content: failed.Content{Body: fmt.Appendf(nil, "message %d", i), Properties: failed.Properties{MessageID: fmt.Sprint("id-", i)}},
		}})
	}
}

func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var ErrDown = errors.New("store is down")
