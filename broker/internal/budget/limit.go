package budget

import "sync/atomic"

// Limit is memory of which no more is given out than there is. The nil Limit gives out any amount.
type Limit struct {
	most int64
	used atomic.Int64
}

// NewLimit returns a limit in bytes.
func NewLimit(most int64) *Limit { return &Limit{most: most} }

// Most returns the limit in bytes.
func (l *Limit) Most() int64 { return l.most }

// Used returns how much is given out, which is more than the limit after Force.
func (l *Limit) Used() int64 {
	if l == nil {
		return 0
	}
	return l.used.Load()
}

// Take reports whether there is so much left, and then gives it out.
func (l *Limit) Take(n int64) bool {
	if l == nil {
		return true
	}
	if l.used.Add(n) > l.most {
		l.used.Add(-n)
		return false
	}
	return true
}

// Force gives out more than there may be.
func (l *Limit) Force(n int64) {
	if l != nil {
		l.used.Add(n)
	}
}

// Give takes it back.
func (l *Limit) Give(n int64) { l.Force(-n) }
