package params

import (
	"testing"
	"time"
)

// Every form in which a page, a command or a log shows a time is accepted, with and without seconds and fractions.
func TestReadTime(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 11, 28, 14, 49, 51, 0, berlin)
	for _, layout := range []string{
		time.RFC3339, time.RFC3339Nano, time.DateTime, time.DateOnly, "2006-01-02T15:04:05", "2006-01-02 15:04:05.000", "2006-01-02T15:04",
		"2006-01-02 15:04", "2006-01-02 15:04:05 MST", "2006-01-02 15:04 MST", "2006-01-02 15:04:05Z07:00", "2006-01-02 15:04:05 -07:00",
	} {
		for zone, utc := range map[*time.Location]bool{berlin: false, time.UTC: true} {
			written := at.In(zone).Format(layout)
			want, err := time.ParseInLocation(layout, written, zone)
			if err != nil {
				t.Fatal(err)
			}
			got, err := ReadTime(written, at, zone)
			if err != nil || !got.Equal(want) {
				t.Errorf("ReadTime(%q), UTC %v: got %v, %v, want %v", written, utc, got, err, want)
			}
		}
	}
	for text, ago := range map[string]time.Duration{"90m": 90 * time.Minute, "7d": 7 * 24 * time.Hour, "1d12h": 36 * time.Hour} {
		if got, err := ReadTime(text, at, berlin); err != nil || !got.Equal(at.Add(-ago)) {
			t.Errorf("ReadTime(%q): got %v, %v, want %v before now", text, got, err, ago)
		}
	}
	for _, text := range []string{"", "yesterday", "14:49", "2026-11-28 14:49:51 PST", "2026-02-30", "2026-11-28T14:49:51+24:00", "-2h", "0s", "d", "1d2"} {
		if got, err := ReadTime(text, at, berlin); err == nil {
			t.Errorf("ReadTime(%q): got %v, want an error", text, got)
		}
	}
}
