package outbox_test

import (
	"archive/zip"
	"flag"
	"fmt"
	"go/build"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/reprisemq/reprise/outbox"
)

var clockChanges = []struct{ zone, spec, from, want string }{
	{"America/New_York", "30 2 * * *", "2026-03-07 12:00", "08 03:00-04, 09 02:30-04, 10 02:30-04"},
	{"America/New_York", "30 1 * * *", "2026-10-31 12:00", "01 01:30-04, 02 01:30-05, 03 01:30-05"},
	{"America/New_York", "0,30 2 * * *", "2026-03-07 12:00", "08 03:00-04, 09 02:00-04, 09 02:30-04"},
	{"America/New_York", "*/30 * * * *", "2026-11-01 00:45", "01 01:00-04, 01 01:30-04, 01 01:00-05, 01 01:30-05, 01 02:00-05"},
	{"America/New_York", "0 * * * *", "2026-03-08 00:45", "08 01:00-05, 08 03:00-04, 08 04:00-04"},
	{"America/New_York", "15 */2 * * *", "2026-03-07 23:45", "08 00:15-05, 08 04:15-04, 08 06:15-04"},
	{"Australia/Lord_Howe", "15 2 * * *", "2026-10-03 12:00", "04 02:30+11, 05 02:15+11"},
	{"Australia/Lord_Howe", "45 * * * *", "2026-04-05 01:20", "05 01:45+11, 05 01:45+1030, 05 02:45+1030"},
	{"America/Sao_Paulo", "0 0 * * *", "2018-11-03 12:00", "04 01:00-02, 05 00:00-02"},
	{"Pacific/Apia", "0 12 30 12 *", "2011-12-28 12:00", "31 00:00+14, 30 12:00+14"}, // December 30 was skipped
	{"America/St_Johns", "*/20 * * * *", "2010-11-06 23:30", "06 23:40-0230, 07 00:00-0230, 06 23:20-0330, 06 23:40-0330, 07 00:00-0330"},
	{"UTC", "0 0 29 2 *", "2026-01-01 00:00", "29 00:00Z, 29 00:00Z"},
	{"UTC", "0 0 13 * fri", "2026-01-10 00:00", "13 00:00Z, 16 00:00Z, 23 00:00Z"},
	{"UTC", "0 0 * * 7", "2026-01-01 00:00", "04 00:00Z, 11 00:00Z"},
	{"UTC", "0 0 */2 * mon", "2026-01-01 00:00", "05 00:00Z, 19 00:00Z"},
	{"UTC", "50/5 9-17/4 1 Jan,jul *", "2026-01-01 12:00", "01 13:50Z, 01 13:55Z, 01 17:50Z, 01 17:55Z, 01 09:50Z"},
	{"UTC", "@monthly", "2026-01-01 00:00", "01 00:00Z, 01 00:00Z"},
}

func TestScheduleAtClockChanges(t *testing.T) {
	for _, c := range clockChanges {
		zone, err := time.LoadLocation(c.zone)
		if err != nil {
			t.Fatal(err)
		}
		at, err := time.ParseInLocation("2006-01-02 15:04", c.from, zone)
		if err != nil {
			t.Fatal(err)
		}
		s, err := outbox.ParseSchedule("CRON_TZ=" + c.zone + " " + c.spec)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for range strings.SplitSeq(c.want, ", ") {
			at = outbox.Next(s, at)
			got = append(got, at.In(zone).Format("02 15:04Z07"))
		}
		if text := strings.Join(got, ", "); text != strings.NewReplacer("-0230", "-02", "-0330", "-03", "+1030", "+10").Replace(c.want) {
			t.Errorf("%s %s from %s:\n got %s\nwant %s", c.zone, c.spec, c.from, text, c.want)
		}
	}
}

// FuzzSchedule checks that the times of a valid specification are after the given time, in order, and match its fields.
func FuzzSchedule(f *testing.F) {
	for _, c := range clockChanges {
		from, err := time.Parse("2006-01-02 15:04", c.from)
		if err != nil {
			f.Fatal(err)
		}
		f.Add("CRON_TZ="+c.zone+" "+c.spec, uint32(from.Unix()), uint32(86400))
	}
	f.Add("@weekly", uint32(0), uint32(1))
	f.Add("1/9223372036854775807 * * * *", uint32(0), uint32(1))
	f.Add("0-59/7 */23 29 feb 1,fri-sun", uint32(0), uint32(1))
	f.Fuzz(func(t *testing.T, spec string, seconds, later uint32) {
		s, err := outbox.ParseSchedule(spec)
		if err != nil {
			return
		}
		from := time.Unix(1<<28+int64(seconds), 0) // from 1978 on, because earlier zones have seconds
		at := outbox.Next(s, from)
		if !at.After(from) {
			t.Fatalf("%q: got %v after %v", spec, at, from)
		}
		if then := outbox.Next(s, from.Add(time.Duration(later)*time.Second)); then.Before(at) {
			t.Errorf("%q: got %v after %v, and the earlier %v for a time %d s later", spec, at, from, then, later)
		}
		if last := outbox.Next(s, at.Add(-1)); !last.Equal(at) {
			t.Errorf("%q: got %v after %v, and %v immediately before this time", spec, at, from, last)
		}
		zone, fields := fieldsOf(t, spec)
		local := at.In(zone)
		if gap, _ := local.ZoneBounds(); !shows(fields, local) && (strings.HasPrefix(fields[1], "*") || !gap.Equal(at)) {
			t.Errorf("%q: %v does not match", spec, local)
		}
	})
}

// fieldsOf returns the zone and the fields of a valid specification.
func fieldsOf(t *testing.T, spec string) (*time.Location, []string) {
	fields, zone := strings.Fields(spec), time.UTC
	if name, found := strings.CutPrefix(fields[0], "CRON_TZ="); found {
		var err error
		if zone, err = time.LoadLocation(name); err != nil {
			t.Fatal(err)
		}
		fields = fields[1:]
	}
	if len(fields) == 1 {
		macros := map[string]string{"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@weekly": "0 0 * * 0", "@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *"}
		fields = strings.Fields(macros[fields[0]])
	}
	return zone, fields
}

// shows reports whether a clock shows a time of the fields.
func shows(fields []string, t time.Time) bool {
	names := func(first, last int, name func(int) string) *strings.Replacer {
		var pairs []string
		for i := first; i <= last; i++ {
			pairs = append(pairs, strings.ToLower(name(i)[:3]), fmt.Sprint(i))
		}
		return strings.NewReplacer(pairs...)
	}
	months := names(1, 12, func(i int) string { return time.Month(i).String() })
	days := names(0, 6, func(i int) string { return time.Weekday(i).String() })
	day := contains(fields[2], t.Day(), 1)
	week := days.Replace(strings.ToLower(fields[4]))
	weekday := contains(week, int(t.Weekday()), 0) || t.Weekday() == 0 && contains(week, 7, 0)
	onDay := day && weekday
	if fields[2][0] != '*' && fields[4][0] != '*' {
		onDay = day || weekday
	}
	return onDay && contains(fields[0], t.Minute(), 0) && contains(fields[1], t.Hour(), 0) && contains(months.Replace(strings.ToLower(fields[3])), int(t.Month()), 1)
}

// contains reports whether a field, whose numbers begin with first, contains a number.
func contains(field string, n, first int) bool {
	for part := range strings.SplitSeq(field, ",") {
		from, to, step := first, 59, 1
		span, every, stepped := strings.Cut(part, "/")
		if stepped {
			step, _ = strconv.Atoi(every)
		}
		if span != "*" {
			low, high, ranged := strings.Cut(span, "-")
			from, _ = strconv.Atoi(low)
			if to, _ = strconv.Atoi(high); ranged && to == 0 && from > 0 {
				to = 7
			} else if !ranged && stepped {
				to = 59
			} else if !ranged {
				to = from
			}
		}
		if n >= from && n <= to && (n-from)%step == 0 {
			return true
		}
	}
	return false
}

var years = flag.Int("outbox.years", 1, "the `years` of schedules to test from 2026")

// The schedules in all time zones are compared with another calculation, which looks at each minute.
func TestSchedulesInAllZones(t *testing.T) {
	specs := []string{"30 2 * * *", "0,59 0-2,23 * * *", "30 * * 3,4,9-11 fri-sun"}
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	end := start.AddDate(*years, 0, 0)
	for i, zone := range differentZones(t, start, end) {
		if testing.Short() && i%8 > 0 {
			continue
		}
		for _, spec := range specs {
			s, err := outbox.ParseSchedule("CRON_TZ=" + zone.String() + " " + spec)
			if err != nil {
				t.Fatal(err)
			}
			at := start
			for want := range minutes(zone, spec, start, end) {
				if at = outbox.Next(s, at); !at.Equal(want) {
					t.Fatalf("%s %s: got %v, want %v", zone, spec, at.In(zone), want.In(zone))
				}
			}
		}
	}
}

// minutes yields the times of a specification after start. A specification with a wildcard occurs in each minute whose
// wall time matches. Another specification occurs in a minute if a matching wall time is in the minute, or was skipped
// before it, and no earlier minute has had this wall time.
func minutes(zone *time.Location, spec string, start, end time.Time) func(yield func(time.Time) bool) {
	matches := map[string]func(wall int64) bool{
		"30 2 * * *":        func(w int64) bool { return w%1440 == 150 },
		"0,59 0-2,23 * * *": func(w int64) bool { m, h := w%60, w%1440/60; return (m == 0 || m == 59) && (h <= 2 || h == 23) },
		"30 * * 3,4,9-11 fri-sun": func(w int64) bool { // the days of most changes of the clock
			if w%60 != 30 {
				return false
			}
			day := time.Unix(w*60, 0).UTC()
			weekday := day.Weekday()
			return (weekday == 0 || weekday >= 5) && slices.Contains([]time.Month{3, 4, 9, 10, 11}, day.Month())
		},
	}[spec]
	return func(yield func(time.Time) bool) {
		offsetOf := func(at int64) int64 {
			_, offset := time.Unix(at, 0).In(zone).Zone()
			return int64(offset)
		}
		latest, offset, changing := int64(0), int64(0), false
		for at := start.Unix() - 2*86400; at < end.Unix(); at += 60 {
			if at%3600 == 0 {
				offset, changing = offsetOf(at), offsetOf(at) != offsetOf(at+3600)
			}
			if changing {
				offset = offsetOf(at)
			}
			wall := (at + offset) / 60
			occurs := false
			if strings.HasPrefix(strings.Fields(spec)[1], "*") {
				occurs = matches(wall)
			} else {
				for latest = max(latest, wall-3*1440); latest < wall; {
					latest++
					occurs = occurs || matches(latest)
				}
			}
			if occurs && at > start.Unix() && !yield(time.Unix(at, 0)) {
				return
			}
		}
	}
}

// differentZones returns one zone for each sequence of offsets in a period.
func differentZones(t *testing.T, start, end time.Time) (all []*time.Location) {
	t.Helper()
	z, err := zip.OpenReader(filepath.Join(build.Default.GOROOT, "lib", "time", "zoneinfo.zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	var seen []string
	for _, f := range z.File {
		if strings.HasSuffix(f.Name, "/") {
			continue
		}
		zone, err := time.LoadLocation(f.Name)
		if err != nil {
			t.Fatal(err)
		}
		var offsets strings.Builder
		for at, last := start, -1; at.Before(end); at = at.Add(time.Hour) {
			if _, offset := at.In(zone).Zone(); offset != last {
				fmt.Fprintln(&offsets, at.Unix(), offset)
				last = offset
			}
		}
		if !slices.Contains(seen, offsets.String()) {
			seen, all = append(seen, offsets.String()), append(all, zone)
		}
	}
	t.Logf("%d zones, %d of them different", len(z.File), len(all))
	return all
}
