package outbox

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"
)

// schedule is a parsed specification of times; see Entry.Spec. A field is a set of numbers, as bits.
type schedule struct {
	minutes, hours, days, months, weekdays uint64
	anyDay, anyWeekday                     bool
	everyHour                              bool // the hours follow the clock of the zone, also if it repeats or skips an hour
	zone                                   *time.Location
}

// field describes a field of a specification.
type field struct {
	name        string
	first, last int
	names       []string // of the numbers from first
}

var fields = []field{
	{"minute", 0, 59, nil},
	{"hour", 0, 23, nil},
	{"day of the month", 1, 31, nil},
	{"month", 1, 12, []string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}},
	{"day of the week", 0, 7, []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}},
}

var macros = map[string]string{
	"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@weekly": "0 0 * * 0", "@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *",
}

func parseSchedule(spec string) (*schedule, error) {
	s := &schedule{zone: time.UTC}
	words := strings.Fields(spec)
	if len(words) > 0 {
		if name, found := strings.CutPrefix(words[0], "CRON_TZ="); found {
			var err error
			if s.zone, err = time.LoadLocation(name); err != nil || name == "" || name == "Local" {
				return nil, fmt.Errorf("%q is not a time zone (example: CRON_TZ=Europe/Berlin)", name)
			}
			words = words[1:]
		}
	}
	if len(words) == 1 && macros[words[0]] != "" {
		words = strings.Fields(macros[words[0]])
	}
	if len(words) != len(fields) {
		return nil, fmt.Errorf("specification must have 5 fields: got %d (minute, hour, day of the month, month, day of the week)", len(words))
	}
	for i, set := range []*uint64{&s.minutes, &s.hours, &s.days, &s.months, &s.weekdays} {
		var err error
		if *set, err = fields[i].parse(words[i]); err != nil {
			return nil, err
		}
	}
	s.weekdays = s.weekdays&^(1<<7) | s.weekdays>>7 // 7 is Sunday, too
	s.anyDay, s.anyWeekday = strings.HasPrefix(words[2], "*"), strings.HasPrefix(words[4], "*")
	s.everyHour = strings.HasPrefix(words[1], "*") || bits.OnesCount64(s.hours) == 24
	if s.next(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return nil, fmt.Errorf("specification must have a day that exists: got %q", spec)
	}
	return s, nil
}

// parse parses a list of numbers and ranges, each with an optional step.
func (f field) parse(text string) (set uint64, err error) {
	for part := range strings.SplitSeq(text, ",") {
		span, stepText, stepped := strings.Cut(part, "/")
		from, to, step := f.first, f.last, 1
		if span != "*" {
			first, last, ranged := strings.Cut(span, "-")
			if from, err = f.number(first); err != nil {
				return 0, err
			}
			switch {
			case ranged:
				if to, err = f.number(last); err != nil {
					return 0, err
				}
				if to == 0 && f.last == 7 && from > 0 { // fri-sun
					to = 7
				}
			case !stepped:
				to = from
			}
		}
		if stepped {
			if step, err = strconv.Atoi(stepText); err != nil || step < 1 {
				return 0, fmt.Errorf("step of the %s must be a positive integer: got %q", f.name, stepText)
			}
		}
		if from > to {
			return 0, fmt.Errorf("range of the %s must not end before it begins: got %q", f.name, part)
		}
		for n := from; n <= to; n += min(step, 60) { // without an overflow
			set |= 1 << n
		}
	}
	return set, nil
}

func (f field) number(text string) (int, error) {
	if i := slices.Index(f.names, strings.ToLower(text)); i >= 0 {
		return f.first + i, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < f.first || n > f.last || strings.HasPrefix(text, "+") {
		return 0, fmt.Errorf("%s must be from %d to %d: got %q", f.name, f.first, f.last, text)
	}
	return n, nil
}

// longestGap is the maximum number of days between two days of a specification: February 29 on a given weekday occurs
// at least every 40 years.
const longestGap = 41 * 366

// next returns the first time of the schedule after t, or the zero time if there is none.
func (s *schedule) next(t time.Time) time.Time {
	if s.everyHour {
		return s.nextShown(t)
	}
	for wall := wallOf(t.In(s.zone)); ; {
		if wall = s.match(wall.Add(time.Minute)); wall.IsZero() {
			return time.Time{}
		}
		if at := s.first(wall); at.After(t) { // before t only while the clock repeats an hour
			return at
		}
	}
}

// nextShown returns the first time after t at which the clock of the zone shows a matching time.
func (s *schedule) nextShown(t time.Time) time.Time {
	for at := t.Truncate(time.Minute).Add(time.Minute); ; {
		local := at.In(s.zone)
		_, offset := local.Zone()
		_, end := local.ZoneBounds()
		wall := s.match(wallOf(local))
		found := wall.Add(-time.Duration(offset) * time.Second)
		switch {
		case wall.IsZero():
			return wall
		case end.IsZero() || found.Before(end):
			return found
		}
		at = end
	}
}

// wallOf returns what a clock shows, in whole minutes, as a time in UTC.
func wallOf(local time.Time) time.Time {
	return time.Date(local.Year(), local.Month(), local.Day(), local.Hour(), local.Minute(), 0, 0, time.UTC)
}

// match returns the first wall time that matches the fields, from a wall time, or the zero time if there is none.
func (s *schedule) match(wall time.Time) time.Time {
	day := wall.Truncate(24 * time.Hour)
	from := int(wall.Sub(day) / time.Minute)
	for range longestGap {
		for hour := from / 60; hour < 24 && s.onDay(day); hour++ {
			if s.hours>>hour&1 == 1 {
				for minute := max(0, from-hour*60); minute < 60; minute++ {
					if s.minutes>>minute&1 == 1 {
						return day.Add(time.Duration(hour*60+minute) * time.Minute)
					}
				}
			}
		}
		day, from = day.AddDate(0, 0, 1), 0
	}
	return time.Time{}
}

// onDay reports whether the schedule has times on a day. If both days are restricted, one of them suffices.
func (s *schedule) onDay(day time.Time) bool {
	inMonth := s.days>>day.Day()&1 == 1
	inWeek := s.weekdays>>int(day.Weekday())&1 == 1
	if s.anyDay || s.anyWeekday {
		inMonth = inMonth && inWeek
	} else {
		inMonth = inMonth || inWeek
	}
	return inMonth && s.months>>int(day.Month())&1 == 1
}

// first returns the first time at which the clock of the zone shows a wall time, or if the clock skips the wall time, the first
// time after the gap.
func (s *schedule) first(wall time.Time) time.Time {
	at := wall.Add(-48 * time.Hour) // before the wall time, with every offset
	for {
		local := at.In(s.zone)
		_, offset := local.Zone()
		start, end := local.ZoneBounds()
		found := wall.Add(-time.Duration(offset) * time.Second)
		switch {
		case !end.IsZero() && !found.Before(end):
			at = end
		case !start.IsZero() && found.Before(start):
			return start.UTC()
		default:
			return found
		}
	}
}
