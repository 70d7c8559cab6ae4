package store

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/tablejson"
)

const (
	searchedBytes = 256 << 10 // indexed bytes of a body
	maxWords      = 512 << 10 // total bytes of all words; PostgreSQL accepts 1 MiB

	// mark begins terms that are not words. It is neither a letter nor a digit, so words do not contain it. It is not
	// ASCII, so FTS5 treats it as a part of the term.
	mark = "¶"
)

// terms collects distinct words.
type terms struct {
	seen map[string]bool
	list []string
	size int
}

func (t *terms) add(term string) {
	if t.seen[term] || t.size+len(term) > maxWords {
		return
	}
	if t.seen == nil {
		t.seen = make(map[string]bool)
	}
	t.seen[term] = true
	t.list = append(t.list, term)
	t.size += len(term) + 1
}

func (t *terms) text(s string) {
	for w := range failed.Words(s) {
		if t.size >= maxWords {
			return
		}
		t.add(w)
	}
}

func (t *terms) String() string { return strings.Join(t.list, " ") }

func queueTerm(id int64) string { return mark + "q" + strconv.FormatInt(id, 36) }

func groupTerm(id failed.GroupID) string { return mark + "g" + strconv.FormatInt(int64(id), 36) }

func headerTerm(name, text string) string {
	sum := sha256.Sum256([]byte(name + "\x00" + text))
	return mark + "h" + hex.EncodeToString(sum[:8])
}

// termsOf returns the search terms of a message, separated by spaces.
func termsOf(m *failed.Message, queue int64, rules []failed.Rule) string {
	m = m.Redact(rules)
	var t terms
	t.add(queueTerm(queue))
	t.add(groupTerm(m.Group))
	t.message(m)
	return t.String()
}

// message adds the terms of a message, except its queue and its group.
func (t *terms) message(m *failed.Message) {
	for name, v := range m.Headers {
		if text, ok := tablejson.Text(v); ok && text != failed.Redacted {
			t.add(headerTerm(name, text))
		}
	}
	t.text(m.Error)
	t.text(m.Reason)
	for _, e := range m.Errors {
		t.text(e.Error)
	}
	t.text(m.Properties.MessageID)
	t.text(m.Properties.CorrelationID)
	if body := m.Body[:min(len(m.Body), searchedBytes)]; failed.IsText(body, m.Properties) {
		t.text(string(body))
	}
}
