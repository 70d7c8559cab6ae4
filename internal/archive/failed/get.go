package failed

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/sqlkit"
	"github.com/reprisemq/reprise/internal/tablejson"
	"github.com/reprisemq/reprise/topology"
)

// Get returns a message with its content, errors and edit. It returns ErrNotFound if the message does not exist.
func (a *Archive) Get(ctx context.Context, id ID) (*Message, error) {
	m, err := a.get(ctx, id)
	if err != nil {
		return nil, withAction(err, "cannot read message %d", id)
	}
	return m, nil
}

// get reads a message in one query, so that the result is consistent.
func (a *Archive) get(ctx context.Context, id ID) (*Message, error) {
	var m Message
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
		return nil, &NotFoundError{"message", int64(id)}
	}
	if err != nil {
		return nil, err
	}
	m.State = States()[state]
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

func decodeTable(text string) (topology.Table, error) {
	t, err := tablejson.Decode(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return t, nil
}

func encodeTable(t topology.Table) (string, error) {
	text, err := tablejson.Encode(t)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrUnstorable, err)
	}
	return text, nil
}

func encodeAttempts(all []reprise.AttemptError) (string, error) {
	text, err := tablejson.EncodeList(tablesOf(all))
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrUnstorable, err)
	}
	return text, nil
}

func contentFrom(body []byte, headers, properties string) (c Content, err error) {
	c.Body = body
	if c.Headers, err = decodeTable(headers); err != nil {
		return c, err
	}
	t, err := decodeTable(properties)
	if err != nil {
		return c, err
	}
	c.Properties = propertiesOf(t)
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
		return nil, fmt.Errorf("%w: cannot decode the errors of attempts: %w", ErrInvalid, err)
	}
	v, err := tablejson.Value(list)
	if err != nil {
		return nil, fmt.Errorf("%w: cannot decode the errors of attempts: %w", ErrInvalid, err)
	}
	return attemptsOf(v.([]any)), nil
}
