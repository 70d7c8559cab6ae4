package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/sqlkit"
)

// Act is an entry of the audit log. If the action changes only the archive, the archive writes its Act in the same
// transaction. The archive never deletes an entry, and changes entries in only two cases: a running Purge or Import
// updates the numbers in its entry, and Archive.Erase erases texts.
type Act struct {
	ID    int64        `json:"id"`
	Time  time.Time    `json:"time"`
	Actor failed.Actor `json:"actor"`

	// Verb is edit, revert, discard, restore, replay, end replay, purge, erase, purge queue, stop archiving, import, mute, unmute, merge groups, unmerge group, regroup, or a
	// verb that was passed to Record.
	Verb string `json:"verb"`

	Subject string         `json:"subject,omitempty"` // for example "message/17" or "replay/3"; "" for a selection
	Details map[string]any `json:"details,omitempty"` // JSON values, such as the filter, the number of messages or the reason
}

const (
	actEdit      = "edit"
	actRevert    = "revert"
	actDiscard   = "discard"
	actRestore   = "restore"
	actReplay    = "replay"
	actEndReplay = "end replay"
	actPurge     = "purge"
	actImport    = "import"
	actErase     = "erase"
	actEmpty     = "purge queue"
)

// ActFilter selects the acts that meet all conditions that are set.
type ActFilter struct {
	Actor        string    // a part of the actor; case is ignored
	Text         string    // a part of the verb, the subject or a detail, such as the reason; case is ignored
	Since, Until time.Time // Since ≤ time < Until
	Message      failed.ID // the acts that discarded, restored, reverted, erased or purged this message
}

// matches reports whether an act has the texts of the filter.
func (f ActFilter) matches(act Act) bool {
	has := func(text, part string) bool { return strings.Contains(strings.ToLower(text), strings.ToLower(part)) }
	if !has(string(act.Actor), f.Actor) {
		return false
	}
	details, err := json.Marshal(act.Details)
	return f.Text == "" || err == nil && has(act.Verb+"\n"+act.Subject+"\n"+textsOf(details), f.Text)
}

// Acts lists the selected acts of the audit log, newest first. It returns the cursor of the next page, or "" after the
// last page. With an actor or a text, a page can be short or empty although more acts follow.
func (a *Archive) Acts(ctx context.Context, f ActFilter, p Page) (acts []Act, next string, err error) {
	defer failed.Annotate(&err, "cannot list acts")
	size, before, err := p.bounds(ofActs)
	if err != nil {
		return nil, "", err
	}
	var act Act
	where, args := `id < $1`, []any{before}
	add := func(condition string, v any) {
		args = append(args, v)
		where += fmt.Sprintf(` AND %s$%d`, condition, len(args))
	}
	if !f.Since.IsZero() {
		add(`at >= `, ceil(f.Since))
	}
	if !f.Until.IsZero() {
		add(`at < `, ceil(f.Until))
	}
	if f.Message != 0 {
		where += fmt.Sprintf(` AND id IN (SELECT act FROM {acted} WHERE message = %d)`, f.Message)
	}
	limit := size + 1
	if f.Actor != "" || f.Text != "" { // no index supports these conditions
		limit = maxLooked
	}
	looked := 0
	rows := a.db.Rows(ctx, `SELECT id, at, actor, verb, subject, details FROM {act} WHERE `+where+fmt.Sprintf(` ORDER BY id DESC LIMIT %d`, limit), args...)
	for err := range rows.Scan(&act.ID, sqlkit.Time(&act.Time), &act.Actor, &act.Verb, &act.Subject, sqlkit.JSON(&act.Details)) {
		if err != nil {
			return nil, "", err
		}
		looked++
		if !f.matches(act) {
			continue
		}
		if len(acts) == size {
			return acts, cursorOf(ofActs, acts[size-1].ID), nil
		}
		acts = append(acts, act)
	}
	if looked == maxLooked {
		next = cursorOf(ofActs, act.ID)
	}
	return acts, next, nil
}

// Record writes an audit log entry for an action that does not concern archived messages, such as pausing workers in
// the console.
func (a *Archive) Record(ctx context.Context, who failed.Actor, verb, subject string, details map[string]any) (err error) {
	defer failed.Annotate(&err, "cannot record an act")
	if err := who.Validate(); err != nil {
		return err
	}
	return a.write(ctx, func(t *tx) error {
		_, err := t.act(who, verb, subject, details)
		return err
	})
}

// act writes an entry to the audit log.
func (t *tx) act(who failed.Actor, verb, subject string, details map[string]any) (id int64, err error) {
	written, err := json.Marshal(details)
	if err != nil {
		return 0, err
	}
	if id, err = t.next("act", 1); err != nil {
		return 0, err
	}
	_, err = t.Exec(`INSERT INTO {act} (id, at, actor, verb, subject, details) VALUES ($1, $2, $3, $4, $5, $6)`,
		id, sqlkit.Millis(t.Now()), []byte(who), verb, subject, string(written))
	return id, err
}

// actOn is like act, and records the act in the history of each message.
func (t *tx) actOn(ids []failed.ID, who failed.Actor, verb, subject string, details map[string]any) error {
	act, err := t.act(who, verb, subject, details)
	if err != nil {
		return err
	}
	for part := range slices.Chunk(ids, purgeBatch) {
		rows := make([][]any, len(part))
		for i, id := range part {
			rows[i] = []any{int64(id), act}
		}
		if err := t.insert("{acted}", []string{"message", "act"}, "", rows); err != nil {
			return err
		}
	}
	return nil
}
