package migrate

import "time"

// SetResumeTimeout sets the time for which a migration tries to permit connections.
func SetResumeTimeout(d time.Duration) { resumeTimeout = d }
