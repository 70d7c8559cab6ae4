package handler

import (
	"encoding/json"
	"log/slog"
	"strings"
)

// record is a line of a structured log: a JSON object.
type record struct {
	level slog.Level
	text  string // the message, or ""
	line  json.RawMessage
}

// structured returns the record in a line of output. It returns false if the line is not a JSON object.
func structured(line string) (r record, ok bool) {
	line = strings.TrimSpace(line)
	if !strings.HasPrefix(line, "{") {
		return record{}, false
	}
	var object map[string]any
	if err := json.Unmarshal([]byte(line), &object); err != nil {
		return record{}, false
	}
	fields := make(map[string]any, len(object))
	for name, value := range object {
		fields[strings.ToLower(name)] = value
	}
	r = record{level: levelOf(fields), line: json.RawMessage(line)}
	for _, name := range []string{"message", "msg", "event", "text", "@m", "@mt", "short_message"} {
		if text, isText := fields[name].(string); isText && text != "" {
			r.text = text
			break
		}
	}
	return r, true
}

// levelOf returns the level of a record, by default info. The names of the fields are in lower case.
func levelOf(fields map[string]any) slog.Level {
	for _, name := range []string{"level", "severity", "levelname", "log.level", "loglevel", "lvl", "@l"} {
		switch level := fields[name].(type) {
		case string:
			if l, ok := levels[strings.ToLower(level)]; ok {
				return l
			}
		case float64:
			return numbered(level)
		}
	}
	if log, ok := fields["log"].(map[string]any); ok { // Elastic Common Schema
		return levelOf(log)
	}
	return slog.LevelInfo
}

// numbered returns a level by its number: from 10 in pino and bunyan, from 7 down in syslog and GELF.
func numbered(n float64) slog.Level {
	switch {
	case n >= 50 || n <= 3:
		return slog.LevelError
	case n >= 40 || n == 4:
		return slog.LevelWarn
	case n >= 30 || n <= 6:
		return slog.LevelInfo
	}
	return slog.LevelDebug
}

// levels contains the names of levels in common logging libraries and in syslog.
var levels = map[string]slog.Level{
	"trace": slog.LevelDebug, "verbose": slog.LevelDebug, "debug": slog.LevelDebug, "silly": slog.LevelDebug, "fine": slog.LevelDebug,
	"info": slog.LevelInfo, "information": slog.LevelInfo, "informational": slog.LevelInfo, "notice": slog.LevelInfo, "default": slog.LevelInfo,
	"warn": slog.LevelWarn, "warning": slog.LevelWarn,
	"error": slog.LevelError, "err": slog.LevelError, "severe": slog.LevelError, "critical": slog.LevelError, "crit": slog.LevelError,
	"fatal": slog.LevelError, "panic": slog.LevelError, "dpanic": slog.LevelError, "alert": slog.LevelError, "emergency": slog.LevelError, "emerg": slog.LevelError,
}
