package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/sqlkit"
	"github.com/reprisemq/reprise/internal/tablejson"
	"github.com/reprisemq/reprise/topology"
)

// Get returns a message with its content, errors and edit. It returns ErrNotFound if the message does not exist.
func (a *Archive) Get(ctx context.Context, id failed.ID) (*failed.Message, error) {
	m, err := a.get(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("cannot read message %d: %w", id, err)
	}
	return m, nil
}

// get reads a message in one query, so that the result is consistent.
func (a *Archive) get(ctx context.Context, id failed.ID) (*failed.Message, error) {
	var m failed.Message
	var state int
	var outcome sql.NullInt64
	var headers, properties sql.NullString // NULL if the message is erased
	var dropped sql.NullInt64
	var whole, attempts, editedHeaders, editedProperties sql.NullString
	var edited []byte
	err := a.db.Row(ctx, `SELECT m.id, m.grp, m.state, q.name, m.failed_queue, m.archived, m.exchange, m.routing_key, m.attempts,
			c.errors, c.dropped, m.reason, m.error, c.error, m.first_failed, m.last_failed,
			c.body, c.headers, c.properties, r.body, r.headers, r.properties, m.edited, m.replay, m.back, m.back_of, m.discarded, m.refused, `+a.outcomeColumn(`m.replay`)+`
		FROM {message} m JOIN {queue} q ON q.id = m.queue LEFT JOIN {content} c ON c.message = m.id
			LEFT JOIN {revision} r ON r.message = m.id AND r.number = m.edited
		WHERE m.id = $1`, int64(id)).Scan(
		&m.ID, &m.Group, &state, &m.Queue, &m.FailedQueue, sqlkit.Time(&m.Archived), &m.Exchange, &m.RoutingKey, &m.Attempts,
		&attempts, &dropped, &m.Reason, &m.Error, &whole, sqlkit.Time(&m.FirstFailed), sqlkit.Time(&m.LastFailed),
		&m.Body, &headers, &properties, &edited, &editedHeaders, &editedProperties, &m.Revision, &m.ReplayedBy, &m.Back, &m.BackOf,
		sqlkit.Text(&m.Discarded), sqlkit.Text(&m.Refused), &outcome)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, &failed.NotFoundError{What: "message", ID: int64(id)}
	}
	if err != nil {
		return nil, err
	}
	m.State = failed.States()[state]
	m.Outcome, m.WhyUnknown = outcomeFrom(outcome)
	if whole.Valid {
		m.Error = whole.String
	}
	if m.Erased = !headers.Valid; m.Erased {
		return &m, nil
	}
	m.ErrorsDropped = int(dropped.Int64)
	if m.Content, err = contentFrom(m.Body, headers.String, properties.String); err != nil {
		return nil, err
	}
	if m.Errors, err = attemptsFrom(attempts, m.Headers); err != nil {
		return nil, err
	}
	if editedHeaders.Valid {
		c, err := contentFrom(edited, editedHeaders.String, editedProperties.String)
		if err != nil {
			return nil, err
		}
		m.Edited = &c
	}
	return &m, nil
}

func encodeAttempts(all []reprise.AttemptError) (string, error) {
	text, err := tablejson.EncodeList(failed.TablesOf(all))
	if err != nil {
		return "", fmt.Errorf("%w: %w", failed.ErrUnstorable, err)
	}
	return text, nil
}

func contentFrom(body []byte, headers, properties string) (c failed.Content, err error) {
	c.Body = body
	if c.Headers, err = failed.DecodeTable(headers); err != nil {
		return c, err
	}
	t, err := failed.DecodeTable(properties)
	if err != nil {
		return c, err
	}
	c.Properties = failed.PropertiesOf(t)
	return c, nil
}

// attemptsFrom returns the errors of the attempts. If the errors are not stored separately, it reads them from the
// headers.
func attemptsFrom(stored sql.NullString, headers topology.Table) ([]reprise.AttemptError, error) {
	if !stored.Valid {
		return topology.Trail{}.Read(topology.Delivery{Headers: headers}).Errors, nil
	}
	return decodeAttempts(stored.String)
}

func decodeAttempts(s string) ([]reprise.AttemptError, error) {
	d := json.NewDecoder(strings.NewReader(s))
	d.UseNumber()
	var list []any
	if err := d.Decode(&list); err != nil {
		return nil, failed.Invalid("cannot decode the errors of attempts: %w", err)
	}
	v, err := tablejson.Value(list)
	if err != nil {
		return nil, failed.Invalid("cannot decode the errors of attempts: %w", err)
	}
	return failed.AttemptsOf(v.([]any)), nil
}
