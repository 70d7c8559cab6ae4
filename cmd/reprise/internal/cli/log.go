package cli

import (
	"io"
	"log/slog"
)

// logFlags are the flags of commands that log.
type logFlags struct {
	Log      string     `enum:"text,json" default:"text" help:"Form of the log on stderr: text or json." placeholder:"FORM"`
	LogLevel slog.Level `name:"log-level" default:"info" help:"Least level that is logged: debug, info, warn or error." placeholder:"LEVEL"`
}

func (f logFlags) logger(w io.Writer) *slog.Logger {
	if f.Log == "json" {
		return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: f.LogLevel}))
	}
	return slog.New(newLineHandler(w, f.LogLevel))
}
