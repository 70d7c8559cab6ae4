package coverart

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/preset"
)

// eventIDPrefix is the prefix of the message IDs. The ID of the event follows.
const eventIDPrefix = "artwork-indexer-"

// eventBatch is the maximum number of events in a transaction.
const eventBatch = 100

// Publisher publishes messages, and returns after the confirms. A *reprise.Client is a Publisher.
type Publisher interface {
	PublishBatch(ctx context.Context, messages []*reprise.Message) error
}

// EventSource publishes the events of artwork-indexer, the successor of the cover art indexer, to the queues of the design.
// The triggers of a MusicBrainz database write the events to the table artwork_indexer.event_queue, and artwork-indexer
// polls the table. With EventSource, workers handle the events instead. DB and Publisher are required.
//
//	triggers ─► event_queue: queued ─► EventSource ─► cover-art-archive ─► worker: Completes ─► event_queue: completed
//	                         running ◄───────┘ confirmed                      │
//	                                                                          └ failed ─► .retry, .failed: still running
//
//	action         routing key  body
//	index          index        gid
//	delete_image   delete       artwork_id \n gid \n suffix
//	deindex        delete       index.json \n gid
//	copy_image     move         artwork_id \n old_gid \n new_gid \n suffix
//	noop                        completed without a message
//	others                      failed, with a reason in event_failure_reason
//
// EventSource reads queued events of releases whose parents (depends_on) are completed. It locks them, publishes them with
// confirms, and marks them as running in the same transaction. After a crash in between, the events are still queued, and
// are published again with the same message ID: an event can arrive twice, and is never lost. Several EventSources can run
// at the same time.
//
// An event is completed when a handler has succeeded, because its children must not overtake it: the deletion of a copied
// image would otherwise overtake a copy that waits for a retry. The event of a parked message remains running, and its
// children wait, until the message is replayed. Workers must not use Debounce, because the table has at most one queued
// event for an action and an entity. Do not run artwork-indexer at the same time: it marks events as failed that run for
// longer than 2.5 minutes. Do not run the original Perl program on the same queues either: the retries that it publishes
// have no message ID, so their events remain running.
type EventSource struct {
	DB        *sql.DB // a database with the schema artwork_indexer, with the driver pgx
	Publisher Publisher
	Poll      time.Duration // interval between queries while no event is due; default 1 s
	Logger    *slog.Logger  // default: slog.Default
}

// Run publishes due events until ctx is done. After an error, it logs the error and continues after Poll.
func (s *EventSource) Run(ctx context.Context) {
	poll, log := s.Poll, s.Logger
	if poll == 0 {
		poll = time.Second
	}
	if log == nil {
		log = slog.Default()
	}
	for ctx.Err() == nil {
		n, err := s.PublishDue(ctx)
		if err != nil && ctx.Err() == nil {
			log.ErrorContext(ctx, "cannot publish events", "error", err)
		}
		if err == nil && n == eventBatch {
			continue
		}
		select {
		case <-time.After(poll):
		case <-ctx.Done():
		}
	}
}

// dueEvents selects the events to publish. Another EventSource skips the rows until the transaction ends.
const dueEvents = `
SELECT e.id, e.action::text, e.message::text
FROM artwork_indexer.event_queue e
WHERE e.state = 'queued' AND e.entity_type = 'release'
  AND NOT EXISTS (SELECT FROM artwork_indexer.event_queue parent WHERE parent.id = ANY (e.depends_on) AND parent.state <> 'completed')
ORDER BY e.created, e.id
LIMIT $1
FOR UPDATE SKIP LOCKED`

// PublishDue publishes up to 100 due events, and returns the number of events that it has published.
func (s *EventSource) PublishDue(ctx context.Context) (n int, err error) {
	tx, err := s.DB.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }() // without effect after the commit
	events, err := readDue(ctx, tx)
	if err != nil || len(events) == 0 {
		return 0, err
	}
	publishErr := s.publish(ctx, events)
	for _, e := range events {
		if err := e.update(ctx, tx); err != nil {
			return 0, errors.Join(publishErr, err)
		}
		if e.state == "running" {
			n++
		}
	}
	return n, errors.Join(publishErr, tx.Commit())
}

type queuedEvent struct {
	id      int64
	message *reprise.Message // nil: nothing to publish
	err     error            // why the event has no message
	state   string           // the new state; "": unchanged
}

func (e *queuedEvent) update(ctx context.Context, tx *sql.Tx) error {
	if e.state == "" {
		return nil
	}
	_, err := tx.ExecContext(ctx, `UPDATE artwork_indexer.event_queue SET state = $1::artwork_indexer.event_state, attempts = attempts + 1 WHERE id = $2`, e.state, e.id)
	if err == nil && e.err != nil {
		_, err = tx.ExecContext(ctx, `INSERT INTO artwork_indexer.event_failure_reason (event, failure_reason) VALUES ($1, $2)`, e.id, e.err.Error())
	}
	return err
}

func readDue(ctx context.Context, tx *sql.Tx) (events []*queuedEvent, err error) {
	rows, err := tx.QueryContext(ctx, dueEvents, eventBatch)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // rows.Err returns the error
	for rows.Next() {
		var id int64
		var action, message string
		if err := rows.Scan(&id, &action, &message); err != nil {
			return nil, err
		}
		e := &queuedEvent{id: id}
		e.message, e.err = eventMessage(id, action, []byte(message))
		events = append(events, e)
	}
	return events, rows.Err()
}

// publish publishes the messages of the events, and sets the new states.
func (s *EventSource) publish(ctx context.Context, events []*queuedEvent) error {
	var messages []*reprise.Message
	var published []*queuedEvent
	for _, e := range events {
		switch {
		case e.err != nil:
			e.state = "failed"
		case e.message == nil:
			e.state = "completed"
		default:
			messages, published = append(messages, e.message), append(published, e)
		}
	}
	if len(messages) == 0 {
		return nil
	}
	err := s.Publisher.PublishBatch(ctx, messages)
	batch, partial := errors.AsType[*reprise.BatchError](err)
	if err != nil && !partial {
		return err
	}
	for _, e := range published {
		e.state = "running"
	}
	if partial {
		for _, f := range batch.Failed {
			published[f.Index].state = ""
		}
	}
	return err
}

// eventMessage returns the message for an event, or nil for noop.
func eventMessage(id int64, action string, content []byte) (*reprise.Message, error) {
	var c struct {
		GID    string `json:"gid"`
		Image  int64  `json:"artwork_id"`
		OldGID string `json:"old_gid"`
		NewGID string `json:"new_gid"`
		Suffix string `json:"suffix"`
	}
	if err := json.Unmarshal(content, &c); err != nil {
		return nil, err
	}
	m := &reprise.Message{Exchange: preset.CoverArtExchange, MessageID: eventIDPrefix + strconv.FormatInt(id, 10)}
	image := strconv.FormatInt(c.Image, 10)
	switch action {
	case "index":
		m.RoutingKey, m.Body = "index", []byte(c.GID)
	case "delete_image":
		m.RoutingKey, m.Body = "delete", Delete{ID: image, GID: c.GID, Suffix: c.Suffix}.Body()
	case "deindex":
		m.RoutingKey, m.Body = "delete", Delete{ID: IndexKey, GID: c.GID}.Body()
	case "copy_image": // the deletion of the original follows as a separate event, and finds nothing to delete
		m.RoutingKey, m.Body = "move", Move{ID: image, Old: c.OldGID, New: c.NewGID, Suffix: c.Suffix}.Body()
	case "noop":
		return nil, nil
	default:
		return nil, fmt.Errorf("action %q is not known", action)
	}
	return m, nil
}

// Completes returns a handler that calls next, and marks the event of the message as completed after next has succeeded.
// If it cannot, the message is retried, so next must be idempotent, as the handlers of Indexer are.
func Completes(db *sql.DB, next reprise.Handler) reprise.Handler {
	return reprise.HandlerFunc(func(ctx context.Context, m *reprise.Delivery) error {
		if err := next.Handle(ctx, m); err != nil {
			return err
		}
		id, ours := strings.CutPrefix(m.MessageID, eventIDPrefix)
		if !ours {
			return nil
		}
		// The statement waits for the transaction in which EventSource has published the event.
		if _, err := db.ExecContext(ctx, `UPDATE artwork_indexer.event_queue SET state = 'completed' WHERE id = $1::bigint`, id); err != nil {
			return fmt.Errorf("cannot complete event %s: %w", id, err)
		}
		return nil
	})
}
