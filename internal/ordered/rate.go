package ordered

import "time"

// Rate is the maximum rate of the attempts of each key. The zero Rate has no limit.
type Rate struct {
	Every time.Duration // time between attempts
	Burst int           // number of attempts that a key can save
}

// rates limits the attempts of keys with the generic cell rate algorithm. The state of a key is the time at which it can start its
// whole burst again; a key without a state can.
type rates struct {
	Rate

	// A state of older is in force for at most the time of a burst after newer has replaced it. Both are replaced after at least this
	// time, so that old states need no search.
	newer, older map[string]time.Time
	began        time.Time // of newer
}

func (r *rates) whole(key string) time.Time {
	if at, ok := r.newer[key]; ok {
		return at
	}
	return r.older[key]
}

// next returns the time from which the next attempt of a key may begin.
func (r *rates) next(key string) time.Time {
	return r.whole(key).Add(-r.Every * time.Duration(r.Burst-1))
}

// take records the beginning of an attempt.
func (r *rates) take(now time.Time, key string) {
	if r.Every == 0 {
		return
	}
	whole := r.whole(key)
	if whole.Before(now) {
		whole = now
	}
	if r.newer == nil || now.Sub(r.began) >= r.Every*time.Duration(r.Burst) {
		r.older, r.newer, r.began = r.newer, map[string]time.Time{}, now
	}
	r.newer[key] = whole.Add(r.Every)
}
