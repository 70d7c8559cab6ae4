package upcmd

import (
	"errors"
	"fmt"
	"log/slog"

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
	b, err := localbroker.Start(broker.Config{
		Logger: slog.New(quietBroker{Handler: log.Handler()}), Store: localbroker.Store(cfg.Data),
		// The workers and local publishers use this user, regardless of the users in the data directory.
		TemporaryUsers: map[string]string{dial.Guest: dial.Guest},
	})
	if err != nil {
		if cfg.Data != "" {
			err = fmt.Errorf("%w (set data: to another directory, or to memory)", err)
		}
		return nil, err
	}
	e := &embeddedBroker{Broker: b, inMemory: cfg.Data == "", stopControl: func() {}}
	l, err := serve.Listen(cfg.Listen)
	if err != nil {
		return nil, errors.Join(err, e.end(stop, log))
	}
	e.url, e.served = dial.URL("amqp", l.Addr(), dial.Guest, dial.Guest), make(chan error, 1)
	go func() { e.served <- b.Serve(l) }()
	log.Info("embedded broker listening", "url", e.url)
	if e.inMemory {
		log.Info("messages are in memory (data: memory), and are lost when the process exits")
		return e, nil
	}
	localbroker.LogData(b, cfg.Data, log)
	e.stopControl = localbroker.ServeControl(b, cfg.Data, stop.Again, log)
	return e, nil
}

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
