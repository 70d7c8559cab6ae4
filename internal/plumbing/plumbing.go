// Package plumbing lets tests of other packages note what became of the messages of a replay,
// as a failed.Replayer notes it. It exists since the methods are no part of the API of package
// failed, which sets the functions. It imports the standard library only.
package plumbing

import "context"

var (
	// Sent notes that messages of a replay of a *failed.Archive were sent and confirmed.
	Sent func(ctx context.Context, archive any, replay int64, messages ...int64) error

	// Refused notes that a message of a replay can never be sent, and why.
	Refused func(ctx context.Context, archive any, replay, message int64, why string) error

	// Retried notes the body of a message with a topology.RetryReport.
	Retried func(ctx context.Context, archive any, report []byte) error
)
