package cli

import "time"

// The output of --format json. Times are numbers of seconds from the first
// attempt on; with --start there are dates, too.
type (
	jsonSchedule struct {
		Queue       string        `json:"queue,omitempty"`
		When        string        `json:"when,omitempty"`
		Backoff     string        `json:"backoff"`
		MaxAttempts int           `json:"max_attempts"`
		GiveUpAfter float64       `json:"give_up_after,omitempty"`
		Attempts    []jsonAttempt `json:"attempts"`
		Parked      jsonParked    `json:"parked"`
	}
	jsonAttempt struct {
		Attempt int        `json:"attempt"`
		Perhaps bool       `json:"perhaps,omitempty"` // it may have been parked before
		After   jsonWindow `json:"after"`
		At      jsonWindow `json:"at"`
		Dates   *jsonDates `json:"dates,omitempty"`
	}
	jsonParked struct {
		Attempts struct { // after which
			Min int `json:"min"`
			Max int `json:"max"`
		} `json:"attempts"`
		At    jsonWindow `json:"at"`
		Dates *jsonDates `json:"dates,omitempty"`
	}
	jsonWindow struct {
		Min float64 `json:"min"`
		Max float64 `json:"max"`
	}
	jsonDates struct {
		Min time.Time `json:"min"`
		Max time.Time `json:"max"`
	}
)

func scheduleJSON(s subject, p plan, start time.Time) jsonSchedule {
	seconds := func(w window) jsonWindow { return jsonWindow{w.low.Seconds(), w.high.Seconds()} }
	dates := func(w window) *jsonDates {
		if start.IsZero() {
			return nil
		}
		return &jsonDates{start.Add(w.low), start.Add(w.high)}
	}
	out := jsonSchedule{
		Queue:       s.queue,
		When:        s.when,
		Backoff:     s.about,
		MaxAttempts: s.policy.MaxAttempts,
		GiveUpAfter: s.policy.GiveUpAfter.Seconds(),
		Parked:      jsonParked{At: seconds(p.parked.at), Dates: dates(p.parked.at)},
	}
	out.Parked.Attempts.Min, out.Parked.Attempts.Max = p.parked.attempt, p.last
	for _, a := range p.attempts {
		out.Attempts = append(out.Attempts, jsonAttempt{
			Attempt: a.attempt, Perhaps: a.perhaps, After: seconds(a.after), At: seconds(a.at), Dates: dates(a.at),
		})
	}
	return out
}
