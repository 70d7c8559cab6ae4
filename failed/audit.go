package failed

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/reprisemq/reprise/internal/sqlkit"
)

// Act is an entry of the audit log. If the action changes only the archive, the archive writes its Act in the same
// transaction. The archive never deletes an entry, and changes entries in only two cases: a running Purge or Import
// updates the numbers in its entry, and Archive.Erase erases texts.
type Act struct {
	ID    int64     `json:"id"`
	Time  time.Time `json:"time"`
	Actor Actor     `json:"actor"`

	// Verb is edit, revert, discard, restore, replay, end replay, purge, erase, purge queue, import, mute, unmute, or a
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

// Acts lists the audit log, newest first. It returns the cursor of the next page, or "" after the last page.
func (a *Archive) Acts(ctx context.Context, p Page) (acts []Act, next string, err error) {
	defer annotate(&err, "cannot list acts")
	size, before, err := p.bounds(ofActs)
	if err != nil {
		return nil, "", err
	}
	var act Act
	rows := a.db.Rows(ctx, `SELECT id, at, actor, verb, subject, details FROM {act} WHERE id < $1 ORDER BY id DESC LIMIT $2`, before, size+1)
	for err := range rows.Scan(&act.ID, sqlkit.Time(&act.Time), &act.Actor, &act.Verb, &act.Subject, sqlkit.JSON(&act.Details)) {
		if err != nil {
			return nil, "", err
		}
		if len(acts) == size {
			return acts, cursorOf(ofActs, acts[size-1].ID), nil
		}
		acts = append(acts, act)
	}
	return acts, "", nil
}

// Record writes an audit log entry for an action that does not concern archived messages, such as pausing workers in
// the console.
func (a *Archive) Record(ctx context.Context, who Actor, verb, subject string, details map[string]any) (err error) {
	defer annotate(&err, "cannot record an act")
	if err := who.validate(); err != nil {
		return err
	}
	return a.write(ctx, func(t *tx) error {
		_, err := t.act(who, verb, subject, details)
		return err
	})
}

// act writes an entry to the audit log.
func (t *tx) act(who Actor, verb, subject string, details map[string]any) (id int64, err error) {
	written, err := json.Marshal(details)
	if err != nil {
		return 0, err
	}
	if id, err = t.next("act", 1); err != nil {
		return 0, err
	}
	_, err = t.Exec(`INSERT INTO {act} (id, at, actor, verb, subject, details) VALUES ($1, $2, $3, $4, $5, $6)`,
		id, sqlkit.Millis(t.now()), []byte(who), verb, subject, string(written))
	return id, err
}

func (who Actor) validate() error {
	if who == "" {
		return fmt.Errorf("%w: Actor must not be empty (example: \"cli:root@host\")", ErrInvalid)
	}
	return nil
}

// bounds returns the page size and the exclusive upper bound of the IDs, for a list in descending order of IDs.
func (p Page) bounds(list string) (size int, before int64, err error) {
	if size, err = p.size(); err != nil {
		return 0, 0, err
	}
	if p.After == "" {
		return size, math.MaxInt64, nil
	}
	before = math.MaxInt64
	err = readCursor(p.After, list, &before)
	return size, before, err
}
