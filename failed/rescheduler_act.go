package failed

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/amqpvalue"
	"github.com/reprisemq/reprise/topology"
)

const (
	maxActRows = 10_000 // messages of one act
	maxSift    = 10_000 // messages of a wait queue that are held at a time
	maxCopies  = 500    // of them, those that are copied while they are held
	siftLimit  = 10 * time.Second
	copyLimit  = 15 * time.Second

	// maxLooks is how many failed deliveries a message may have had to be looked at: at 20 RabbitMQ dead-letters it, and five more would
	// have a worker take it for one that ends its process.
	maxLooks = 10
)

// Act does something with waiting messages: those that the filter selects when Act begins, the first 10,000 to be due. The error is
// ErrState if they are more than WaitingAct.AtMost, and nothing was done then.
//
// The messages are looked for in their wait queues by message id and attempt, among the first 10,000 messages of each. It is one act at a
// time that looks into a wait queue of an archive, for 10 seconds at most; what is due there meanwhile is late by as much. The broker proves
// first that the wait queue leads to the work queue and to no other.
//
//   - RetryNow has the broker dead-letter the message as if it were due. There is no copy: the message is never lost, and never twice.
//   - Postpone and ParkNow publish a copy, and acknowledge the message when the broker has confirmed the copy. It is never lost. A
//     crash or a lost connection in between leaves up to 500 messages twice, with the same id: Unsure.
//
// A message that cannot be acted on stays as it is, and is among Refused: one without an id, and one that does not wait in a queue of
// topology.Buckets.
func (r *Rescheduler) Act(ctx context.Context, act WaitingAct, who Actor) (res WaitingResult, err error) {
	defer annotate(&err, "acting on waiting messages")
	if err := cmp.Or(act.Validate(), who.validate()); err != nil {
		return res, err
	}
	rows, err := r.selected(ctx, act)
	if err != nil || len(rows) == 0 {
		return res, err
	}
	res.Selected = int64(len(rows))
	details := act.details()
	details["messages"] = len(rows)
	if err := r.archive.Record(ctx, who, verbsOfWaiting[act.Do], subjectOf(act.Filter), details); err != nil {
		return WaitingResult{}, err // what is not on record is not done
	}
	for place, some := range byPlace(rows) {
		x := &waitingAct{r: r, act: act, who: who, place: place, left: some, result: &res}
		if why := x.unfit(); why != "" {
			res.refuse(why, len(some))
			continue
		}
		if err = x.run(ctx); err != nil {
			x.refuse(strings.TrimPrefix(err.Error(), "reprise: "))
			if ctx.Err() != nil || errors.Is(err, reprise.ErrClosed) || errors.Is(err, ErrUnavailable) {
				break
			}
			err = nil
		}
	}
	rest := res.Selected - res.Done - res.Gone - res.Unsure
	for _, x := range res.Refused {
		rest -= x.Messages
	}
	res.refuse("not begun", int(rest))
	longer, cancel := grace(ctx, noteGrace)
	defer cancel()
	return res, errors.Join(err, r.archive.Record(longer, who, verbsOfWaiting[act.Do]+" ended", subjectOf(act.Filter), res.details()))
}

// selected returns the messages of an act.
func (r *Rescheduler) selected(ctx context.Context, act WaitingAct) ([]Waiting, error) {
	where, args, err := r.archive.waitingWhere(act.Filter)
	if err != nil {
		return nil, err
	}
	if act.AtMost > 0 {
		n, err := r.archive.CountWaiting(ctx, act.Filter)
		if err != nil {
			return nil, err
		}
		if n.Messages > act.AtMost {
			return nil, fmt.Errorf("%w: %d waiting messages are selected, more than the %d that were confirmed", ErrState, n.Messages, act.AtMost)
		}
	}
	most := maxActRows
	if act.AtMost > 0 {
		most = int(min(act.AtMost, maxActRows))
	}
	return r.archive.waiting(ctx, where, args, most)
}

// waitingPlace is where messages wait.
type waitingPlace struct{ queue, wait string }

// byPlace groups messages by where they wait, in the order in which they are due first.
func byPlace(rows []Waiting) func(yield func(waitingPlace, []Waiting) bool) {
	var places []waitingPlace
	all := map[waitingPlace][]Waiting{}
	for _, w := range rows {
		p := waitingPlace{w.Queue, w.Wait}
		if w.MessageID == "" {
			p.wait = withoutID
		}
		if all[p] == nil {
			places = append(places, p)
		}
		all[p] = append(all[p], w)
	}
	return func(yield func(waitingPlace, []Waiting) bool) {
		for _, p := range places {
			if !yield(p, all[p]) {
				return
			}
		}
	}
}

// withoutID is no name of a queue.
const withoutID = "\x00"

// waitingAct is an act on the messages of one wait queue.
type waitingAct struct {
	r      *Rescheduler
	act    WaitingAct
	who    Actor
	place  waitingPlace
	left   []Waiting // of which it is not known yet what becomes
	result *WaitingResult
}

// refuse refuses what is left.
func (x *waitingAct) refuse(why string) {
	x.result.refuse(why, len(x.left))
	x.left = nil
}

// unfit returns why messages that wait at a place cannot be acted on; "" if they can.
func (x *waitingAct) unfit() string {
	switch p := x.place; {
	case p.wait == withoutID:
		return "they have no message id"
	case p.wait == "":
		return "it is not known where they wait, or they wait in several queues, one after the other"
	case p.wait == p.queue:
		return "they wait inside of the work queue, where the broker shows them to nobody"
	case !strings.HasPrefix(p.wait, p.queue+".wait.") || strings.Contains(p.wait[len(p.queue)+6:], ".") || !amqpvalue.IsWaitQueue(p.wait):
		return fmt.Sprintf("their wait queue %q is not one of topology.Buckets", p.wait)
	}
	return ""
}

// run acts on all that is left, in one look into the wait queue after the other.
func (x *waitingAct) run(ctx context.Context) error {
	if err := x.prove(ctx); err != nil || len(x.left) == 0 {
		return err
	}
	owner := rand.Text()
	claim := func(ctx context.Context) (bool, error) {
		return x.r.archive.claimQueue(ctx, x.place.wait, owner, defaultLease)
	}
	switch mine, err := claim(ctx); {
	case err != nil:
		return err
	case !mine:
		x.refuse("another act looks into their wait queue: try again")
		return nil
	}
	defer func() {
		longer, cancel := grace(ctx, noteGrace)
		defer cancel()
		_ = x.r.archive.releaseQueue(longer, x.place.wait, owner) // or it ends with the lease
	}()
	return hold{claim: claim, lease: defaultLease}.run(ctx, func(ctx context.Context) error {
		for len(x.left) > 0 {
			if err := x.look(ctx); err != nil {
				return err
			}
		}
		return nil
	})
}

// prove has the broker prove that the wait queue leads to the work queue and to no other. If there is no such queue, the messages are
// gone.
func (x *waitingAct) prove(ctx context.Context) error {
	_, err := x.r.client.Depth(ctx, x.place.wait)
	if missing, ok := errors.AsType[*reprise.QueueError](err); ok && missing.Code == 404 {
		return x.gone(ctx, x.left)
	}
	if err != nil {
		return err
	}
	hop, err := topology.Buckets{}.Wait(topology.Delivery{Queue: x.place.queue}, 0)
	if err != nil {
		return err
	}
	q := hop.Topology.Queues[0]
	q.Name = x.place.wait
	return x.r.client.Declare(ctx, topology.Topology{Queues: []topology.Queue{q}})
}

// gone notes that messages are not where they were.
func (x *waitingAct) gone(ctx context.Context, rows []Waiting) error {
	x.result.Gone += int64(len(rows))
	x.left = slices.DeleteFunc(slices.Clone(x.left), func(w Waiting) bool { return containsID(rows, w.ID) })
	return x.r.archive.removeWaiting(ctx, rows)
}

func containsID(rows []Waiting, id WaitingID) bool {
	return slices.ContainsFunc(rows, func(w Waiting) bool { return w.ID == id })
}

// found is a message of the wait queue that is meant.
type found struct {
	row Waiting
	m   *reprise.Message
	err error
}

// look looks into the wait queue once, and acts on what it finds.
func (x *waitingAct) look(ctx context.Context) error {
	wanted := map[string]Waiting{}
	for _, w := range x.left {
		wanted[w.MessageID] = w
	}
	most := maxCopies
	if x.act.Do == RetryNow {
		most = maxSift
	}
	looking, cancel := context.WithTimeoutCause(ctx, siftLimit, errors.New("the wait queue could not be looked through in time"))
	defer cancel()
	var all []*found
	var worn bool // a message was looked at too often
	rows := map[WaitingID]bool{}
	pick := func(m *reprise.Message) (picked, last bool) {
		if n, _ := amqpvalue.Integer(m.Headers["x-delivery-count"]); n >= maxLooks {
			worn = true
			return false, true
		}
		w, ok := wanted[m.MessageID]
		if !ok || m.Expiration <= 0 || !sameAttempt(w, m) {
			return false, false
		}
		all = append(all, &found{row: w, m: m})
		rows[w.ID] = true
		return true, len(rows) == len(wanted) || len(all) == most
	}
	var settled []Waiting
	looked, more, err := x.r.client.Sift(looking, x.place.wait, maxSift, pick, func([]*reprise.Message) []reprise.Verdict {
		verdicts := x.settle(ctx, all)
		for i, f := range all {
			if verdicts[i] != reprise.GiveBack && !containsID(settled, f.row.ID) {
				settled = append(settled, f.row)
			}
		}
		return verdicts
	})
	x.left = slices.DeleteFunc(x.left, func(w Waiting) bool { return rows[w.ID] })
	for id := range rows {
		if !containsID(settled, id) {
			x.unsettled(all, id)
		}
	}
	if err != nil && len(settled) > 0 {
		x.result.Unsure += int64(len(settled))
		return err
	}
	if err != nil {
		return err
	}
	x.result.Done += int64(len(settled))
	if err := x.noteDone(ctx, settled); err != nil {
		return err
	}
	switch {
	case len(all) == most: // there is more to find
		return nil
	case worn:
		x.refuse("a message before them was looked at too often: RabbitMQ before 4.3 counts that")
		return nil
	case more:
		x.refuse(fmt.Sprintf("they are not among the first %d messages of their wait queue", looked))
		return nil
	}
	return x.gone(ctx, x.left)
}

// sameAttempt reports whether a message is the one of a row, and not another one with its id.
func sameAttempt(w Waiting, m *reprise.Message) bool {
	n := historyOf(m.Headers).Attempts
	return n == 0 || n == w.Attempt
}

// unsettled counts a message that was found and is still there.
func (x *waitingAct) unsettled(all []*found, id WaitingID) {
	for _, f := range all {
		switch {
		case f.row.ID != id || f.err == nil:
		case errors.Is(f.err, reprise.ErrUnconfirmed): // the broker may have the copy
			x.result.Unsure++
			return
		default:
			x.result.refuse(strings.TrimPrefix(f.err.Error(), "reprise: "), 1)
			return
		}
	}
	x.result.refuse("not begun", 1)
}

// settle does what is to be done before the messages leave their wait queue, and returns what becomes of each there.
func (x *waitingAct) settle(ctx context.Context, all []*found) []reprise.Verdict {
	verdicts := make([]reprise.Verdict, len(all))
	if x.act.Do == RetryNow {
		for i := range verdicts {
			verdicts[i] = reprise.DeadLetter
		}
		return verdicts
	}
	ctx, cancel := context.WithTimeout(ctx, copyLimit)
	defer cancel()
	address, expiration, err := x.address(ctx)
	messages := make([]*reprise.Message, len(all))
	for i, f := range all {
		if f.err = err; err == nil {
			messages[i] = x.copy(f.m)
			messages[i].RoutingKey, messages[i].Expiration = address, expiration
		}
	}
	if err != nil {
		return verdicts
	}
	failed, ok := errors.AsType[*reprise.BatchError](x.r.client.PublishBatch(ctx, messages))
	if ok {
		for _, f := range failed.Failed {
			all[f.Index].err = f.Err
		}
	}
	for i, f := range all {
		if f.err == nil {
			verdicts[i] = reprise.Acknowledge
		}
	}
	return verdicts
}

// address returns the queue that copies go to, and their expiration.
func (x *waitingAct) address(ctx context.Context) (queue string, expiration time.Duration, err error) {
	d := topology.Delivery{Queue: x.place.queue}
	if x.act.Do == ParkNow {
		return topology.Buckets{}.Failed(d).RoutingKey, 0, nil
	}
	hop, err := topology.Buckets{}.Wait(d, x.act.Delay)
	if err != nil {
		return "", 0, err
	}
	return hop.RoutingKey, hop.TTL, x.r.client.Declare(ctx, hop.Topology)
}

// copy returns what is published for a message: as it waits, without what the broker has written on it. A worker has already stashed
// what cannot travel in its place.
func (x *waitingAct) copy(m *reprise.Message) *reprise.Message {
	out := *m
	out.Exchange, out.NoTimestamp = "", true
	out.Headers = make(map[string]any, len(m.Headers)+2)
	for name, value := range m.Headers {
		if !amqpvalue.IsBrokerHeader(name) {
			out.Headers[name] = value
		}
	}
	if out.UserID != "" { // that of the worker: the broker refuses it from another user
		if _, stashed := out.Headers[reprise.HeaderUserID]; !stashed {
			out.Headers[reprise.HeaderUserID] = out.UserID
		}
		out.UserID = ""
	}
	if x.act.Do == ParkNow {
		reason := "parked by " + string(x.who)
		if x.act.Reason != "" {
			reason += ": " + x.act.Reason
		}
		out.Headers[topology.HeaderReason] = reason
	}
	return &out
}

// noteDone brings the rows of messages up to date that were acted on.
func (x *waitingAct) noteDone(ctx context.Context, rows []Waiting) error {
	longer, cancel := grace(ctx, noteGrace)
	defer cancel()
	if x.act.Do != Postpone {
		return x.r.archive.removeWaiting(longer, rows)
	}
	hop, err := topology.Buckets{}.Wait(topology.Delivery{Queue: x.place.queue}, x.act.Delay)
	if err != nil {
		return err
	}
	return x.r.archive.postponeWaiting(longer, rows, hop.RoutingKey, x.r.archive.now().Add(x.act.Delay), x.act.Delay)
}
