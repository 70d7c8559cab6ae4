package cli

import (
	"log/slog"

	"github.com/reprisemq/reprise/broker"
)

// embeddedBroker is the broker of a configuration that names none.
type embeddedBroker struct {
	*broker.Broker
	url    string
	served chan error
}

func startEmbedded(addr string, log *slog.Logger) (*embeddedBroker, error) {
	b, err := broker.New(broker.Config{Logger: slog.New(quietBroker{Handler: log.Handler()})})
	if err != nil {
		return nil, err
	}
	l, err := listen(addr)
	if err != nil {
		return nil, err
	}
	e := &embeddedBroker{Broker: b, url: brokerURL(l.Addr(), guest, guest), served: make(chan error, 1)}
	go func() { e.served <- b.Serve(l) }()
	log.Info("embedded broker", "url", e.url)
	log.Warn("messages are in memory: they do not survive this process (name a RabbitMQ under broker: to keep them)")
	return e, nil
}

// end shuts the broker down and says what is lost with it.
func (e *embeddedBroker) end(stop *signals, log *slog.Logger) error {
	for _, q := range e.Queues() {
		if n := q.Ready + q.Unacked; n > 0 {
			log.Warn("messages in memory are lost", "queue", q.Name, "messages", n)
		}
	}
	return shutdown(e.Broker, e.served, stop)
}
