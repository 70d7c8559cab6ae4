package failed

import (
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"strconv"
	"strings"

	"github.com/reprisemq/reprise/topology"
)

// arrival is a message that is ready to be written.
type arrival struct {
	m          Message
	headers    string
	properties string
	errors     any    // text or nil
	digest     []byte // nil: it is not a delivery
	session    []byte
	again      bool // redelivered

	queue int64
}

func (a *Archive) encode(in *Arrival) (e arrival, err error) {
	e.m = in.Message
	m := &e.m
	m.State, m.Edited, m.Discarded, m.ReplayedBy = Failed, nil, "", 0
	m.Archived = a.now()
	if err := e.encode(); err != nil {
		return e, err
	}
	m.Back, m.BackOf = backOf(m.Headers)
	if e.digest, err = digest(m, e.properties); err != nil {
		return e, err
	}
	session := in.Session
	if session == "" {
		session = a.session
	}
	e.session, e.again = bytesOf(session), in.Redelivered
	return e, nil
}

// encode fills in what a message lacks and writes its parts as they are stored.
func (e *arrival) encode() (err error) {
	m := &e.m
	if m.Queue == "" {
		m.Queue = namedBy(m.FailedQueue)
	}
	if m.LastFailed.IsZero() {
		m.LastFailed = m.Archived
	}
	if m.FirstFailed.IsZero() {
		m.FirstFailed = m.LastFailed
	}
	if e.headers, e.properties, err = m.Content.encode(); err != nil {
		return err
	}
	written := tablesOf(m.Errors)
	attempts, err := appendValue(nil, written, 0)
	if err != nil {
		return err
	}
	trail, err := appendValue(nil, tablesOf(topology.Trail{}.Read(topology.Delivery{Headers: m.Headers}).Errors), 0)
	if err != nil {
		return err
	}
	if string(attempts) != string(trail) {
		e.errors = string(attempts)
	}
	return nil
}

func (c Content) encode() (headers, properties string, err error) {
	if headers, err = encodeTable(c.Headers); err != nil {
		return "", "", err
	}
	properties, err = encodeTable(c.Properties.table())
	return headers, properties, err
}

// digest is equal for arrivals that may be the same delivery come again. The broker's
// count of deliveries is the one thing that it changes meanwhile.
func digest(m *Message, properties string) ([]byte, error) {
	headers := maps.Clone(m.Headers)
	delete(headers, "x-delivery-count")
	delete(headers, "x-acquired-count")
	written, err := encodeTable(headers)
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

// backOf reads HeaderReplay.
func backOf(headers topology.Table) (ReplayID, ID) {
	s, _ := headers[HeaderReplay].(string)
	before, after, _ := strings.Cut(s, "/")
	replay, err := strconv.ParseInt(before, 10, 64)
	id, err2 := strconv.ParseInt(after, 10, 64)
	if err != nil || err2 != nil || replay <= 0 || id <= 0 {
		return 0, 0
	}
	return ReplayID(replay), ID(id)
}
