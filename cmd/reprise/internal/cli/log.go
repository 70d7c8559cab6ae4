package cli

import (
	"io"
	"log/slog"
)

// logFlags are the flags of commands that log.
type logFlags struct {
	Log      string     `enum:"text,json,journal" default:"text" help:"Log format: text, json, or journal for systemd. Default ${default}." placeholder:"FORM"`
	LogLevel slog.Level `name:"log-level" default:"info" help:"Minimum log level: debug, info, warn or error. Default ${default}." placeholder:"LEVEL"`
}

func (f logFlags) logger(w io.Writer) *slog.Logger {
	if f.Log == "json" {
		return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: f.LogLevel}))
	}
	return slog.New(newLineHandler(w, f.LogLevel, f.Log == "journal"))
}
