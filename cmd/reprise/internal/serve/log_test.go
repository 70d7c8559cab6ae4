package serve

import (
	"bytes"
	"errors"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestLineHandler(t *testing.T) {
	var b bytes.Buffer
	log := LogFlags{Log: "text", LogLevel: slog.LevelInfo}.Logger(&b)
	for _, tt := range []struct {
		log  func()
		want string // after the time
	}{
		{func() { log.Debug("not this") }, ""},
		{func() { log.Info("plain") }, "INFO  plain\n"},
		{func() {
			log.Warn("values", "n", 1, "d", 1500*time.Microsecond, "s", "a b", "e", errors.New(`"x"`), "empty", "")
		}, `WARN  values  n=1 d=1.5ms s="a b" e="\"x\""` + "\n"},
		{func() { log.With("a", 1).WithGroup("g").With("b", 2).Error("groups", "c", 3, slog.Group("h", "d", 4)) }, "ERROR groups  a=1 g.b=2 g.c=3 g.h.d=4\n"},
		{func() { log.Info("\x1b[31mred\nline\ttab", "k", "\x1b[0m") }, "INFO  [31mred line tab  k=\"\\x1b[0m\"\n"},
		{func() { log.Info("größe", slog.Attr{}, "at", time.Unix(0, 0).UTC()) }, "INFO  größe  at=1970-01-01T00:00:00Z\n"},
	} {
		b.Reset()
		tt.log()
		got := b.String()
		if tt.want == "" {
			if got != "" {
				t.Errorf("got %q, want nothing", got)
			}
			continue
		}
		stamp, rest, _ := strings.Cut(got, " ")
		if !regexp.MustCompile(`^\d\d:\d\d:\d\d\.\d{3}$`).MatchString(stamp) || rest != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}

func TestJSONLogDurations(t *testing.T) {
	var b bytes.Buffer
	LogFlags{Log: "json"}.Logger(&b).Info("retry", "delay", 90*time.Second, slog.Group("g", "took", 1234567*time.Nanosecond))
	if !strings.Contains(b.String(), `"delay":"1m30s","g":{"took":"1.235ms"}`) {
		t.Errorf("got %s", b.String())
	}
}

func TestLineHandlerOfTheJournal(t *testing.T) {
	var b bytes.Buffer
	log := LogFlags{Log: "journal", LogLevel: slog.LevelDebug}.Logger(&b)
	log.Debug("a")
	log.Info("b")
	log.Warn("c")
	log.With("n", 1).Error("d")
	if got, want := b.String(), "<7>DEBUG a\n<6>INFO  b\n<4>WARN  c\n<3>ERROR d  n=1\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
