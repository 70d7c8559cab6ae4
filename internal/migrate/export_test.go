package migrate

import "time"

// Shrink reduces the size of a batch, and the time for which a migration tries to permit connections.
func Shrink(messages int, d time.Duration) { batch, resumeTimeout = messages, d }
