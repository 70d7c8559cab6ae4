package archive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/ledger"
	"github.com/reprisemq/reprise/internal/archive/replay"
	"github.com/reprisemq/reprise/internal/preset"
	"github.com/reprisemq/reprise/topology"
)

// These constants name the work queues of a system and their routes.
const (
	Orders = "orders" // protected by idempotent.Middleware
	Mails  = "mails"  // protected by idempotent.Tx
	Covers = preset.CoverArtIndexQueue

	shop       = "shop" // exchange of orders
	orderKey   = "order.new"
	coverKey   = "index"
	coverRetry = 10 * time.Second
)

// These constants name the processes of a system.
const (
	publisher = "archive-publisher"

	Up      = "up"      // `reprise up`: workers, archive and console
	Console = "console" // `reprise console`
)

// queues maps the work queues to their failed queues.
var queues = map[string]string{Orders: "orders.failed", Mails: "mails.failed", Covers: preset.CoverArtFailedQueue}

// classes contains the error messages of the downstream system by class. The numbers in the messages differ.
var classes = map[string]string{
	"declined": "card %d declined after %dms",
	"stock":    "no stock for order %d, asked %d times",
	"down":     "POST /orders/%d: 503 after %dms",
	"poison":   "amount of %d cannot be 9, at byte %d", // until an operator edits the message
}

// classOf returns the class of an error message.
func classOf(text string) string {
	for class, format := range classes {
		before, rest, _ := strings.Cut(format, "%d")
		middle, _, _ := strings.Cut(rest, "%d")
		if strings.HasPrefix(text, before) && strings.Contains(text, middle) {
			return class
		}
	}
	return "other: " + text
}

// Order is the body of a message.
type Order struct {
	N      int    `json:"n"`
	Class  string `json:"class"`
	Amount int    `json:"amount"` // 9: the message always fails
	Note   string `json:"note"`
}

// Sent is a published message.
type Sent struct {
	Order
	Queue     string
	MessageID string // "": none
	Body      []byte
}

// Environment connects a System to the simulation.
type Environment struct {
	URL    string
	Dial   func(process string) Dial
	Broker ledger.Broker
	Logger *slog.Logger

	// Heartbeat is the heartbeat interval of all connections. Default: the default of the library.
	Heartbeat time.Duration

	// Broken is called for each broken promise. Count is called for each event.
	Broken func(promise, detail string)
	Count  func(what string)

	// Disturbances returns the number of faults outside the system, in a period, that may have made a replay repeat its
	// latest messages.
	Disturbances func(from, to time.Time) int

	// Forgot reports whether the broker may have lost the acknowledgement of a message and redelivered it. The archive
	// stored the message twice, at the times stored and again.
	Forgot func(stored, again time.Time) bool

	// Bindings returns the bindings of the broker for replays; nil: unknown.
	Bindings func(context.Context) (topology.Topology, error)
}

// System is an archive with its workers, processes and operators. Messages fail in the workers, the processes archive
// and replay them, and the operators decide what to do with them.
type System struct {
	Environment
	Options
	began time.Time
	dir   string

	acting chan struct{} // held during an action of an operator, so that actions do not overlap

	mu         sync.Mutex // not held during blocking calls
	file       string     // path of the archive
	done       string     // path of the store of duplicates
	away       string     // path of the moved file.
	backup     string
	losing     bool      // the file is lost, and the processes have not restarted.
	pending    int       // number of scheduled calls.
	ending     bool      // all faults have ended permanently
	breaks     int       // number of current database faults.
	repairedAt time.Time // end of the latest database fault
	faulty     int       // identifies the latest database fault
	epoch      int       // number of the archive file; message IDs start again in each file
	files      int
	main       *Process // `reprise up`; nil while it is down
	second     *Process // `reprise console` on the same file; nil: none
	all        []*Process
	sent       []*Sent
	down       map[string]bool // by class
	effects    map[int]int     // by Order.N
	doubled    map[int]int     // number of effects that may have been repeated
	handling   map[*Process]map[int]int
	keys       map[int]map[string]bool // IDs that the handlers have received
	written    map[resend]int
	parked     map[int]int // publishes to failed queues, by Order.N
	gone       map[int]string
	reasons    map[string]discardRecord
	replays    map[epochReplay]*startedReplay
	failures   int
	events     []string
	counts     map[string]int
	inspector  *inspector

	stopForeign func()
	rows        map[resend]Row
	client      *reprise.Client
	turn        int // index of the next console
	acts        int
}

// Options describes the parts of a system.
type Options struct {
	Second   bool // a second process uses the same file
	Foreign  bool // a program without Reprise consumes the queue of the cover art design
	Routed   bool // the management API provides the bindings
	Ledger   bool
	Attempts int // maximum number of attempts of a policy

	Retention time.Duration // 0: messages do not expire

	Lease time.Duration // lease of queues and replays
	Poll  time.Duration // poll interval of replays
}

type resend struct {
	epoch  int
	replay failed.ReplayID
	id     failed.ID
}

type epochReplay struct {
	epoch  int
	replay failed.ReplayID
}

// note adds a line to the events.
func (s *System) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, fmt.Sprintf("%v ", time.Since(s.began))+fmt.Sprintf(format, args...))
}

// fail reports a broken promise.
func (s *System) fail(promise, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failLocked(promise, format, args...)
}

// failLocked is like fail. The caller holds the lock.
func (s *System) failLocked(promise, format string, args ...any) {
	detail := fmt.Sprintf(format, args...)
	if s.failures++; s.failures == 1 {
		detail += "\n\tbefore:\n\t" + strings.Join(s.events, "\n\t")
	}
	s.Broken(promise, detail)
}

func (s *System) strike(what string) {
	s.mu.Lock()
	s.counts[what]++
	s.mu.Unlock()
	s.Count("archive: " + what)
}

// NewSystem returns a system with its files in a directory. Begin starts it.
func NewSystem(e Environment, o Options, dir string) *System {
	if e.Logger == nil {
		e.Logger = slog.New(slog.DiscardHandler)
	}
	s := &System{
		Environment: e, Options: o, began: time.Now(), dir: dir, acting: make(chan struct{}, 1),
		down: map[string]bool{}, effects: map[int]int{}, doubled: map[int]int{}, handling: map[*Process]map[int]int{},
		keys: map[int]map[string]bool{}, rows: map[resend]Row{}, written: map[resend]int{}, parked: map[int]int{}, gone: map[int]string{},
		reasons: map[string]discardRecord{}, replays: map[epochReplay]*startedReplay{}, counts: map[string]int{},
	}
	s.file, s.done = s.newFile(), s.newFile()
	return s
}

// newFile returns the path of a new file.
func (s *System) newFile() string {
	s.files++
	dir := filepath.Join(s.dir, fmt.Sprint(s.files))
	_ = os.MkdirAll(dir, 0o700)
	return filepath.Join(dir, "failed.db")
}

// Begin declares the queues and starts the processes.
func (s *System) Begin(ctx context.Context) error {
	c, err := reprise.Dial(ctx, s.URL, &reprise.Config{Name: publisher, Dial: s.Dial(publisher), Heartbeat: s.Heartbeat})
	if err != nil {
		return err
	}
	s.client = c
	for _, w := range s.workers() {
		w.Strategy = w.Strategy.WithDefaults()
		// On a slow disk, a topology can take longer than the timeout of Declare. Each attempt continues where the
		// previous one ended.
		for range 5 {
			if err = c.Declare(ctx, w.Strategy.Route.Topology(w.Queue).Merge(w.Topology)); err == nil {
				break
			}
		}
		if err != nil {
			return err
		}
	}
	s.start()
	if s.Second {
		s.startSecond()
	}
	if s.Foreign {
		foreign, stop := context.WithCancel(context.WithoutCancel(ctx))
		var running sync.WaitGroup
		running.Go(func() { s.foreign(foreign) })
		s.stopForeign = func() {
			stop()
			running.Wait()
		}
	}
	return nil
}

// start starts the main process.
func (s *System) start() {
	p := Start(Config{
		Name: Up, URL: s.URL, Dial: s.Dial(Up), Heartbeat: s.Heartbeat, Queues: failedQueues(), Origin: origin, Routing: s.routing(),
		Broker: s.ledgerOf(), Accounts: accounts(), Work: s.work, Published: s.published, Logger: s.Logger, Retention: s.Retention, Lease: s.Lease, Poll: s.Poll,
	}, s.path())
	s.mu.Lock()
	s.main = p
	s.all = append(s.all, p)
	s.mu.Unlock()
}

func (s *System) startSecond() {
	p := Start(Config{
		Name: Console, URL: s.URL, Dial: s.Dial(Console), Heartbeat: s.Heartbeat, Queues: failedQueues(), Origin: origin, Routing: s.routing(),
		Published: s.published, Logger: s.Logger, Retention: s.Retention, Lease: s.Lease, Poll: s.Poll,
	}, s.path())
	s.mu.Lock()
	s.second = p
	s.all = append(s.all, p)
	s.mu.Unlock()
}

func (s *System) path() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.file
}

func (s *System) ledgerOf() ledger.Broker {
	if !s.Ledger {
		return nil
	}
	return s.Environment.Broker
}

func (s *System) routing() replay.Routing {
	r := replay.Routing{Workers: s.workers()}
	if s.Routed {
		r.Bindings = s.Bindings
	}
	return r
}

func failedQueues() []string {
	return []string{"orders.failed", "mails.failed", preset.CoverArtFailedQueue}
}

// origin returns the work queue of a message in a failed queue, as `reprise up` does.
func origin(m *reprise.Delivery) string {
	switch m.Queue {
	case "orders.failed":
		return Orders
	case "mails.failed":
		return Mails
	}
	return preset.CoverArtExchange + "." + m.RoutingKey
}

func accounts() []ledger.Account {
	return []ledger.Account{{Work: []string{Orders}}, {Work: []string{Mails}}}
}

// workers returns the configurations of the workers of the main process.
func (s *System) workers() []reprise.WorkerConfig {
	policy := reprise.Policy{MaxAttempts: max(1, s.Attempts), Backoff: backoff.Fixed(2 * time.Second)}
	handler := func(queue string) reprise.Handler {
		return reprise.HandlerFunc(func(ctx context.Context, m *reprise.Delivery) error { return s.handle(queue, m) })
	}
	return []reprise.WorkerConfig{
		{
			Queue: Orders, Policy: policy, Handler: handler(Orders), Concurrency: 4,
			Topology: topology.Topology{
				Exchanges: []topology.Exchange{{Name: shop, Kind: topology.Topic}},
				Bindings:  []topology.Binding{{Exchange: shop, Queue: Orders, RoutingKey: "order.*"}},
			},
		},
		{Queue: Mails, Policy: policy, Handler: handler(Mails), Concurrency: 2},
		{Queue: Covers, Handler: handler(Covers), Strategy: s.coverArt().Strategy()},
	}
}

func (s *System) coverArt() preset.CoverArt {
	return preset.CoverArt{RetryDelay: coverRetry, Retries: 1}
}

// work runs the workers of a process.
func (s *System) work(ctx context.Context, p *Process, observer reprise.Observer) error {
	cfg := p.Client("workers")
	cfg.Observer = observer
	c, err := reprise.Dial(ctx, s.URL, cfg)
	if err != nil {
		return err
	}
	defer p.HangUp(c)
	workers, err := s.protectedWorkers(ctx, p)
	if err != nil {
		return err
	}
	var running sync.WaitGroup
	errs := make(chan error, len(workers))
	for _, cfg := range workers {
		if s.Foreign && cfg.Queue == Covers {
			continue
		}
		w, err := reprise.NewWorker(c, cfg)
		if err != nil {
			return err
		}
		running.Go(func() { errs <- w.Run(ctx) })
	}
	running.Wait()
	close(errs)
	for err := range errs {
		if err != nil && !p.Killed() {
			return err
		}
	}
	return nil
}

var errUnknown = errors.New("the body is not an order")

// handle is the handler of all workers. It records an effect or returns an error.
func (s *System) handle(queue string, m *reprise.Delivery) error {
	var o Order
	if err := json.Unmarshal(m.Body, &o); err != nil {
		return reprise.Park(errUnknown)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recordKey(m, o)
	if err := s.downstreamError(o); err != nil {
		return err
	}
	s.effects[o.N]++
	return nil
}

// recordKey records the message ID that a handler has received for an order. The caller holds the lock.
func (s *System) recordKey(m *reprise.Delivery, o Order) {
	if s.keys[o.N] == nil {
		s.keys[o.N] = map[string]bool{}
	}
	if !m.MessageIDAssigned {
		s.keys[o.N][m.MessageID] = true
	}
}

// downstreamError returns the result of the downstream system for an order. The caller holds the lock.
func (s *System) downstreamError(o Order) error {
	class := o.Class
	if o.Amount == 9 {
		class = "poison"
	} else if !s.down[class] {
		return nil
	}
	return fmt.Errorf(classes[class], o.N, 10+rand.IntN(90))
}

// published is called for each message that a process writes to its connection.
func (s *System) published(p *Process, m Publish) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if mark := m.header(topology.HeaderReplay); mark != "" {
		var r resend
		// The retry copy of a replayed message has the same header, but a different destination.
		if _, err := fmt.Sscanf(mark, "%d/%d", &r.replay, &r.id); err == nil && isWork(m) {
			r.epoch = s.epoch
			s.written[r]++
		}
	}
	if failedQueue(m) {
		var o Order
		if json.Unmarshal(m.Body, &o) == nil {
			s.parked[o.N]++
		}
	}
}

// isWork reports whether a message was published to a work queue and not to a wait queue or failed queue.
func isWork(m Publish) bool {
	return m.Exchange == shop || m.Exchange == preset.CoverArtExchange || m.Exchange == "" && queues[m.Key] != ""
}

func failedQueue(m Publish) bool {
	return m.Exchange == "" && (m.Key == "orders.failed" || m.Key == "mails.failed") || m.Exchange == preset.CoverArtFailedExchange
}
