package testhook

import "context"

// Functions that record the results of a replay's messages, as a replay.Replayer does. Package store sets them.
var (
	// Sent records that messages of a replay were sent and confirmed. The archive is a *store.Archive.
	Sent func(ctx context.Context, archive any, replay int64, messages ...int64) error

	// Refused records that a message of a replay cannot be sent, and why.
	Refused func(ctx context.Context, archive any, replay, message int64, why string) error

	// Retried records the retries in report, which is an encoded protocol.RetryReport.
	Retried func(ctx context.Context, archive any, report []byte) error
)
