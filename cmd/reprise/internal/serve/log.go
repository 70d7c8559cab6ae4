package serve

import (
	"io"
	"log/slog"
	"time"
)

// LogFlags are the flags of commands that log.
type LogFlags struct {
	Log      string     `enum:"text,json,journal" default:"text" help:"Log format: text, json, or journal for systemd. Default ${default}." placeholder:"FORM"`
	LogLevel slog.Level `name:"log-level" default:"info" help:"Minimum log level: debug, info, warn or error. Default ${default}." placeholder:"LEVEL"`
}

// jsonAttr gives durations a unit. By default, they are numbers of nanoseconds.
func jsonAttr(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = shortDuration(a.Value.Duration())
	}
	return a
}

// shortDuration returns a duration with a unit, without meaningless digits.
func shortDuration(d time.Duration) slog.Value {
	return slog.StringValue(d.Round(time.Microsecond).String())
}

// Logger returns a logger that writes to w.
func (f LogFlags) Logger(w io.Writer) *slog.Logger {
	if f.Log == "json" {
		return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: f.LogLevel, ReplaceAttr: jsonAttr}))
	}
	return slog.New(newLineHandler(w, f.LogLevel, f.Log == "journal"))
}
