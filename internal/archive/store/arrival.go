package store

import (
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"strconv"
	"strings"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/protocol"
	"github.com/reprisemq/reprise/topology"
)

// Arrival is an encoded message that is ready to be stored.
type Arrival struct {
	m           failed.Message
	headers     string
	properties  string
	errors      any    // JSON string, or nil if the headers contain the same attempts
	digest      []byte // nil if the message does not come from a failed queue
	session     []byte
	redelivered bool
	request     *protocol.OutcomeRequest // nil if the message does not request an outcome report

	text  string // of the group, before merges
	queue int64
	pos   int64 // only for a message that is in the archive
}

func (a *Archive) encode(m failed.Message) (Arrival, error) {
	e := Arrival{m: m}
	e.m.State, e.m.Edited, e.m.Discarded, e.m.ReplayedBy = failed.Failed, nil, "", 0
	e.m.Archived = a.Now()
	err := e.encode(a.cfg)
	e.m.Back, e.m.BackOf = backOf(e.m.Headers)
	return e, err
}

func (a *Archive) encodeDelivered(in *failed.Arrived) (e Arrival, err error) {
	if e, err = a.encode(in.Message); err != nil {
		return e, err
	}
	if e.digest, err = digest(&e.m, e.properties); err != nil {
		return e, err
	}
	e.session, e.redelivered = []byte(in.Session), in.Redelivered
	return e, nil
}

// encode sets default values for missing fields and encodes the message for the database.
func (e *Arrival) encode(cfg Config) (err error) {
	m := &e.m
	if m.Queue == "" {
		m.Queue = failed.NamedBy(m.FailedQueue)
	}
	e.text = cfg.groupText(m.Queue, m.Error)
	if m.LastFailed.IsZero() {
		m.LastFailed = m.Archived
	}
	if m.FirstFailed.IsZero() {
		m.FirstFailed = m.LastFailed
	}
	if _, found := m.Headers[protocol.HeaderOutcome]; found { // only the consumer may read the key in the header
		r, ok := protocol.ReadOutcomeRequest(m.Headers)
		if !ok {
			r = protocol.OutcomeRequest{} // an empty key matches no message
		}
		e.request, m.Headers = &r, maps.Clone(m.Headers)
		delete(m.Headers, protocol.HeaderOutcome)
	}
	if e.headers, e.properties, err = encodeContent(m.Content); err != nil {
		return err
	}
	attempts, err := encodeAttempts(m.Errors)
	if err != nil {
		return err
	}
	trail, err := encodeAttempts(topology.Trail{}.Read(topology.Delivery{Headers: m.Headers}).Errors)
	if err != nil {
		return err
	}
	if attempts != trail {
		e.errors = attempts
	}
	return nil
}

// encodeContent returns the headers and the properties as JSON.
func encodeContent(c failed.Content) (headers, properties string, err error) {
	if headers, err = failed.EncodeTable(c.Headers); err != nil {
		return "", "", err
	}
	properties, err = failed.EncodeTable(c.Properties.Table())
	return headers, properties, err
}

// digest returns a hash that is equal for all deliveries of one message. It ignores the delivery counts, which are
// the only headers that the broker changes between deliveries.
func digest(m *failed.Message, properties string) ([]byte, error) {
	headers := maps.Clone(m.Headers)
	delete(headers, "x-delivery-count")
	delete(headers, "x-acquired-count")
	written, err := failed.EncodeTable(headers)
	if err != nil {
		return nil, err
	}
	h := sha256.New()
	for _, part := range []string{m.FailedQueue, properties, written} {
		h.Write(binary.AppendUvarint(nil, uint64(len(part))))
		h.Write([]byte(part))
	}
	h.Write(m.Body)
	return h.Sum(nil)[:16], nil
}

// backOf returns the replay and the message in topology.HeaderReplay, or zeros if the header is missing or invalid.
func backOf(headers topology.Table) (failed.ReplayID, failed.ID) {
	s, _ := headers[topology.HeaderReplay].(string)
	return replayOf(s)
}

// replayOf parses a value of topology.HeaderReplay. It returns zeros if the value is invalid.
func replayOf(s string) (failed.ReplayID, failed.ID) {
	before, after, _ := strings.Cut(s, "/")
	replay, err := strconv.ParseInt(before, 10, 64)
	id, err2 := strconv.ParseInt(after, 10, 64)
	if err != nil || err2 != nil || replay <= 0 || id <= 0 {
		return 0, 0
	}
	return failed.ReplayID(replay), failed.ID(id)
}
