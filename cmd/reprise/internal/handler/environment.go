package handler

import (
	"context"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/reprisemq/reprise"
)

// Limits of the environment. Linux permits 128 KiB for one variable and, in most installations, 2 MiB in total,
// including the arguments.
const (
	maxVariable    = 64 << 10
	maxEnvironment = 256 << 10
)

const ours = "REPRISE_"

// inherited returns the environment of this process, without variables named REPRISE_….
func inherited() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, ours) })
}

// environment returns the environment of the program for one attempt.
func (e *Exec) environment(ctx context.Context, m *reprise.Delivery, log *slog.Logger) []string {
	env := inherited()
	for name, value := range traceHeaders(ctx, m) {
		env = append(env, strings.ToUpper(name)+"="+value)
	}
	env = append(env, e.cfg.Env...)

	b := budget{one: maxVariable, all: maxEnvironment}
	taken := map[string]bool{}
	for _, f := range fields(m) {
		name := variable(f)
		switch {
		case taken[name], strings.ContainsRune(f.value, 0):
			b.omit(name)
		case b.take(name, f.value):
			taken[name] = true
			env = append(env, name+"="+f.value)
		}
	}
	if len(b.omitted) > 0 {
		names := strings.Join(b.omitted, " ")
		env = append(env, ours+"OMITTED="+names)
		if repeated, due := e.loggedOmitted.Due(); due {
			log.Warn("parts of the message do not fit into the environment of the program", "omitted", names, "repeated", repeated)
		}
	}
	return env
}

// variable returns the name of the environment variable for a field.
func variable(f field) string {
	prefix := ours
	if f.header {
		prefix += "HEADER_"
	}
	return prefix + strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z':
			return r - 'a' + 'A'
		case 'A' <= r && r <= 'Z', '0' <= r && r <= '9':
			return r
		}
		return '_'
	}, f.name)
}
