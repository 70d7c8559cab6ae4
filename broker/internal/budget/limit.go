package budget

import "sync/atomic"

// Limit is a limited amount of memory. A nil Limit is unlimited.
type Limit struct {
	most int64
	used atomic.Int64
}

// NewLimit returns a limit in bytes.
func NewLimit(most int64) *Limit { return &Limit{most: most} }

// Clone returns a limit with the same size, of which as many bytes are used.
func (l *Limit) Clone() *Limit {
	clone := NewLimit(l.most)
	clone.Force(l.Used())
	return clone
}

// Most returns the limit in bytes.
func (l *Limit) Most() int64 { return l.most }

// Used returns the number of used bytes. After Force, it can exceed the limit.
func (l *Limit) Used() int64 {
	if l == nil {
		return 0
	}
	return l.used.Load()
}

// Take takes n bytes unless this would exceed the limit, and reports whether it took them.
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

// Force takes n bytes, even beyond the limit.
func (l *Limit) Force(n int64) {
	if l != nil {
		l.used.Add(n)
	}
}

// Give returns n bytes to the limit.
func (l *Limit) Give(n int64) { l.Force(-n) }
