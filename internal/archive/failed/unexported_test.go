package failed

import (
	"context"
	"fmt"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/protocol"
)

// These declarations export unexported methods and types to the tests of package failed_test.

type (
	Arrival = queuedMessage
	Refusal = refusal
)

func (a *Archive) Ingest(ctx context.Context, arrivals []Arrival) ([]ID, error) {
	for i := range arrivals {
		if arrivals[i].Session == "" {
			arrivals[i].Session = fmt.Sprintf("%p", a) // a separate session for each Open
		}
	}
	return a.ingest(ctx, arrivals)
}

func (a *Archive) Settled(ctx context.Context, ids []ID) error { return a.markSettled(ctx, ids) }

func (a *Archive) ClaimQueue(ctx context.Context, queue, owner string, lease time.Duration) (bool, error) {
	return a.claimQueue(ctx, queue, owner, lease)
}

func (a *Archive) RenewQueue(ctx context.Context, queue, owner string, lease time.Duration) (bool, error) {
	return a.renewQueue(ctx, queue, owner, lease)
}

func (a *Archive) ReleaseQueue(ctx context.Context, queue, owner string) error {
	return a.releaseQueue(ctx, queue, owner)
}

func (a *Archive) Claim(ctx context.Context, id ReplayID, owner string, lease time.Duration) (bool, error) {
	return a.claimReplay(ctx, id, owner, lease)
}

func (a *Archive) Release(ctx context.Context, id ReplayID, owner string) error {
	return a.releaseReplay(ctx, id, owner)
}

func (a *Archive) Next(ctx context.Context, id ReplayID, n int) ([]*Message, error) {
	return a.unsentOf(ctx, id, n)
}

func (a *Archive) Sent(ctx context.Context, id ReplayID, ids []ID) error {
	return a.markSent(ctx, id, ids, asked)
}

// SentUnasked records that messages were sent without a report request.
func (a *Archive) SentUnasked(ctx context.Context, id ReplayID, ids []ID) error {
	return a.markSent(ctx, id, ids, noRoom)
}

func (a *Archive) Refuse(ctx context.Context, id ReplayID, refusals []Refusal) error {
	return a.markRefused(ctx, id, refusals)
}

// Fingerprint exports fingerprint.
func Fingerprint(errorText string) string { return fingerprint(errorText) }

// redriveResult is the result of Redrive without its error.
type redriveResult struct{ Found, Sent int }

func redriveFrom(ctx context.Context, c *reprise.Client, cfg RedriveConfig) (r redriveResult, err error) {
	r.Found, r.Sent, err = Redrive(ctx, c, cfg)
	return r, err
}

func (a *Archive) AskOutcomes(ctx context.Context, id ReplayID) (secret string, err error) {
	return a.askOutcomes(ctx, id)
}

// SentID exports sentID.
func (m *Message) SentID() string { return m.sentID() }

// OutcomeKey exports outcomeKey.
func OutcomeKey(secret string, id ReplayID, message ID, queue string) string {
	return outcomeKey(secret, id, message, queue)
}

func (a *Archive) NoteOutcomes(ctx context.Context, reports []protocol.Outcome) error {
	return a.noteOutcomes(ctx, reports)
}

func (a *Archive) NoteRetries(ctx context.Context, reports []protocol.RetryReport) error {
	return a.noteRetries(ctx, reports)
}

func (a *Archive) ForgetOverdue(ctx context.Context) error { return a.forgetOverdue(ctx) }

// CarryOut executes a replay that passes its messages to the function publish.
func CarryOut(ctx context.Context, a *Archive, id ReplayID, publish func(*reprise.Message) error) (*Replay, error) {
	r, err := newReplayer(publisherFunc(publish), a, ReplayerConfig{Batch: 3})
	if err != nil {
		return nil, err
	}
	r.secrets = a.cfg.Redact
	return r.Finish(ctx, id)
}

// Apply applies the edit to a content.
func (e *BulkEdit) Apply(c Content, secrets []Rule) (Content, error) {
	x, err := e.compile(secrets)
	if err != nil {
		return c, err
	}
	return x.apply(c)
}

// knownOrders is the routing of a worker of queue orders that retries by the name of its queue.
var knownOrders = Routing{Workers: []reprise.WorkerConfig{{Queue: "orders"}}}
