package failed

import (
	"context"
	"fmt"
	"time"

	"github.com/reprisemq/reprise/internal/sqlkit"
)

// submissionsKept is the time after which a key can be claimed again.
const submissionsKept = 30 * 24 * time.Hour

// ClaimSubmission reserves a key for the caller, so that a form or request that is submitted twice takes effect only
// once. It returns ErrState if the key was claimed before, by this or another process with the same archive. Call
// ClaimSubmission immediately before the action, and do not act if it returns an error. The key is a random string of
// at most 100 bytes that the form or request contains.
//
// The archive removes a key after 30 days. If the action fails, the key stays claimed, because the caller cannot always
// know whether the action had an effect.
func (a *Archive) ClaimSubmission(ctx context.Context, key string) (err error) {
	defer annotate(&err, "cannot claim a submission")
	if key == "" || len(key) > 100 {
		return fmt.Errorf("%w: key must have 1 to 100 bytes: got %d", ErrInvalid, len(key))
	}
	return a.write(ctx, func(t *tx) error {
		now := t.now()
		if _, err := t.Exec(`DELETE FROM {submission} WHERE at < $1`, sqlkit.Millis(now.Add(-submissionsKept))); err != nil {
			return err
		}
		n, err := t.Exec(`INSERT INTO {submission} (name, at) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING`, []byte(key), sqlkit.Millis(now))
		if err == nil && n == 0 {
			err = fmt.Errorf("%w: key is already claimed", ErrState)
		}
		return err
	})
}
