package store

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/tablejson"
)

const (
	maxDetailBody = 64 << 10 // larger bodies have no details
	maxDetail     = 200      // bytes of a detail
)

// Details returns a text for each message of a list, which distinguishes messages with the same error: the values of
// Config.Columns, or else, if all messages are in one group, the beginning of the body on arrival. It hides the values that the
// rules select. A text is "" if the message has neither.
func (a *Archive) Details(ctx context.Context, messages []failed.Summary, hidden []failed.Rule) (details []string, err error) {
	defer failed.Annotate(&err, "cannot read the details of %d messages", len(messages))
	details = make([]string, len(messages))
	columns := a.cfg.Columns
	if len(columns) == 0 && (len(messages) < 2 || slices.ContainsFunc(messages, func(m failed.Summary) bool { return m.Group != messages[0].Group })) {
		return details, nil
	}
	ids, place := make([]failed.ID, len(messages)), make(map[failed.ID]int)
	for i, m := range messages {
		ids[i], place[m.ID] = m.ID, i
	}
	var id failed.ID
	var body []byte
	var headers, properties sql.NullString
	rows := a.db.Rows(ctx, `SELECT c.message, c.headers, c.properties, c.body FROM {content} c JOIN {message} m ON m.id = c.message
		WHERE m.size <= $2 AND `+a.d.in("c.message", "$1"), list(a.d, ids), maxDetailBody)
	for err := range rows.Scan(&id, &headers, &properties, &body) {
		if err != nil {
			return nil, err
		}
		c, err := contentFrom(body, headers.String, properties.String)
		if err != nil {
			return nil, err
		}
		c = c.Redact(hidden)
		text := ""
		if len(columns) > 0 {
			text = columnsOf(c, columns)
		} else if failed.IsText(c.Body, c.Properties) {
			text = strings.Join(strings.Fields(string(c.Body[:min(len(c.Body), 4*maxDetail)])), " ")
		}
		details[place[id]] = failed.Cut(strings.ToValidUTF8(text, "?"), maxDetail)
	}
	return details, nil
}

// columns returns the values of the columns, separated by commas, each with the last part of its name.
func columnsOf(c failed.Content, columns []failed.Rule) string {
	var parts []string
	var doc any
	decoded := false
	for _, r := range columns {
		name, text := r.Header, ""
		if r.Path == "" {
			text, _ = tablejson.Text(c.Headers[r.Header])
		} else {
			if !decoded && c.Properties.Plain() {
				d := json.NewDecoder(bytes.NewReader(c.Body))
				d.UseNumber()
				_ = d.Decode(&doc) // a body that is not JSON has no values
				decoded = true
			}
			path := strings.Split(r.Path, ".")
			name, text = path[len(path)-1], valueAt(doc, path)
		}
		if text != "" {
			parts = append(parts, name+": "+text)
		}
	}
	return strings.Join(parts, ", ")
}

// valueAt returns the first value at a path as text, or "".
func valueAt(doc any, path []string) string {
	if len(path) == 0 {
		switch x := doc.(type) {
		case nil:
			return ""
		case string:
			return strings.Join(strings.Fields(x), " ")
		}
		text, _ := json.Marshal(doc)
		return string(text)
	}
	switch x := doc.(type) {
	case map[string]any:
		if path[0] != "*" {
			return valueAt(x[path[0]], path[1:])
		}
		for _, name := range slices.Sorted(maps.Keys(x)) {
			if text := valueAt(x[name], path[1:]); text != "" {
				return text
			}
		}
	case []any:
		for i, v := range x {
			if path[0] != "*" && path[0] != strconv.Itoa(i) {
				continue
			}
			if text := valueAt(v, path[1:]); text != "" {
				return text
			}
		}
	}
	return ""
}
