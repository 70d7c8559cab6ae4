package waiting

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
	"github.com/reprisemq/reprise/internal/archive/background"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/sift"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/brief"
	"github.com/reprisemq/reprise/internal/inner"
	"github.com/reprisemq/reprise/internal/protocol"
	"github.com/reprisemq/reprise/topology"
)

const (
	maxActRows = 10_000 // maximum number of messages of an act
	maxSift    = 10_000 // maximum number of messages of a wait queue that are unacked at a time
	maxCopies  = 500    // maximum number of messages that are copied while they are unacked
	copyLimit  = 15 * time.Second

	// siftLimit is the maximum time for one pass of an act over a wait queue. An act that has found its messages
	// continues to read the other messages until half of this time has passed, and requeues them all together, so that
	// they keep their order: see sift.Queue.
	siftLimit = 10 * time.Second

	// maxLooks is the value of x-delivery-count at which Act stops reading. Before RabbitMQ 4.3, each read counts as a
	// failed delivery. From 4.0 to 4.2, the broker dead-letters a message after more than 20 failed deliveries, so that
	// the message is retried early.
	maxLooks = 10
)

// Act performs an action on waiting messages. It selects the matching messages when it begins, at most 10,000, in the
// order in which they are due. If more messages than Act.AtMost match, Act changes nothing and returns ErrState.
//
// Act searches the first 10,000 messages of each wait queue for the message IDs and attempts. Only one act per archive
// reads a wait queue at a time. It reads the queue in one or more passes. Each pass reads for at most 10 seconds, and
// then publishes copies, if any, for at most 15 seconds. Messages that become due during a pass are delayed until its
// end. If 10 seconds are too short to read the whole queue, messages in a quorum queue may change their order. Before
// Act reads a wait queue, it proves through the broker that the wait queue has the arguments of its design. The names
// of the work queue and the wait queue determine the design: topology.Buckets, MessageTTL, GrowingTTL or DeadLettering
// with default names, or a preset. The wait queues of package topology and of preset.Staking dead-letter to the work
// queue and to no other queue. Other presets dead-letter to an exchange, which must exist.
//
//   - RetryNow makes the broker dead-letter the message as if it were due. It does not copy the message. Therefore it
//     does not duplicate messages, and it loses a message only if the message would also be lost when it is due.
//   - Postpone and ParkNow publish a copy, and acknowledge the message after the broker has confirmed the copy. No
//     message is lost. A crash or a lost connection between the two steps leaves up to 500 duplicates, with the IDs of
//     the originals: see Result.Unsure.
//
// Messages without an ID, and messages that are not in a wait queue of one of these designs, stay unchanged and count
// as Refused. Postpone requires topology.Buckets: in other designs, a wait queue has one fixed delay, or a message with
// a longer delay would block the messages behind it.
func (r *Rescheduler) Act(ctx context.Context, act Act, who failed.Actor) (res Result, err error) {
	defer failed.Annotate(&err, "cannot act on waiting messages")
	if err := cmp.Or(act.Validate(), who.Validate()); err != nil {
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
		return Result{}, err // without an entry in the audit log, the act must not begin
	}
	for place, some := range byPlace(rows) {
		x := &waitingAct{r: r, act: act, who: who, place: place, left: some, result: &res}
		if why := x.unfit(); why != "" {
			res.refuse(why, len(some))
			continue
		}
		if err = x.run(ctx); err != nil {
			x.refuse(strings.TrimPrefix(err.Error(), "reprise: "))
			if ctx.Err() != nil || errors.Is(err, reprise.ErrClosed) || errors.Is(err, store.ErrUnavailable) {
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
	longer, cancel := background.Grace(ctx, background.NoteGrace)
	defer cancel()
	return res, errors.Join(err, r.archive.Record(longer, who, verbsOfWaiting[act.Do]+" ended", subjectOf(act.Filter), res.details()))
}

// selected returns the messages that an act selects.
func (r *Rescheduler) selected(ctx context.Context, act Act) ([]store.Waiting, error) {
	if act.AtMost > 0 {
		n, err := r.archive.CountWaiting(ctx, act.Filter)
		if err != nil {
			return nil, err
		}
		if n.Messages > act.AtMost {
			return nil, fmt.Errorf("%w: filter must select at most %d waiting messages: got %d", failed.ErrState, act.AtMost, n.Messages)
		}
	}
	most := maxActRows
	if act.AtMost > 0 {
		most = int(min(act.AtMost, maxActRows))
	}
	return r.archive.SelectWaiting(ctx, act.Filter, most)
}

// byPlace groups messages by place, in the order of the earliest due time.
func byPlace(rows []store.Waiting) func(yield func(store.WaitingPlace, []store.Waiting) bool) {
	var places []store.WaitingPlace
	all := map[store.WaitingPlace][]store.Waiting{}
	for _, w := range rows {
		p := store.WaitingPlace{Queue: string(w.Queue), Wait: string(w.Wait)}
		if w.MessageID == "" {
			p.Wait = withoutID
		}
		if all[p] == nil {
			places = append(places, p)
		}
		all[p] = append(all[p], w)
	}
	return func(yield func(store.WaitingPlace, []store.Waiting) bool) {
		for _, p := range places {
			if !yield(p, all[p]) {
				return
			}
		}
	}
}

// withoutID represents messages without an ID. It is not a valid name of a queue.
const withoutID = "\x00"

// waitingAct is the part of an act for the messages of one wait queue.
type waitingAct struct {
	r      *Rescheduler
	act    Act
	who    failed.Actor
	place  store.WaitingPlace
	design waitDesign      // valid after prove
	left   []store.Waiting // messages without a result
	result *Result
}

// refuse counts all messages in left as refused.
func (x *waitingAct) refuse(why string) {
	x.result.refuse(why, len(x.left))
	x.left = nil
}

// unfit returns the reason why the act is not possible for messages at this place, or "".
func (x *waitingAct) unfit() string {
	switch p := x.place; {
	case p.Wait == withoutID:
		return "they have no message id"
	case p.Wait == "":
		return "it is not known where they wait, or they wait in several queues, one after the other (topology.Levels): have the handler park them at their next attempt"
	case p.Wait == p.Queue:
		return "they wait inside the work queue, where no client can read them (let the handler park them at the next attempt)"
	case len(designsOf(p)) == 0:
		return fmt.Sprintf("their wait queue %s is not one of a known design: move all its messages with reprise redrive", brief.Quoted(p.Wait))
	}
	return ""
}

// run acts on all messages in left. It reads the wait queue as often as necessary.
func (x *waitingAct) run(ctx context.Context) error {
	if err := x.prove(ctx); err != nil || len(x.left) == 0 {
		return err
	}
	owner := rand.Text()
	claim := func(ctx context.Context) (bool, error) {
		return x.r.archive.ClaimQueue(ctx, x.place.Wait, owner, background.DefaultLease)
	}
	switch mine, err := claim(ctx); {
	case err != nil:
		return err
	case !mine:
		x.refuse("another act looks into their wait queue: try again")
		return nil
	}
	defer func() {
		longer, cancel := background.Grace(ctx, background.NoteGrace)
		defer cancel()
		_ = x.r.archive.ReleaseQueue(longer, x.place.Wait, owner) // after an error, the lease expires
	}()
	return background.Lease{Claim: claim, Lease: background.DefaultLease}.Run(ctx, func(ctx context.Context) error {
		for len(x.left) > 0 {
			if err := x.sift(ctx); err != nil {
				return err
			}
		}
		return nil
	})
}

// prove finds the design of the wait queue, and checks through the broker that the queue has the arguments of this
// design. If the wait queue does not exist, prove counts the messages as gone.
func (x *waitingAct) prove(ctx context.Context) error {
	_, err := x.r.client.Depth(ctx, x.place.Wait)
	if missing, ok := errors.AsType[*reprise.QueueError](err); ok && missing.Code == 404 {
		return x.markGone(ctx, x.left)
	}
	if err != nil {
		return err
	}
	if x.design, err = proven(ctx, x.r.client, designsOf(x.place)); err != nil {
		return err
	}
	switch {
	case x.design.wait.AutoDelete:
		x.refuse("their wait queue is auto-delete: the broker would delete it with its messages as soon as the act has looked into it")
	case x.act.Do == Postpone && x.design.longer != "":
		x.refuse(x.design.longer)
	}
	return nil
}

// markGone counts messages that are no longer in the wait queue, and removes them from left and from the archive.
func (x *waitingAct) markGone(ctx context.Context, rows []store.Waiting) error {
	x.result.Gone += int64(len(rows))
	x.left = slices.DeleteFunc(slices.Clone(x.left), func(w store.Waiting) bool { return containsID(rows, w.ID) })
	return x.r.archive.RemoveWaiting(ctx, rows)
}

func containsID(rows []store.Waiting, id store.WaitingID) bool {
	return slices.ContainsFunc(rows, func(w store.Waiting) bool { return w.ID == id })
}

// found is a selected message in the wait queue.
type found struct {
	row store.Waiting
	m   *reprise.Delivery
	err error
}

// sift reads the wait queue once, and acts on the selected messages that it finds.
func (x *waitingAct) sift(ctx context.Context) error {
	wanted := map[string]store.Waiting{}
	for _, w := range x.left {
		wanted[string(w.MessageID)] = w
	}
	most := maxCopies
	if x.act.Do == RetryNow {
		most = maxSift
	}
	began := time.Now()
	looking, cancel := context.WithTimeoutCause(ctx, siftLimit, errors.New("timed out while reading the wait queue"))
	defer cancel()
	var all []*found
	var atLimit bool // whether a message has reached maxLooks
	rows := map[store.WaitingID]bool{}
	pick := func(m *reprise.Delivery) (picked, last bool) {
		if n, _ := amqpvalue.Integer(m.Headers["x-delivery-count"]); n >= maxLooks {
			atLimit = true
			return false, true
		}
		if len(rows) == len(wanted) || len(all) == most {
			return false, time.Since(began) > siftLimit/2 // see siftLimit
		}
		w, ok := wanted[m.MessageID]
		if !ok || !x.design.waits(m) || !x.sameAttempt(w, m) || !x.design.returns(m, x.place.Queue) {
			return false, false
		}
		all = append(all, &found{row: w, m: m})
		rows[w.ID] = true
		return true, false
	}
	var settled []store.Waiting
	looked, more, err := sift.Queue(looking, x.r.client, x.place.Wait, maxSift, pick, func([]*reprise.Delivery) []sift.Verdict {
		verdicts := x.settle(ctx, all)
		for i, f := range all {
			if verdicts[i] != sift.Requeue && !containsID(settled, f.row.ID) {
				settled = append(settled, f.row)
			}
		}
		return verdicts
	})
	x.left = slices.DeleteFunc(x.left, func(w store.Waiting) bool { return rows[w.ID] })
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
	case len(all) == most: // the wait queue may contain more selected messages
		return nil
	case atLimit:
		x.refuse("a message before them was read too often (RabbitMQ before 4.3 counts reads as deliveries)")
		return nil
	case more:
		x.refuse(fmt.Sprintf("they are not among the first %d messages of their wait queue", looked))
		return nil
	}
	return x.markGone(ctx, x.left)
}

// sameAttempt reports whether a message is the attempt in the row, and not another message with the same ID.
func (x *waitingAct) sameAttempt(w store.Waiting, m *reprise.Delivery) bool {
	n := x.design.attempts(m, x.place.Queue)
	return n == 0 || n == w.Attempt
}

// unsettled counts a message that was found but was not moved.
func (x *waitingAct) unsettled(all []*found, id store.WaitingID) {
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

// settle publishes the copies, if any, and returns a verdict for each found message.
func (x *waitingAct) settle(ctx context.Context, all []*found) []sift.Verdict {
	verdicts := make([]sift.Verdict, len(all))
	if x.act.Do == RetryNow {
		for i := range verdicts {
			verdicts[i] = sift.DeadLetter
		}
		return verdicts
	}
	ctx, cancel := context.WithTimeout(ctx, copyLimit)
	defer cancel()
	messages := make([]*reprise.Message, len(all))
	var err error
	for i, f := range all {
		if messages[i], err = x.copy(f); err != nil {
			break
		}
	}
	if err == nil && x.act.Do == Postpone {
		err = x.declareLater(ctx)
	}
	if err != nil {
		for _, f := range all {
			f.err = err
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
			verdicts[i] = sift.Acknowledge
		}
	}
	return verdicts
}

// later returns the hop through which a message is postponed.
func (x *waitingAct) later(d topology.Delivery) (topology.Hop, error) {
	return x.design.strategy.Route.Wait(d, time.Duration(x.act.Delay))
}

func (x *waitingAct) declareLater(ctx context.Context) error {
	hop, err := x.later(topology.Delivery{Queue: x.place.Queue})
	if err != nil {
		return err
	}
	if err := x.r.client.Declare(ctx, hop.Topology); err != nil {
		return err
	}
	return inner.Of(x.r.client).AwaitMature(ctx)
}

// copy returns the copy of a message to publish, without the headers of the broker. If a worker copied the message into
// the wait queue, the worker has already moved the header CC, and the user-id of another user, to Reprise headers.
// Otherwise copy moves them.
func (x *waitingAct) copy(f *found) (*reprise.Message, error) {
	out := f.m.Message
	d := x.design.delivery(f.m, x.place.Queue)
	var hop topology.Hop
	var err error
	if x.act.Do == ParkNow {
		reason := "parked by " + string(x.who)
		if x.act.Reason != "" {
			reason += ": " + x.act.Reason
		}
		hop = x.design.strategy.Route.Failed(d)
		out.Headers = x.design.parked(f.m, f.row, reason)
	} else {
		hop, err = x.later(d)
		out.Headers = copiedHeaders(f.m.Headers)
		out.Headers[protocol.HeaderDue] = x.r.archive.Now().Add(hop.TTL).UnixMilli()
	}
	out.Exchange, out.RoutingKey, out.Expiration, out.NoTimestamp = hop.Exchange, hop.RoutingKey, hop.TTL, true
	failed.Stash(out.Headers, out.UserID, "") // the expiration is the delay in the wait queue
	out.UserID = ""
	return &out, err
}

// noteDone updates the list after an act. It removes the messages or, after Postpone, stores their new due time.
func (x *waitingAct) noteDone(ctx context.Context, rows []store.Waiting) error {
	longer, cancel := background.Grace(ctx, background.NoteGrace)
	defer cancel()
	if x.act.Do != Postpone {
		return x.r.archive.RemoveWaiting(longer, rows)
	}
	d := topology.Delivery{Queue: x.place.Queue}
	hop, err := x.later(d)
	if err != nil {
		return err
	}
	delay := time.Duration(x.act.Delay)
	return x.r.archive.PostponeWaiting(longer, rows, x.design.strategy.WaitingIn(d, hop), x.r.archive.Now().Add(delay), delay)
}
