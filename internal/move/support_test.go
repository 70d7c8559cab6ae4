package move_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/broker/disk"
	"github.com/reprisemq/reprise/internal/mgmtapi"
	"github.com/reprisemq/reprise/internal/move"
	"github.com/reprisemq/reprise/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(testkit.Waiting{M: m}) }

// side is a broker with a virtual host of its own.
type side struct {
	testkit.Target
	url     string
	api     mgmtapi.API
	restart func() // of a broker with a data directory
}

// pair is a source and a target.
type pair struct{ from, to *side }

var pairs = [][2]string{{"directory", "embedded"}, {"embedded", "rabbitmq-4.3"}, {"rabbitmq-3.10", "rabbitmq-4.3"}, {"rabbitmq-4.3", "embedded"}}

// each calls test for each pair of brokers.
func each(t *testing.T, test func(t *testing.T, p pair)) {
	t.Helper()
	for _, names := range pairs {
		t.Run(names[0]+" to "+names[1], func(t *testing.T) {
			t.Parallel()
			test(t, pair{newSide(t, names[0]), newSide(t, names[1])})
		})
	}
}

func newSide(t *testing.T, name string) *side {
	t.Helper()
	s := &side{restart: func() {}}
	var api string
	switch name {
	case "embedded":
		s.Target, api = testkit.EmbeddedManaged(t, broker.Config{})
	case "directory":
		api = s.directory(t)
	default:
		for _, b := range testkit.RabbitMQs() {
			if b.Name == name {
				b.Require(t)
				s.Target, api = b, b.ManagementURL(t)
			}
		}
	}
	s.api = mgmtapi.API{URL: api, User: "guest", Password: "guest", Client: testkit.HTTPClient(t), VHost: "/"}
	s.url = s.URL
	if name == "directory" {
		return s
	}
	vhost := testkit.Name(t, "move")
	s.api.VHost = "move-" + vhost[len(vhost)-8:]
	within := "vhosts" + s.api.Within()
	if err := s.api.Put(t.Context(), within, map[string]any{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.api.Delete(context.Background(), within); err != nil {
			t.Error(err)
		}
	})
	s.permit(t, "guest", ".*", ".*", ".*")
	s.url = strings.TrimSuffix(s.URL, "/") + "/" + s.api.VHost
	return s
}

func (s *side) permit(t *testing.T, user, configure, write, read string) {
	t.Helper()
	all := map[string]string{"configure": configure, "write": write, "read": read}
	if err := s.api.Put(t.Context(), "permissions"+s.api.Within()+"/"+user, all); err != nil {
		t.Fatal(err)
	}
}

// directory runs a broker with a data directory, which restart replaces by another one with the same directory and addresses.
func (s *side) directory(t *testing.T) (api string) {
	t.Helper()
	dir := t.TempDir()
	var stop func()
	var handler http.Handler
	addr := "127.0.0.1:0"
	start := func() {
		b, err := broker.New(broker.Config{Store: disk.Dir(dir)})
		if err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		addr = l.Addr().String()
		served := make(chan error, 1)
		go func() { served <- b.Serve(l) }()
		handler = b.Management()
		stop = func() {
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
			defer cancel()
			if err := b.Shutdown(ctx); err != nil {
				t.Error(err)
			}
			<-served
		}
	}
	start()
	t.Cleanup(func() { stop() })
	s.restart = func() { stop(); start() }
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handler.ServeHTTP(w, r) }))
	t.Cleanup(web.Close)
	s.URL = "amqp://guest:guest@" + addr
	return web.URL
}

// open opens a channel on a new connection.
func (s *side) open(t *testing.T) (ch *amqp.Channel, hangUp func()) {
	t.Helper()
	conn, err := amqp.Dial(s.url)
	if err != nil {
		t.Fatal(err)
	}
	hangUp = func() { conn.Close() }
	t.Cleanup(hangUp)
	if ch, err = conn.Channel(); err != nil {
		t.Fatal(err)
	}
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	return ch, hangUp
}

func (s *side) queue(t *testing.T, name string, args amqp.Table) {
	t.Helper()
	ch, hangUp := s.open(t)
	defer hangUp()
	if _, err := ch.QueueDeclare(name, true, false, false, false, args); err != nil {
		t.Fatal(err)
	}
}

// bound declares an exchange and binds a queue to it.
func (s *side) bound(t *testing.T, exchange, kind, queue, key string) {
	t.Helper()
	ch, hangUp := s.open(t)
	defer hangUp()
	if err := ch.ExchangeDeclare(exchange, kind, true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	if err := ch.QueueBind(queue, key, exchange, false, nil); err != nil {
		t.Fatal(err)
	}
}

// publish publishes messages and waits for the confirms.
func (s *side) publish(t *testing.T, exchange, key string, all ...amqp.Publishing) {
	t.Helper()
	ch, hangUp := s.open(t)
	defer hangUp()
	for _, m := range all {
		if m.DeliveryMode == 0 {
			m.DeliveryMode = amqp.Persistent
		}
		c, err := ch.PublishWithDeferredConfirm(exchange, key, true, false, m)
		if err != nil || !c.Wait() {
			t.Fatal("not confirmed: ", err)
		}
	}
}

// take removes all messages of a queue.
func (s *side) take(t *testing.T, queue string) (all []amqp.Delivery) {
	t.Helper()
	ch, hangUp := s.open(t)
	defer hangUp()
	for {
		d, found, err := ch.Get(queue, true)
		if err != nil {
			t.Fatal(err)
		}
		if !found {
			return all
		}
		all = append(all, d)
	}
}

func texts(prefix string, n int) (all []amqp.Publishing) {
	for i := range n {
		all = append(all, amqp.Publishing{Body: fmt.Appendf(nil, "%s-%d", prefix, i)})
	}
	return all
}

func bodies(deliveries []amqp.Delivery) (all []string) {
	for _, d := range deliveries {
		all = append(all, string(d.Body))
	}
	return all
}

// client is the name of the connections of a move.
const client = "move of a test"

// begin plans a move through the URLs of brokers or of proxies.
func (p pair) begin(ctx context.Context, t *testing.T, from, to string, cfg move.Config) (*move.Move, func(), error) {
	t.Helper()
	var clients []*reprise.Client
	closeAll := func() {
		for _, c := range clients {
			_ = c.Close(context.Background())
		}
	}
	for i, url := range []string{from, to} {
		c, err := reprise.Dial(ctx, url, &reprise.Config{Name: client})
		if err != nil {
			closeAll()
			return nil, nil, err
		}
		clients = append(clients, c)
		*[]*move.Broker{&cfg.From, &cfg.To}[i] = move.Broker{Client: c, Name: client, API: []*side{p.from, p.to}[i].api}
	}
	m, err := move.Begin(ctx, cfg)
	if err != nil {
		closeAll()
		return nil, nil, err
	}
	return m, closeAll, nil
}

// move moves queues.
func (p pair) move(t *testing.T, cfg move.Config) (*move.Plan, move.Result, error) {
	t.Helper()
	m, end, err := p.begin(t.Context(), t, p.from.url, p.to.url, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	result, err := m.Run(t.Context())
	return m.Plan, result, err
}
