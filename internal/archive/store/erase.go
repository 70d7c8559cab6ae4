package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/sqlkit"
)

// Erasure contains the number of messages that Erase erases, by their state before.
type Erasure struct {
	Counts
	Left int64 // selected messages that Erase skips, because they belong to a running replay
}

// Erase permanently deletes the contents of the selected messages: bodies, headers, properties, errors, edits, message
// IDs, routing keys, and their words in the search index. It returns the number of erased messages. Use Erase for
// personal data that may no longer be stored.
//
// Unlike a search, Erase and WouldErase also apply Filter.Text and Filter.Headers to values that Config.Redact hides and
// to edits. For this they read the content of each message that the other conditions of the filter select.
//
// The archive keeps a record of each message with its queue, state, times and counts, and sets Message.Erased. Messages
// in state failed become discarded: an erased message can neither be replayed nor restored. Erase skips messages of a
// running replay. If more messages than Filter.AtMost are selected, Erase changes nothing and returns ErrState.
//
// An Act records the actor, the number of messages, the time, the reason and the conditions of the filter. The Act does
// not contain the search strings of the filter, because they may be personal data. The reason must not be empty. Erase
// also erases
//
//   - in the audit log, the reasons and filters of acts on a single message, if it is one of these messages;
//   - in replays that included one of these messages, the errors and the reason why the replay ended;
//   - in the audit log and in replays that have ended, the filters, reasons, edits, targets and message IDs that
//     contain all words of Filter.Text, of Filter.Error, or of a value in Filter.Headers;
//   - the fingerprint of a group, if all messages of the group are erased. Otherwise the error of a message that is not
//     erased becomes the example of the group.
//
// In SQLite, Erase then rewrites the file (VACUUM) and empties the write-ahead log, so that neither contains the erased
// bytes. This needs free disk space of about the size of the file, and blocks other writers. If only this step fails,
// Erase returns both the number of messages and an error; repeat the call. In PostgreSQL, queries no longer find the
// erased bytes, but the files contain dead rows until VACUUM and later writes replace them. Erase does not change
// backups, exports, logs, unsent notifications, the list of waiting messages or the queues of the broker.
func (a *Archive) Erase(ctx context.Context, f failed.Filter, reason string, who failed.Actor) (done Erasure, err error) {
	defer failed.Annotate(&err, "cannot erase messages")
	if strings.TrimSpace(reason) == "" {
		return done, failed.Invalid("reason must not be empty")
	}
	if err := errors.Join(who.Validate(), f.CheckForAct()); err != nil {
		return done, err
	}
	s, err := a.erasing(ctx, f)
	if err != nil {
		return done, err
	}
	if s != nil {
		err = a.writeMany(ctx, func(tx *tx) (err error) {
			done, err = tx.erase(s, f, reason, who)
			return err
		})
		if err != nil {
			return Erasure{}, err
		}
		if done.Total() > 0 {
			a.cfg.Logger.InfoContext(ctx, "erased", "by", who, "messages", done.Total())
		}
	}
	err = a.writeAlone(ctx, func() error { return a.db.Compact(sqlkit.Long(ctx)) })
	if err != nil {
		err = fmt.Errorf("messages erased, but the database file may still contain their bytes (repeat the call): %w", err)
	}
	return done, err
}

// WouldErase returns the numbers of messages that Erase would erase and would skip.
func (a *Archive) WouldErase(ctx context.Context, f failed.Filter) (would Erasure, err error) {
	defer failed.Annotate(&err, "cannot count the messages to erase")
	s, err := a.erasing(ctx, f)
	if err != nil || s == nil {
		return would, err
	}
	var n [4]int64
	var state, free int
	var count int64
	for err := range a.db.Rows(sqlkit.Long(ctx), `SELECT m.state, CASE WHEN 1 = 1`+idle+` THEN 1 ELSE 0 END AS free, count(*)
		FROM {message} m WHERE `+s.where()+erasable+` GROUP BY m.state, free`, s.args...).Scan(&state, &free, &count) {
		if err != nil {
			return would, err
		}
		if free == 1 {
			n[state] = count
		} else {
			would.Left += count
		}
	}
	would.Counts = countsOf(n)
	return would, nil
}

// erasing returns the selection of f, extended by the messages that match Filter.Text and Filter.Headers only with
// values that a search does not find. It returns nil if the filter selects no messages.
func (a *Archive) erasing(ctx context.Context, f failed.Filter) (*selection, error) {
	s, err := a.selection(ctx, f)
	words := filterTerms(failed.Filter{Text: f.Text, Headers: f.Headers})
	if err != nil || s == nil || len(words) == 0 {
		return s, err
	}
	f.Text, f.Headers = "", nil
	rest, err := a.selection(ctx, f)
	if err != nil || rest == nil {
		return s, err
	}
	versions := `SELECT message, headers, properties, body FROM {revision}`
	if len(a.cfg.Redact) > 0 {
		versions += ` UNION ALL SELECT message, headers, properties, body FROM {content}`
	}
	var ids []failed.ID
	var m failed.Message
	var headers, properties string
	var whole, attempts sql.NullString
	for err := range a.db.Rows(sqlkit.Long(ctx), `SELECT m.id, m.reason, m.error, c.error, c.errors, v.headers, v.properties, v.body
		FROM {message} m JOIN {content} c ON c.message = m.id JOIN (`+versions+`) v ON v.message = m.id
		WHERE `+rest.where(), rest.args...).Scan(&m.ID, &m.Reason, &m.Error, &whole, &attempts, &headers, &properties, &m.Body) {
		if err != nil {
			return nil, err
		}
		if m.Content, err = contentFrom(m.Body, headers, properties); err != nil {
			return nil, err
		}
		if m.Errors, err = attemptsFrom(attempts, m.Headers); err != nil {
			return nil, err
		}
		if whole.Valid {
			m.Error = whole.String
		}
		if hasTerms(&m, a.cfg.Redact, words) {
			ids = append(ids, m.ID)
		}
	}
	if len(ids) > 0 {
		s.also = a.d.in("m.id", s.arg(list(a.d, ids)))
	}
	return s, nil
}

// hasTerms reports whether a message contains all terms, including the values that the rules hide.
func hasTerms(m *failed.Message, rules []failed.Rule, wanted []string) bool {
	var t terms
	t.message(m)
	failed.HiddenTexts(m.Headers, failed.HiddenNames(rules), false, t.text)
	return !slices.ContainsFunc(wanted, func(term string) bool { return !t.seen[term] })
}

// Conditions on {message} AS m.
const (
	erasable = ` AND EXISTS (SELECT 1 FROM {content} c WHERE c.message = m.id)` // the message has not been erased
	idle     = ` AND m.state <> 1 AND NOT EXISTS (SELECT 1 FROM {item} i JOIN {replay} r ON r.id = i.replay WHERE i.message = m.id AND r.ended = 0)`
)

// erasedText replaces an erased text.
const erasedText = "[erased]"

func (t *tx) erase(s *selection, f failed.Filter, reason string, who failed.Actor) (done Erasure, err error) {
	var ids []failed.ID
	var at []int64
	groups := map[failed.GroupID]bool{}
	var states [4]int64
	var c countChanges
	var id failed.ID
	var group failed.GroupID
	var pos, queue int64
	var state int
	for err := range t.Rows(`SELECT m.id, m.pos, m.grp, m.queue, m.state FROM {message} m WHERE `+s.where()+erasable+idle, s.args...).
		Scan(&id, &pos, &group, &queue, &state) {
		if err != nil {
			return Erasure{}, err
		}
		ids, at = append(ids, id), append(at, pos)
		groups[group] = true
		states[state]++
		if state == codes[failed.Failed] {
			c.add(group, queue, state, -1)
			c.add(group, queue, codes[failed.Discarded], 1)
		}
	}
	if err := t.Row(`SELECT count(*) FROM {message} m WHERE `+s.where()+erasable, s.args...).Scan(&done.Left); err != nil {
		return Erasure{}, err
	}
	n := int64(len(ids))
	done.Counts, done.Left = countsOf(states), done.Left-n
	if err := f.Allows(n); err != nil || n == 0 {
		return done, err
	}
	for part := range slices.Chunk(ids, purgeBatch) {
		if err := t.eraseContents(part); err != nil {
			return Erasure{}, err
		}
	}
	for part := range slices.Chunk(at, purgeBatch) {
		if err := t.forget(part); err != nil {
			return Erasure{}, err
		}
	}
	if t.cfg.Dialect == SQLite { // the index contains the words of deleted messages until its segments are merged
		if _, err := t.Exec(`INSERT INTO {search} ({search}) VALUES ('optimize')`); err != nil {
			return Erasure{}, err
		}
	}
	if err := t.count(c); err != nil {
		return Erasure{}, err
	}
	for _, group := range slices.Sorted(maps.Keys(groups)) {
		if err := t.eraseGroup(group); err != nil {
			return Erasure{}, err
		}
	}
	if err := t.eraseTexts(ids, needlesOf(f)); err != nil {
		return Erasure{}, err
	}
	return done, t.actOn(ids, who, actErase, f.Subject(), map[string]any{"messages": n, "reason": reason, "filter": f.Described(erasedText)})
}

// eraseContents erases the contents of messages, and the strings in their rows of {message} and in their replays.
func (t *tx) eraseContents(ids []failed.ID) error {
	where := func(column string) string { return ` WHERE ` + t.d.in(column, "$1") }
	for _, statement := range []string{
		`DELETE FROM {content}` + where("message"),
		`DELETE FROM {revision}` + where("message"),
		`UPDATE {item} SET refused = NULL` + where("message"),
		`UPDATE {replay} SET why = CASE WHEN length(why) > 0 THEN $2 ELSE why END, retried = CASE WHEN retried IS NULL THEN retried ELSE $2 END
			WHERE id IN (SELECT replay FROM {item}` + where("message") + `)`,
		`UPDATE {message} SET state = CASE WHEN state = 0 THEN 3 ELSE state END, discarded = CASE WHEN state IN (0, 3) THEN $2 ELSE discarded END,
			exchange = $3, routing_key = $3, message_id = $3, reason = $3, error = $3, size = 0, edited = 0, refused = NULL` + where("id"),
	} {
		args := []any{list(t.d, ids)}
		if strings.Contains(statement, "$2") {
			args = append(args, []byte(erasedText))
		}
		if strings.Contains(statement, "$3") {
			args = append(args, []byte{})
		}
		if _, err := t.Exec(statement, args...); err != nil {
			return err
		}
	}
	return nil
}

// eraseGroup replaces the example of a group with the error of a message that is not erased. If no such message exists,
// it erases the fingerprint of the group, and the next failure of this kind creates a new group.
func (t *tx) eraseGroup(id failed.GroupID) error {
	var example []byte
	err := t.Row(`SELECT m.error FROM {message} m WHERE m.grp = $1 AND m.state IN (0, 1, 2, 3)`+erasable+` ORDER BY m.pos DESC LIMIT 1`, int64(id)).Scan(&example)
	if errors.Is(err, sql.ErrNoRows) {
		if _, err := t.Exec(`DELETE FROM {merged} WHERE target = (SELECT digest FROM {group} WHERE id = $1)`, int64(id)); err != nil {
			return err // the text of a merge can be the text of an error
		}
		_, err = t.Exec(`UPDATE {group} SET text = $2, example = $2, digest = $3 WHERE id = $1`, int64(id), []byte(erasedText), []byte(rand.Text()))
		return err
	}
	if err != nil {
		return err
	}
	_, err = t.Exec(`UPDATE {group} SET example = $2 WHERE id = $1`, int64(id), append([]byte{}, example...))
	return err
}

// needlesOf returns the search strings of a filter, each as a set of words.
func needlesOf(f failed.Filter) (all []map[string]bool) {
	texts := []string{f.Text, f.Error}
	for _, value := range f.Headers {
		texts = append(texts, value)
	}
	for _, text := range texts {
		if set := wordSet(text); len(set) > 0 {
			all = append(all, set)
		}
	}
	return all
}

func wordSet(text string) map[string]bool {
	set := map[string]bool{}
	for w := range failed.Words(strings.ToLower(text)) {
		set[w] = true
	}
	return set
}

// contains reports whether a text contains all words of at least one needle.
func contains(text string, needles []map[string]bool) bool {
	if len(needles) == 0 {
		return false
	}
	set := wordSet(text)
	return slices.ContainsFunc(needles, func(needle map[string]bool) bool {
		for w := range needle {
			if !set[w] {
				return false
			}
		}
		return true
	})
}

// eraseTexts erases texts in the audit log and in replays if they concern the messages or contain all words of a
// needle.
func (t *tx) eraseTexts(ids []failed.ID, needles []map[string]bool) error {
	gone := make(map[string]bool, len(ids))
	for _, id := range ids {
		gone[fmt.Sprint("message/", id)] = true
	}
	replays := map[string]bool{}
	var id failed.ReplayID
	for part := range slices.Chunk(ids, purgeBatch) {
		for err := range t.Rows(`SELECT DISTINCT replay FROM {item} WHERE `+t.d.in("message", "$1"), list(t.d, part)).Scan(&id) {
			if err != nil {
				return err
			}
			replays[fmt.Sprint("replay/", id)] = true
		}
	}

	type changed struct {
		id   int64
		text string
		edit sql.NullString
	}
	var acts, plans []changed
	var number int64
	var subject, text string
	for err := range t.Rows(`SELECT id, subject, details FROM {act}`).Scan(&number, &subject, &text) {
		if err != nil {
			return err
		}
		names := freeTexts
		if replays[subject] {
			names = append(slices.Clone(names), "why")
		}
		all := gone[subject]
		erased, err := eraseJSON([]byte(text), func(name, value string) bool {
			return slices.Contains(names, name) && (all || name == "why" || contains(value, needles))
		})
		if err != nil {
			return err
		}
		if string(erased) != text {
			acts = append(acts, changed{id: number, text: string(erased)})
		}
	}
	var edit sql.NullString
	for err := range t.Rows(`SELECT id, plan, edit FROM {replay} WHERE ended > 0`).Scan(&number, &text, &edit) {
		if err != nil {
			return err
		}
		erased, err := eraseJSON([]byte(text), func(name, value string) bool {
			return slices.Contains(freeTexts, name) && contains(value, needles)
		})
		if err != nil {
			return err
		}
		c := changed{number, string(erased), edit}
		if edit.Valid && contains(textsOf(json.RawMessage(edit.String)), needles) {
			c.edit = sql.NullString{}
		}
		if string(erased) != text || c.edit != edit {
			plans = append(plans, c)
		}
	}
	for _, c := range acts {
		if _, err := t.Exec(`UPDATE {act} SET details = $2 WHERE id = $1`, c.id, c.text); err != nil {
			return err
		}
	}
	for _, c := range plans {
		if _, err := t.Exec(`UPDATE {replay} SET plan = $2, edit = $3 WHERE id = $1`, c.id, c.text, c.edit); err != nil {
			return err
		}
	}
	return nil
}

// freeTexts lists the JSON keys, in plans and in details of acts, whose values operators write: filters, reasons,
// edits, and targets and IDs of published messages.
var freeTexts = []string{"reason", "text", "error", "headers", "edit", "Text", "Error", "Headers", "exchange", "routing_key", "message_id"}

// textsOf returns all names and scalar values in a JSON value, separated by whitespace.
func textsOf(value json.RawMessage) string {
	var decoded any
	if json.Unmarshal(value, &decoded) != nil {
		return string(value)
	}
	var b strings.Builder
	var add func(v any)
	add = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for name, element := range v {
				b.WriteString(name + " ")
				add(element)
			}
		case []any:
			for _, element := range v {
				add(element)
			}
		default:
			fmt.Fprintln(&b, v)
		}
	}
	add(decoded)
	return b.String()
}

// eraseJSON replaces the values for which match returns true, in a JSON object and in its member "filter".
func eraseJSON(text []byte, match func(name, value string) bool) ([]byte, error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, err
	}
	isChanged := false
	for name, value := range all {
		switch {
		case match(name, textsOf(value)):
			all[name] = erasedValue(value)
			isChanged = true
		case strings.EqualFold(name, "filter") && len(value) > 0 && value[0] == '{':
			erased, err := eraseJSON(value, match)
			if err != nil {
				return nil, err
			}
			isChanged = isChanged || string(erased) != string(value)
			all[name] = erased
		}
	}
	if !isChanged {
		return text, nil
	}
	return json.Marshal(all)
}

// erasedValue returns the replacement for an erased value. It has the JSON type that readers expect.
func erasedValue(value json.RawMessage) json.RawMessage {
	switch {
	case string(value) == `""` || string(value) == "null":
		return value
	case value[0] == '{':
		return json.RawMessage(`{"` + erasedText + `":""}`)
	}
	return json.RawMessage(`"` + erasedText + `"`)
}
