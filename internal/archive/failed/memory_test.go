package failed

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

	"github.com/reprisemq/reprise/topology"
)

// memory is an in-memory archive for tests in virtual time. It implements the methods of Archive that an Ingest and a
// Replayer need, and fails on request.
type memory struct {
	succeeds  bool // a worker reports the success of each sent message
	mu        sync.Mutex
	all       []*Message // by ID, from 1
	digests   []string
	unsettled map[ID]string // session of each delivery whose ack is not recorded
	replays   []*Replay
	items     map[ReplayID][]ID
	owners    map[ReplayID]string
	leases    map[ReplayID]time.Time
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

func newMemory() *memory {
	return &memory{unsettled: map[ID]string{}, items: map[ReplayID][]ID{}, owners: map[ReplayID]string{}, leases: map[ReplayID]time.Time{}, queues: map[string]queueLease{}}
}

func (a *memory) do(ctx context.Context, call string, f func() error) error {
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

// called returns the number of calls.
func (a *memory) called() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.calls
}

func (a *memory) failing(before, after func(string) error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.before, a.after = before, after
}

func sameBytes(m Message) string {
	headers := maps.Clone(m.Headers)
	delete(headers, "x-delivery-count")
	delete(headers, "x-acquired-count")
	return fmt.Sprintf("%q %v %v %q", m.FailedQueue, m.Properties, headers, m.Body)
}

func (a *memory) ingest(ctx context.Context, arrivals []queuedMessage) (ids []ID, err error) {
	err = a.do(ctx, "Add", func() error {
		for _, x := range arrivals {
			if string(x.Body) == "poison" {
				return errors.New("message refused")
			}
		}
		for _, x := range arrivals {
			if x.Owner != "" && a.queues[x.FailedQueue].owner != x.Owner {
				return ErrState
			}
		}
		for _, x := range arrivals {
			ids = append(ids, a.add(x))
		}
		return nil
	})
	return ids, err
}

func (a *memory) add(x queuedMessage) ID {
	d := sameBytes(x.Message)
	if x.Redelivered {
		for i, known := range a.digests {
			if session, unknown := a.unsettled[ID(i+1)]; unknown && known == d && session != x.Session {
				a.unsettled[ID(i+1)] = x.Session
				return ID(i + 1)
			}
		}
	}
	m := x.Message
	m.ID, m.State, m.Archived = ID(len(a.all)+1), Failed, time.Now()
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
	a.all, a.digests = append(a.all, &m), append(a.digests, d)
	a.unsettled[m.ID] = x.Session
	return m.ID
}

func (a *memory) markSettled(ctx context.Context, ids []ID) error {
	return a.do(ctx, "Settled", func() error {
		for _, id := range ids {
			delete(a.unsettled, id)
		}
		return nil
	})
}

func (a *memory) claimQueue(ctx context.Context, queue, owner string, lease time.Duration) (mine bool, err error) {
	err = a.do(ctx, "claimQueue", func() error {
		now := time.Now()
		if x := a.queues[queue]; x.owner == owner || !now.Before(x.until) {
			mine, a.queues[queue] = true, queueLease{owner, now.Add(lease)}
		}
		return nil
	})
	return mine, err
}

func (a *memory) renewQueue(ctx context.Context, queue, owner string, lease time.Duration) (mine bool, err error) {
	err = a.do(ctx, "renewQueue", func() error {
		if mine = a.queues[queue].owner == owner; mine {
			a.queues[queue] = queueLease{owner, time.Now().Add(lease)}
		}
		return nil
	})
	return mine, err
}

func (a *memory) releaseQueue(ctx context.Context, queue, owner string) error {
	return a.do(ctx, "releaseQueue", func() error {
		if a.queues[queue].owner == owner {
			a.queues[queue] = queueLease{owner: owner}
		}
		return nil
	})
}

// begin begins a replay of all failed messages.
func (a *memory) begin(p Plan) ReplayID {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := &Replay{ID: ReplayID(len(a.replays) + 1), Plan: p, State: ReplayRunning, Begun: time.Now()}
	for _, m := range a.all {
		if m.State == Failed {
			m.State = Replaying
			a.items[r.ID] = append(a.items[r.ID], m.ID)
			r.Total++
		}
	}
	a.replays = append(a.replays, r)
	return r.ID
}

func (a *memory) Running(ctx context.Context) (all []Replay, err error) {
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

func (a *memory) Replay(ctx context.Context, id ReplayID) (r *Replay, err error) {
	err = a.do(ctx, "Replay", func() error {
		if int(id) > len(a.replays) {
			return ErrNotFound
		}
		seen := *a.replays[id-1]
		r = &seen
		return nil
	})
	return r, err
}

func (a *memory) unsentOf(ctx context.Context, id ReplayID, n int) (next []*Message, err error) {
	err = a.do(ctx, "Next", func() error {
		if a.replays[id-1].State != ReplayRunning {
			return nil
		}
		for _, item := range a.items[id] {
			if m := a.all[item-1]; m.State == Replaying && len(next) < n {
				seen := *m
				next = append(next, &seen)
			}
		}
		return nil
	})
	return next, err
}

func (a *memory) markSent(ctx context.Context, id ReplayID, ids []ID, _ unaskedReason) error {
	if len(ids) == 0 {
		return nil
	}
	return a.do(ctx, "Sent", func() error {
		for _, sent := range ids {
			if m := a.all[sent-1]; m.State != Replayed {
				m.State, m.ReplayedBy = Replayed, id
				a.replays[id-1].Sent++
				if a.succeeds {
					a.replays[id-1].Succeeded++
				}
			}
		}
		return nil
	})
}

func (a *memory) markRefused(ctx context.Context, id ReplayID, refusals []refusal) error {
	if len(refusals) == 0 {
		return nil
	}
	return a.do(ctx, "Refuse", func() error {
		for _, r := range refusals {
			if m := a.all[r.ID-1]; m.State == Replaying {
				m.State, m.Refused = Failed, r.Why
				a.replays[id-1].Refused++
				a.replays[id-1].Why = cmp.Or(a.replays[id-1].Why, refusalText(r))
			}
		}
		return nil
	})
}

func (a *memory) claimReplay(ctx context.Context, id ReplayID, owner string, lease time.Duration) (mine bool, err error) {
	err = a.do(ctx, "Claim", func() error {
		now := time.Now()
		if a.replays[id-1].Ended.IsZero() && (a.owners[id] == owner || !now.Before(a.leases[id])) {
			mine, a.owners[id], a.leases[id] = true, owner, now.Add(lease)
		}
		return nil
	})
	return mine, err
}

func (a *memory) releaseReplay(ctx context.Context, id ReplayID, owner string) error {
	return a.do(ctx, "Release", func() error {
		if a.owners[id] == owner {
			delete(a.leases, id)
			if r := a.replays[id-1]; r.State == ReplayCancelling {
				a.end(r, ReplayCancelled)
			}
		}
		return nil
	})
}

func (a *memory) EndReplay(ctx context.Context, id ReplayID, s ReplayState, why string, _ Actor) error {
	return a.do(ctx, "EndReplay", func() error {
		r := a.replays[id-1]
		if r.State != ReplayRunning || s == ReplayDone && r.Left() > 0 {
			return ErrState
		}
		r.State, r.Why = ReplayCancelling, cmp.Or(why, r.Why)
		if s != ReplayCancelled || !time.Now().Before(a.leases[id]) {
			a.end(r, s)
		}
		return nil
	})
}

func (a *memory) end(r *Replay, s ReplayState) {
	r.State, r.Ended = s, time.Now()
	for _, item := range a.items[r.ID] {
		if m := a.all[item-1]; m.State == Replaying {
			m.State = Failed
		}
	}
}

func (a *memory) List(ctx context.Context, f Filter, p Page) (list []Summary, next string, err error) {
	err = a.do(ctx, "List", func() error {
		var from int
		_, _ = fmt.Sscan(string(p.After), &from)
		for _, m := range slices.Backward(a.all) {
			if m.Back == f.Replay {
				list = append(list, Summary{ID: m.ID, Queue: m.Queue, Error: m.Error, Back: m.Back, BackOf: m.BackOf})
			}
		}
		list = list[min(from, len(list)):]
		if size := cmp.Or(p.Size, defaultPageSize); len(list) > size {
			list, next = list[:size], string(fmt.Sprint(from+size))
		}
		return nil
	})
	return list, next, err
}

func (a *memory) Get(ctx context.Context, id ID) (m *Message, err error) {
	err = a.do(ctx, "Get", func() error {
		if id < 1 || int(id) > len(a.all) {
			return ErrNotFound
		}
		seen := *a.all[id-1]
		m = &seen
		return nil
	})
	return m, err
}

// bodies returns the bodies of all messages, by ID.
func (a *memory) bodies() (all []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, m := range a.all {
		all = append(all, string(m.Body))
	}
	return all
}

// open returns the number of messages whose ack is not recorded.
func (a *memory) open() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.unsettled)
}

func (a *memory) replay(id ReplayID) Replay {
	a.mu.Lock()
	defer a.mu.Unlock()
	return *a.replays[id-1]
}

func (a *memory) states() map[State]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := map[State]int{}
	for _, m := range a.all {
		n[m.State]++
	}
	return n
}

// fill adds n messages that failed in a queue.
func (a *memory) fill(queue string, n int) {
	for i := range n {
		a.add(queuedMessage{Message: Message{
			FailedQueue: queue + ".failed", Queue: queue, Error: fmt.Sprintf("failure %d", i),
			Content: Content{Body: fmt.Appendf(nil, "message %d", i), Properties: Properties{MessageID: fmt.Sprint("id-", i)}},
		}})
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
