package failed

import (
	"context"
	"fmt"
	"strings"
)

// Discard drops the messages that are in state failed and selected by f, for a
// reason, which must not be empty. It returns how many they were. They stay in the
// archive, and Restore brings them back. ErrState if they are more than Filter.AtMost.
func (a *Archive) Discard(ctx context.Context, f Filter, reason string, who Actor) (n int64, err error) {
	defer annotate(&err, "discarding")
	if strings.TrimSpace(reason) == "" {
		return 0, fmt.Errorf("%w: say why: the reason is empty", ErrInvalid)
	}
	return a.move(ctx, f, who, move{
		from: Failed, to: Discarded, verb: actDiscard,
		set: func(s *selection) string { return `, discarded = ` + s.arg([]byte(reason)) }, details: map[string]any{"reason": reason},
	})
}

// Restore undoes Discard for the messages that are discarded and selected by f: they
// are in state failed again. It returns how many they were.
func (a *Archive) Restore(ctx context.Context, f Filter, who Actor) (n int64, err error) {
	defer annotate(&err, "restoring")
	return a.move(ctx, f, who, move{
		from: Discarded, to: Failed, verb: actRestore,
		set: func(*selection) string { return `, discarded = NULL` },
	})
}
