package upcmd

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync"

	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/cmd/reprise/internal/config"
	"github.com/reprisemq/reprise/cmd/reprise/internal/dial"
	"github.com/reprisemq/reprise/cmd/reprise/internal/localbroker"
	"github.com/reprisemq/reprise/cmd/reprise/internal/serve"
	"github.com/reprisemq/reprise/internal/protocol"
)

// embeddedBroker is the broker of a configuration without a broker URL.
type embeddedBroker struct {
	*broker.Broker
	url         string
	inMemory    bool
	served      chan error // nil if the broker does not listen
	stopControl func()
}

func startEmbedded(stop *serve.Signals, cfg *config.Config, log *slog.Logger) (*embeddedBroker, error) {
	secure, err := listenTLS(cfg.Listen)
	if err != nil {
		return nil, err
	}
	// The workers use guest, regardless of the users in the data directory. Without other users, publishers on this machine
	// do, too.
	users := map[string]string{dial.Guest: embeddedPassword(cfg.Listen)}
	for _, u := range cfg.Listen.Users {
		users[u.Name] = u.Value
	}
	b, err := localbroker.Start(cfg.Data, broker.Config{Logger: slog.New(quietBroker{Handler: log.Handler()}), TemporaryUsers: users})
	if err != nil {
		if cfg.Data != "" {
			err = fmt.Errorf("%w (set data: to another directory, or to memory)", err)
		}
		return nil, err
	}
	e := &embeddedBroker{Broker: b, inMemory: cfg.Data == "", stopControl: func() {}}
	l, err := serve.Listen(cfg.Listen.Addr)
	if err != nil {
		return nil, errors.Join(err, e.end(stop, log))
	}
	e.url = (&url.URL{Scheme: "amqp", User: url.UserPassword(dial.Guest, users[dial.Guest]), Host: l.Addr().String()}).String()
	shown := dial.URL("amqp", l.Addr(), dial.Guest, dial.Guest)
	if len(cfg.Listen.Users) > 0 {
		shown = dial.URL("amqp", l.Addr(), "", "")
	}
	if secure != nil {
		l, shown = tls.NewListener(l, secure), strings.Replace(shown, "amqp:", "amqps:", 1)
	}
	e.served = make(chan error, 1)
	go func() { e.served <- b.Serve(l) }()
	log.Info("embedded broker listening", "url", shown)
	if e.inMemory {
		log.Info("messages are in memory (data: memory), and are lost when the process exits")
		return e, nil
	}
	localbroker.LogData(b, cfg.Data, log)
	e.stopControl = localbroker.ServeControl(b, cfg.Data, stop.Again, log)
	return e, nil
}

// listenTLS returns the TLS configuration of the listener, or nil.
func listenTLS(l config.Listen) (*tls.Config, error) {
	return localbroker.TLS(l.CertFile, l.KeyFile, l.CACertFile, false)
}

// embeddedPassword returns the password of guest. If there are other users, it is random: guest is then only for this
// process, and the well-known password does not work from this machine either, on which a proxy might run.
func embeddedPassword(l config.Listen) string {
	if len(l.Users) == 0 {
		return dial.Guest
	}
	return processPassword()
}

// processPassword is a password for this process.
var processPassword = sync.OnceValue(rand.Text)

// end shuts the broker down. For an in-memory broker, it logs the number of messages that each queue loses.
func (e *embeddedBroker) end(stop *serve.Signals, log *slog.Logger) error {
	e.stopControl()
	for _, q := range e.Queues() {
		if n := q.Ready + q.Unacked; n > 0 && e.inMemory && !protocol.IsControlQueue(q.Name) {
			log.Warn("messages in memory are lost", "queue", q.Name, "messages", n)
		}
	}
	return localbroker.Shutdown(e.Broker, e.served, stop)
}

// quietBroker filters the log of a broker that runs in the same process as its workers. It lowers records below level
// warn to level debug. It also lowers warnings about connections within this process, because the workers log the
// events of their own connections in more detail.
type quietBroker struct {
	slog.Handler
	inside bool // the peer is in this process
}

// Enabled implements [slog.Handler].
func (q quietBroker) Enabled(ctx context.Context, l slog.Level) bool {
	return q.Handler.Enabled(ctx, q.demote(l))
}

func (q quietBroker) demote(l slog.Level) slog.Level {
	if l < slog.LevelWarn || (q.inside && l < slog.LevelError) {
		return min(l, slog.LevelDebug)
	}
	return l
}

// Handle implements [slog.Handler].
func (q quietBroker) Handle(ctx context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		q.inside = q.inside || isInside(a)
		return !q.inside
	})
	if r.Level = q.demote(r.Level); !q.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return q.Handler.Handle(ctx, r)
}

// WithAttrs implements [slog.Handler].
func (q quietBroker) WithAttrs(attrs []slog.Attr) slog.Handler {
	for _, a := range attrs {
		q.inside = q.inside || isInside(a)
	}
	q.Handler = q.Handler.WithAttrs(attrs)
	return q
}

// WithGroup implements [slog.Handler].
func (q quietBroker) WithGroup(name string) slog.Handler {
	q.Handler = q.Handler.WithGroup(name)
	return q
}

// isInside reports whether an attribute identifies a connection without a socket.
func isInside(a slog.Attr) bool {
	return a.Key == "peer" && strings.HasPrefix(a.Value.String(), "memory:")
}
