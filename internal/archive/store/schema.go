package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
)

// Text from users is stored in binary columns, because it may contain NUL and invalid UTF-8, which the TEXT type of
// PostgreSQL does not support. Times are milliseconds since 1970.

// version is the version of the schema. Increase it when the schema changes.
const version = 13

// schema returns the statements that create the tables and indexes.
func schema(d Dialect) []string {
	search := `CREATE TABLE {search} (pos BIGINT PRIMARY KEY, words TSVECTOR NOT NULL)`
	searched := []string{`CREATE INDEX {search_words} ON {search} USING GIN (words)`}
	if d == SQLite {
		// FTS5 stores the words only in the index, without their positions. A term ends at ' ', and FTS5 folds the
		// case of only the letters A to Z.
		search = `CREATE VIRTUAL TABLE {search} USING fts5(words, content='', contentless_delete=1, detail=none, tokenize='ascii')`
		searched = nil
	}
	return append([]string{
		`CREATE TABLE {counter} (name VARCHAR(20) PRIMARY KEY, last BIGINT NOT NULL)`,
		`INSERT INTO {counter} (name, last) VALUES ('message', 0), ('group', 0), ('queue', 0), ('replay', 0), ('act', 0), ('commit', 0)`,

		`CREATE TABLE {queue} (
			id        BIGINT PRIMARY KEY,
			name      BYTES NOT NULL UNIQUE,
			failed    BIGINT NOT NULL DEFAULT 0,
			replaying BIGINT NOT NULL DEFAULT 0,
			replayed  BIGINT NOT NULL DEFAULT 0,
			discarded BIGINT NOT NULL DEFAULT 0,
			purged    BIGINT NOT NULL DEFAULT 0
		)`,

		`CREATE TABLE {group} (
			id        BIGINT PRIMARY KEY,
			queue     BIGINT NOT NULL,
			digest    BYTES NOT NULL UNIQUE, -- of queue and text
			text      BYTES NOT NULL,
			example   BYTES NOT NULL,
			first     BIGINT NOT NULL,
			latest    BIGINT NOT NULL,
			failed    BIGINT NOT NULL DEFAULT 0,
			replaying BIGINT NOT NULL DEFAULT 0,
			replayed  BIGINT NOT NULL DEFAULT 0,
			discarded BIGINT NOT NULL DEFAULT 0,
			muted     BIGINT NOT NULL DEFAULT 0, -- until when notifications exclude the group
			regrouped BIGINT NOT NULL DEFAULT 0 -- when messages were last moved into the group
		)`,
		`CREATE INDEX {group_latest} ON {group} (latest, id)`,
		`CREATE INDEX {group_queue} ON {group} (queue, latest, id)`,
		`CREATE INDEX {group_waiting} ON {group} (latest, id) WHERE failed > 0`,
		`CREATE INDEX {group_failed} ON {group} (failed, id)`,
		`CREATE INDEX {group_queue_failed} ON {group} (queue, failed, id)`,

		`CREATE TABLE {trend} (
			grp   BIGINT NOT NULL,
			span  BIGINT NOT NULL, -- of the bucket, in seconds
			start BIGINT NOT NULL,
			n     BIGINT NOT NULL,
			PRIMARY KEY (grp, span, start)
		) WITHOUT ROWID`,

		// pos defines the order of lists: see position. {content} has the columns that lists do not show, so that
		// scans of {message} are fast.
		`CREATE TABLE {message} (
			pos           BIGINT PRIMARY KEY,
			id            BIGINT NOT NULL UNIQUE,
			grp           BIGINT NOT NULL,
			queue         BIGINT NOT NULL,
			state         SMALLINT NOT NULL,
			attempts      BIGINT NOT NULL,
			first_failed  BIGINT NOT NULL,
			last_failed   BIGINT NOT NULL,
			archived      BIGINT NOT NULL,
			failed_queue  BYTES NOT NULL,
			exchange      BYTES NOT NULL,
			routing_key   BYTES NOT NULL,
			message_id    BYTES NOT NULL,
			reason        BYTES NOT NULL,
			error         BYTES NOT NULL, -- its first KiB
			size          BIGINT NOT NULL,
			replay        BIGINT NOT NULL DEFAULT 0,
			back          BIGINT NOT NULL,
			back_of       BIGINT NOT NULL,
			edited        BIGINT NOT NULL DEFAULT 0, -- number of the revision, 0 is the original
			discarded     BYTES, -- reason
			refused       BYTES -- why the latest replay could not send the message
		)`,
		// The state comes first: see dialect.along. Attempts are included, so that an index-only scan can read them.
		`CREATE INDEX {message_state} ON {message} (state, pos, attempts)`,
		`CREATE INDEX {message_queue} ON {message} (state, queue, pos, attempts)`,
		`CREATE INDEX {message_group} ON {message} (state, grp, pos, attempts)`,
		`CREATE INDEX {message_replaying} ON {message} (replay) WHERE state = 1`,
		`CREATE INDEX {message_back} ON {message} (back, pos) WHERE back > 0`,

		`CREATE TABLE {content} (
			message    BIGINT PRIMARY KEY,
			headers    TEXT NOT NULL,
			properties TEXT NOT NULL,
			errors     TEXT,  -- null: those in the headers
			dropped    BIGINT NOT NULL,
			error      BYTES, -- null: that of {message} is whole
			body       BYTES NOT NULL
		)`,
		`CREATE TABLE {revision} (
			message    BIGINT NOT NULL,
			number     BIGINT NOT NULL,
			at         BIGINT NOT NULL,
			actor      BYTES NOT NULL,
			headers    TEXT NOT NULL,
			properties TEXT NOT NULL,
			body       BYTES NOT NULL,
			replay     BIGINT NOT NULL DEFAULT 0, -- that created the revision; 0: a user
			PRIMARY KEY (message, number)
		)`,

		// Deliveries whose acknowledgement is not recorded.
		`CREATE TABLE {delivery} (
			message BIGINT PRIMARY KEY,
			digest  BYTES NOT NULL,
			session BYTES NOT NULL
		)`,
		`CREATE INDEX {delivery_digest} ON {delivery} (digest)`,

		// The origin of imported messages: their archive and their ID in it.
		`CREATE TABLE {origin} (
			archive VARCHAR(40) NOT NULL,
			id      BIGINT NOT NULL,
			message BIGINT NOT NULL UNIQUE,
			PRIMARY KEY (archive, id)
		)`,

		`CREATE TABLE {replay} (
			id        BIGINT PRIMARY KEY,
			plan      TEXT NOT NULL,
			state     VARCHAR(20) NOT NULL,
			why       BYTES NOT NULL,
			actor     BYTES NOT NULL,
			begun     BIGINT NOT NULL,
			ended     BIGINT NOT NULL DEFAULT 0,
			total     BIGINT NOT NULL,
			sent      BIGINT NOT NULL DEFAULT 0,
			back      BIGINT NOT NULL DEFAULT 0,
			owner     TEXT NOT NULL DEFAULT '', -- who carries it out
			lease     BIGINT NOT NULL DEFAULT 0, -- and until when nobody else does
			refused   BIGINT NOT NULL DEFAULT 0,
			secret    VARCHAR(40) NOT NULL DEFAULT '',
			pending   BIGINT NOT NULL DEFAULT 0, -- outcomes: see Outcome
			retrying  BIGINT NOT NULL DEFAULT 0,
			succeeded BIGINT NOT NULL DEFAULT 0,
			settled   BIGINT NOT NULL DEFAULT 0, -- messages without a report, whose queues were empty later
			retried   BYTES, -- the reported error of a failed first attempt
			edit      TEXT -- null: no edit
		)`,
		`CREATE INDEX {replay_ended} ON {replay} (ended, id)`,
		`CREATE TABLE {item} (
			replay  BIGINT NOT NULL,
			message BIGINT NOT NULL,
			pos     BIGINT NOT NULL,
			sent    SMALLINT NOT NULL DEFAULT 0, -- 2: the replay could not send the message
			refused BYTES, -- why
			outcome SMALLINT NOT NULL DEFAULT 0,
			unasked SMALLINT NOT NULL DEFAULT 0, -- why no report was requested
			base    BIGINT NOT NULL DEFAULT 0, -- the revision to which the replay applies its edit
			reached BYTES, -- the queue to which the replay sent the message; null: the work queue of the message
			PRIMARY KEY (replay, message)
		) WITHOUT ROWID`,
		`CREATE INDEX {item_next} ON {item} (replay, pos) WHERE sent = 0`,
		`CREATE INDEX {item_refused} ON {item} (replay, pos) WHERE sent = 2`,
		`CREATE INDEX {item_outcome} ON {item} (replay, outcome, pos) WHERE sent = 1`,

		`CREATE TABLE {act} (
			id      BIGINT PRIMARY KEY,
			at      BIGINT NOT NULL,
			actor   BYTES NOT NULL,
			verb    VARCHAR(40) NOT NULL,
			subject VARCHAR(80) NOT NULL,
			details TEXT NOT NULL
		)`,
		// The acts that discarded, restored, reverted, erased or purged each message.
		`CREATE TABLE {acted} (message BIGINT NOT NULL, act BIGINT NOT NULL, PRIMARY KEY (message, act)) WITHOUT ROWID`,
		`CREATE INDEX {acted_act} ON {acted} (act)`,

		// The owners of failed queues.
		`CREATE TABLE {ingest} (queue BYTES PRIMARY KEY, owner TEXT NOT NULL, lease BIGINT NOT NULL)`,
		// Forms that were submitted: see ClaimSubmission.
		`CREATE TABLE {submission} (name BYTES PRIMARY KEY, at BIGINT NOT NULL)`,
		// Merges of groups: failures with the group digest belong to the group with the digest target and the given text.
		`CREATE TABLE {merged} (digest BYTES PRIMARY KEY, target BYTES NOT NULL, text BYTES NOT NULL)`,
		`CREATE INDEX {merged_target} ON {merged} (target)`,
		search,
	}, searched...)
}

// create creates the tables unless they exist, and reads the origin and the commit counter of the archive. It returns an
// error for tables of another version.
func (a *Archive) create(ctx context.Context) error {
	if a.cfg.Dialect == SQLite {
		if err := a.db.WriteAhead(ctx); err != nil {
			return err
		}
	}
	return a.transaction(ctx, a.d.begin(a.cfg.Prefix, true), func(tx *tx) error {
		if _, err := tx.Exec(`CREATE TABLE IF NOT EXISTS {about} (name VARCHAR(20) PRIMARY KEY, value VARCHAR(80) NOT NULL)`); err != nil {
			return err
		}
		var at string
		switch err := tx.Row(`SELECT value FROM {about} WHERE name = 'version'`).Scan(&at); {
		case errors.Is(err, sql.ErrNoRows):
		case err != nil:
			return err
		case at != strconv.Itoa(version):
			return fmt.Errorf("schema version must be %d: got %s (use the program that created the archive; to change the program, "+
				"run its `reprise failed export`, and then `reprise failed import` into a new archive)", version, at)
		default:
			return tx.learn()
		}
		for _, statement := range schema(a.cfg.Dialect) {
			if _, err := tx.Exec(a.d.Types(statement)); err != nil {
				return err
			}
		}
		if _, err := tx.Exec(`INSERT INTO {about} (name, value) VALUES ('archive', $1), ('version', $2)`, rand.Text(), strconv.Itoa(version)); err != nil {
			return err
		}
		return tx.learn()
	})
}

// learn reads the origin and the commit counter of the archive.
func (t *tx) learn() error {
	var commits int64
	err := t.Row(`SELECT o.value, c.last FROM {about} o, {counter} c WHERE o.name = 'archive' AND c.name = 'commit'`).Scan(&t.origin, &commits)
	t.commits.Store(commits)
	return err
}

// ready reports whether the schema exists in this version. It does not write. It also reads the origin and the commit
// counter of the archive.
func (a *Archive) ready(ctx context.Context) bool {
	var at string
	var commits int64
	err := a.db.Row(ctx, `SELECT v.value, o.value, c.last FROM {about} v, {about} o, {counter} c
		WHERE v.name = 'version' AND o.name = 'archive' AND c.name = 'commit'`).Scan(&at, &a.origin, &commits)
	a.commits.Store(commits)
	return err == nil && at == strconv.Itoa(version)
}
