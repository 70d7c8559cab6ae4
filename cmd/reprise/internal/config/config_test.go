package config

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/archive"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/idempotent"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/preset"
	"github.com/reprisemq/reprise/outbox"
	"github.com/reprisemq/reprise/topology"
)

// environment returns the values of the environment variables in the test files.
func environment(name string) (string, bool) {
	v, ok := map[string]string{
		"RABBITMQ_PASSWORD": "secret", "BILLING_TOKEN": "t0ken", "OTEL_TOKEN": "0tel", "WEBHOOK_TOKEN": "T000", "WEBHOOK_SECRET": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "EMPTY": "", "BAD_URL": "amqp://u:hush%@h/",
	}[name]
	return v, ok
}

// idle is a handler that completes the configuration of a worker.
var idle = reprise.HandlerFunc(func(context.Context, *reprise.Delivery) error { return nil })

func mustParse(t *testing.T, text string) *Config {
	t.Helper()
	c, err := Parse("dir/test.yaml", []byte(text), environment)
	if err != nil {
		t.Fatalf("unexpected problems:\n%v", err)
	}
	return c
}

var ignore = cmp.Options{cmpopts.IgnoreUnexported(Config{}), cmpopts.IgnoreFields(Worker{}, "Source"), cmpopts.EquateEmpty()}

// noFuncs ignores functions, which cannot be compared.
var noFuncs = cmp.Options{
	cmpopts.IgnoreFields(backoff.Jitter{}, "Rand"), cmpopts.IgnoreFields(backoff.Decorrelated{}, "Rand"),
	cmpopts.IgnoreFields(reprise.Rule{}, "Match"), cmpopts.IgnoreFields(topology.GrowingTTL{}, "Rand"),
	// Routes of presets may have unexported types.
	cmp.Exporter(func(t reflect.Type) bool { return t.PkgPath() == reflect.TypeFor[preset.Staking]().PkgPath() }),
	cmpopts.IgnoreFields(reprise.Debounce{}, "Key"), cmpopts.IgnoreFields(idempotent.Config{}, "Key"),
	cmpopts.IgnoreFields(reprise.WorkerConfig{}, "Middleware", "Limiter", "Breaker"), // see TestLimits
}

func TestExample(t *testing.T) {
	path := filepath.Join("..", "..", "..", "..", "docs", "reprise.example.yaml")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Parse("/etc/reprise.yaml", data, environment)
	if err != nil {
		t.Fatal(err)
	}
	yes, no, tenth := true, false, 0.1
	shop := topology.Exchange{Name: "shop", Kind: topology.Topic}
	art := preset.CoverArt{RetryDelay: 4 * time.Hour, Retries: 4}.Strategy()
	fourHourly := reprise.Policy{Backoff: backoff.Fixed(4 * time.Hour)}
	stakingWorker := func(queue string) reprise.WorkerConfig {
		return reprise.WorkerConfig{
			Queue:    queue,
			Strategy: preset.Staking{RetryDelay: 5 * time.Second, DelayTTL: time.Minute, QueueType: "quorum"}.Strategy(),
			Policy:   reprise.Policy{Backoff: backoff.Fixed(5 * time.Second)},
		}
	}
	active := stakingWorker("active_staking_queue")
	active.Policy.MaxAttempts, active.Policy.GiveUpAfter = 20, 24*time.Hour
	active.Policy.Rules = []reprise.Rule{{MaxAttempts: 100}}
	byCustomer := reprise.Keyed{Partitions: 8, Header: "customer", Rate: 5, Burst: 10}
	note := &Exec{Command: []string{"echo", "staking"}, Dir: "/etc"}
	patient := reprise.Policy{Backoff: backoff.Fixed(5 * time.Minute)}
	hourly := reprise.Policy{Backoff: patient.Backoff, Rules: []reprise.Rule{{GiveUpAfter: time.Hour}}}
	want := &Config{
		Dir:     "/etc",
		Broker:  "amqp://reprise:secret@rabbit.example.com:5672/",
		Metrics: "127.0.0.1:9090",
		Telemetry: &Telemetry{
			Endpoint: "https://otel.example.com:4318", Protocol: ProtocolHTTP, Headers: []Pair{{"Authorization", "Bearer 0tel"}},
			CACertFile: "/etc/ca.pem", Traces: &yes, Metrics: &no, SampleRatio: &tenth, Service: "shop-workers",
			Attributes: []Pair{{"deployment.environment.name", "production"}}, Secrets: []string{"0tel"},
		},
		Archive: &Archive{
			Config: store.Config{
				Retention: 90 * 24 * time.Hour,
				Rules:     []store.RetentionRule{{Queue: "orders", Retention: 30 * 24 * time.Hour}},
				Redact:    []failed.Rule{{Header: "authorization"}, {Path: "card.number"}},
				Columns:   []failed.Rule{{Path: "order_id"}, {Header: "x-tenant"}},
				Groups:    []store.GroupRule{{Error: regexp.MustCompile("card (expired|blocked)"), Name: "card $1"}},
			},
			Store:  "sqlite:/etc/failed.db",
			Queues: []string{"legacy.failed"},
		},
		Console: &Console{
			Listen: "127.0.0.1:15600", Tokens: "/etc/tokens", Secure: true, Prefix: "/reprise", TraceURL: "https://traces.example.com/trace/{trace_id}",
			Management: "http://reprise:secret@rabbit.example.com:15672", URL: "https://ops.example.com/reprise",
		},
		Notify: &Notify{
			Notify: archive.Notify{
				Webhooks: []archive.Webhook{
					{URL: "https://hooks.example.com/T000", Format: "slack", Events: []string{"new-group", "group-growth", "replay-stopped"}},
					{URL: "https://ops.example.com/hooks/reprise", Format: "json", Secret: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"},
				},
				Gather: 30 * time.Second, Cooldown: time.Hour, Growth: 100,
			},
			CACertFiles: []string{"", "/etc/ca.pem"},
		},
		Outbox: &Outbox{Store: "sqlite:/etc/outbox.db", App: "shop", Prefix: "shop_outbox_", Tables: []outbox.Table{
			{
				Name: "events", IDColumn: "event_id", BodyColumn: "payload", ExchangeColumn: "exchange", RoutingKeyColumn: "topic", KeyColumn: "customer",
				MessageIDColumn: "event_uuid", Message: reprise.Message{Exchange: "shop", RoutingKey: "event", ContentType: "application/json"},
			},
			{Name: "audit", Message: reprise.Message{RoutingKey: "reports"}},
		}},
		Cron: []Cron{
			{Entry: outbox.Entry{
				Name: "nightly", Spec: "CRON_TZ=Europe/Berlin 30 2 * * mon-fri", Key: "reports", CatchUp: 2 * time.Hour,
				Message: reprise.Message{
					RoutingKey: "reports", Body: []byte(`{"kind": "nightly"}`), Headers: map[string]any{"x-tenant": "acme"}, ContentType: "application/json", Type: "report",
				},
			}},
			{Entry: outbox.Entry{Name: "heartbeat", Spec: "*/5 * * * *", Message: reprise.Message{Exchange: "shop", RoutingKey: "heartbeat"}}},
		},
		Schedule: &outbox.IntakeConfig{Exchange: "reprise.schedule", Destinations: []string{"", "shop"}},
		Workers: []Worker{
			{
				WorkerConfig: reprise.WorkerConfig{Queue: "orders"},
				HTTP:         &HTTP{URL: "http://127.0.0.1:8080/orders"},
			},
			{
				WorkerConfig: reprise.WorkerConfig{
					Queue: "invoices",
					Policy: reprise.Policy{
						MaxAttempts: 12,
						GiveUpAfter: 48 * time.Hour,
						Backoff:     backoff.Full(backoff.Exponential{Initial: 2 * time.Second, Factor: 3, Max: 6 * time.Hour}),
						Rules: []reprise.Rule{
							{Uncounted: true, Backoff: backoff.Fixed(10 * time.Minute)},
							{MaxAttempts: 50, Backoff: backoff.Fixed(10 * time.Minute)},
							{Park: true},
						},
					},
					Topology: topology.Topology{
						Exchanges: []topology.Exchange{shop},
						Bindings: []topology.Binding{
							{Exchange: "shop", Queue: "invoices", RoutingKey: "invoice.*"},
							{Exchange: "amq.direct", Queue: "invoices", RoutingKey: "invoices"},
						},
					},
					Strategy:   topology.Strategy{Route: topology.ParkIn{Route: topology.Buckets{Base: time.Second, Growth: 1.25}, Queue: "invoices.dead"}},
					Debounce:   &reprise.Debounce{Window: 10 * time.Second},
					CrashLimit: 5, ConsumerTimeout: 30 * time.Minute,
					Concurrency: 4, Prefetch: 32, Priority: 10, DrainTimeout: time.Minute,
				},
				HTTP: &HTTP{
					URL:     "https://billing.example.com/invoices",
					Timeout: 10 * time.Second,
					Headers: []Pair{{"Authorization", "Bearer t0ken"}},
					Pause:   true,
					Secrets: []string{"t0ken"},

					CACertFile: "/etc/ca.pem", CertFile: "/etc/reprise.pem", KeyFile: "/etc/reprise-key.pem",
				},
				Results: &Results{Exchange: "shop", Key: "invoice.sent", MaxSize: 4 << 20},
				Duplicates: &Duplicates{
					Postgres: "postgres://reprise:secret@db.example.com/reprise",
					Config:   idempotent.Config{Retention: 7 * 24 * time.Hour, Lease: time.Minute},
				},
			},
			{
				WorkerConfig: reprise.WorkerConfig{Queue: "thumbnails", Policy: patient},
				Exec:         &Exec{Command: []string{"convert", "-", "-resize", "120x120", "/srv/thumbnails/latest.png"}, Dir: "/etc"},
			},
			{
				WorkerConfig: reprise.WorkerConfig{Queue: "reports", Policy: hourly},
				Exec: &Exec{
					Command: []string{"sh", "-c", "cat > $(mktemp report-XXXXXXXX)"},
					Dir:     "/etc",
					Env:     []Pair{{"LANG", "C.UTF-8"}, {"API_TOKEN", "t0ken"}},
					Timeout: 15 * time.Minute,
				},
			},
			{
				WorkerConfig: reprise.WorkerConfig{
					Queue: "charges", Concurrency: 20, Policy: reprise.Policy{Rules: []reprise.Rule{{MaxAttempts: 3}}},
				},
				Process: &Process{
					Exec:      Exec{Command: []string{"python3", "charge.py"}, Dir: "/etc", Timeout: 10 * time.Second},
					Processes: 2, MaxMessages: 100_000, MaxMemory: 256 << 20, Pause: true,
				},
			},
			{
				WorkerConfig: reprise.WorkerConfig{
					Queue: "invoices-by-customer", Concurrency: 20, OrderBy: &byCustomer, Strategy: topology.Strategy{Route: byCustomer.Route()},
				},
				Exec: &Exec{Command: []string{"echo", "invoice"}, Dir: "/etc"},
			},
			{
				WorkerConfig: reprise.WorkerConfig{
					Queue: "exports", Lanes: 16, Strategy: topology.Strategy{Route: topology.Lanes{Count: 16}},
				},
				Exec: &Exec{Command: []string{"echo", "export"}, Dir: "/etc"},
			},
			{
				WorkerConfig: reprise.WorkerConfig{
					Queue: "cover-art-archive.index", Strategy: art, Policy: fourHourly, Concurrency: 2, Debounce: &reprise.Debounce{Window: 10 * time.Second},
				},
				HTTP: &HTTP{URL: "http://127.0.0.1:8090/index"},
			},
			{
				WorkerConfig: reprise.WorkerConfig{Queue: "cover-art-archive.delete", Strategy: art, Policy: fourHourly},
				Exec:         &Exec{Command: []string{"echo", "delete"}, Dir: "/etc"},
			},
			{
				WorkerConfig: reprise.WorkerConfig{Queue: "cover-art-archive.move", Strategy: art, Policy: fourHourly, Prefetch: 16, DrainTimeout: 10 * time.Second},
				Exec:         &Exec{Command: []string{"echo", "move"}, Dir: "/etc"},
			},
			{WorkerConfig: active, HTTP: &HTTP{URL: "http://127.0.0.1:8091/active"}},
			{WorkerConfig: stakingWorker("unbonding_staking_queue"), Exec: note},
			{WorkerConfig: stakingWorker("withdraw_staking_queue"), Exec: note},
			{WorkerConfig: stakingWorker("expired_staking_queue"), Exec: note},
			{WorkerConfig: stakingWorker("staking_stats_queue"), Exec: note},
			{WorkerConfig: stakingWorker("btc_info_queue"), Exec: note},
			{WorkerConfig: stakingWorker("confirmed_info_queue"), Exec: note},
			{
				WorkerConfig: reprise.WorkerConfig{
					Queue: "billing.WorkQueue",
					Strategy: preset.WorkRetry{
						RetryDelay: 5 * time.Minute, Kind: topology.Direct, QueueType: "classic", Prefix: "billing.",
					}.Strategy(),
					Policy: reprise.Policy{MaxAttempts: 12, Backoff: backoff.Fixed(5 * time.Minute)},
				},
				HTTP: &HTTP{URL: "http://127.0.0.1:8092/work"},
			},
			{
				WorkerConfig: reprise.WorkerConfig{
					Queue: "cdn-purge",
					Strategy: preset.CDNPurge{
						Exchange: "cdn-purge", Queue: "cdn-purge", WaitExchange: "cdn-purge.wait", WaitQueue: "cdn-purge.wait", FailedQueue: "cdn-purge.failed",
						RoutingKeys: []string{"url", "directory", "tag"}, Kind: topology.Direct, WaitKind: topology.Direct,
						First: 10 * time.Second, Factor: 3, Max: 24 * time.Hour, Jitter: 0.1,
						QueueType: "classic", WaitArgs: topology.Table{"x-max-length": int64(100000)},
					}.Strategy(),
					Policy: reprise.Policy{MaxAttempts: 9, Backoff: backoff.Exponential{Initial: 10 * time.Second, Factor: 3, Max: 24 * time.Hour}},
				},
				HTTP: &HTTP{URL: "http://127.0.0.1:8093/purge"},
			},
		},
	}
	if diff := cmp.Diff(want, got, ignore, cmpopts.IgnoreFields(Config{}, "BrokerAt"), cmpopts.IgnoreFields(Exec{}, "At"), cmpopts.IgnoreFields(HTTP{}, "At"), cmpopts.IgnoreFields(Duplicates{}, "At"), cmpopts.IgnoreFields(Archive{}, "At"), cmpopts.IgnoreFields(Console{}, "At"), cmpopts.IgnoreFields(Outbox{}, "At"), cmpopts.IgnoreFields(Cron{}, "At"), cmpopts.IgnoreFields(Telemetry{}, "At"), noFuncs, cmp.Comparer(func(a, b *regexp.Regexp) bool { return a.String() == b.String() })); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	for _, w := range got.Workers {
		w.Handler = idle
		if err := w.Validate(); err != nil {
			t.Errorf("library refuses worker %s: %v", w.Queue, err)
		}
	}
}

func TestDefaults(t *testing.T) {
	got := mustParse(t, "workers: [{queue: a, exec: [true]}]")
	want := &Config{Dir: "dir", Listen: Listen{Addr: DefaultListen}, Data: "dir/reprise-data", Workers: []Worker{{
		WorkerConfig: reprise.WorkerConfig{Queue: "a"},
		Exec:         &Exec{Command: []string{"true"}, Dir: "dir", At: Position{"dir/test.yaml", 1, 29}},
	}}}
	if diff := cmp.Diff(want, got, ignore); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestData(t *testing.T) {
	for text, want := range map[string]string{
		"data: here":             "dir/here",
		"data: ../up":            "up",
		"data: /var/lib/reprise": "/var/lib/reprise",
		"data: memory":           "",
		"data: ./memory":         "dir/memory",
		"broker: amqp://h":       "",
	} {
		if c := mustParse(t, text+"\nworkers: [{queue: a, exec: [x]}]"); c.Data != want {
			t.Errorf("%s: got data %q, want %q", text, c.Data, want)
		}
	}
}

// An alias can replace any whole value. The alias refers to the last preceding anchor with the same name.
func TestAliases(t *testing.T) {
	c := mustParse(t, `
workers:
  - &first
    queue: &q a
    exec: &cmd [echo, *q]
    backoff: &b {fixed: 1s}
  - queue: b
    exec: *cmd
    backoff: *b
  - queue: &q c
    exec: [*q]
`)
	var got []string
	for _, w := range c.Workers {
		got = append(got, w.Queue+" "+strings.Join(w.Exec.Command, ","))
	}
	if diff := cmp.Diff([]string{"a echo,a", "b echo,a", "c c"}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if c.Workers[1].Policy.Backoff != backoff.Fixed(time.Second) {
		t.Errorf("backoff by alias: got %v, want %v", c.Workers[1].Policy.Backoff, backoff.Fixed(time.Second))
	}
}

func TestExpansion(t *testing.T) {
	c := mustParse(t, `
broker: "amqp://u:${RABBITMQ_PASSWORD}@h/$${x}"
workers: [{queue: "$${q}", http: {url: "http://h/${EMPTY}x", headers: {A: "$5 ${BILLING_TOKEN}${EMPTY}."}}}]
`)
	if want := "amqp://u:secret@h/${x}"; c.Broker != want {
		t.Errorf("broker: got %q, want %q", c.Broker, want)
	}
	if w := c.Workers[0]; w.HTTP.URL != "http://h/x" || w.HTTP.Headers[0].Value != "$5 t0ken." || w.Queue != "${q}" {
		t.Errorf("got HTTP %+v, queue %+v, want ${q}", w.HTTP, w.Queue)
	}
}

func TestRelativeDirectories(t *testing.T) {
	c := mustParse(t, "workers: [{queue: a, exec: {command: [x], dir: sub}}, {queue: b, exec: {command: [x], dir: /abs}}]")
	if got := c.Workers[0].Exec.Dir; got != filepath.Join("dir", "sub") {
		t.Errorf("relative directory: got %q, want %q", got, filepath.Join("dir", "sub"))
	}
	if got := c.Workers[1].Exec.Dir; got != "/abs" {
		t.Errorf("absolute directory: got %q, want %q", got, "/abs")
	}
}

func TestLoad(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "reprise.yaml")
	if _, err := Load(missing); err == nil || !strings.Contains(err.Error(), "-c FILE") {
		t.Errorf("missing file: got error %v", err)
	}
	if _, err := Load(t.TempDir()); err == nil || !strings.Contains(err.Error(), "has no file *.yaml") {
		t.Errorf("directory: got error %v", err)
	}
	big := filepath.Join(t.TempDir(), "big.yaml")
	if err := os.WriteFile(big, make([]byte, maxFile+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(big); err == nil || !strings.Contains(err.Error(), "exceeds") {
		t.Errorf("large file: got error %v", err)
	}
}

func TestParseDuration(t *testing.T) {
	for s, want := range map[string]time.Duration{
		"500ms": 500 * time.Millisecond, "1h30m": 90 * time.Minute, "1d": 24 * time.Hour, "1d12h": 36 * time.Hour,
		"0.5d": 12 * time.Hour, "0s": 0, "0d": 0, "-5s": -5 * time.Second, "7d1ns": 7*24*time.Hour + 1,
	} {
		if got, err := ParseDuration(s); err != nil || got != want {
			t.Errorf("%q: got %v, %v; want %v", s, got, err, want)
		}
	}
	for _, s := range []string{"", "5", "d", "1d-1h", "-1d", "5 minutes", "1w", "999999d", "106751d24h", "1h1d", "∞", "1e9d"} {
		if got, err := ParseDuration(s); err == nil {
			t.Errorf("%q: got %v, want an error", s, got)
		}
	}
}

func TestOtherEncodings(t *testing.T) {
	const text = "workers:\n  - queue: Aufträge\n    exec: [x]\n"
	var utf16 strings.Builder
	utf16.WriteString("\xff\xfe")
	for _, r := range text {
		utf16.WriteString(string([]byte{byte(r), byte(r >> 8)}))
	}
	for want, data := range map[string]string{
		"f.yaml:2:1: the file must be in UTF-8": strings.ReplaceAll(text, "ä", "\xe4"),
		"f.yaml:1:1: the file must be in UTF-8": utf16.String(),
	} {
		if _, err := Parse("f.yaml", []byte(data), environment); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if _, err := Parse("f.yaml", []byte(utf16.String()[2:]), environment); err == nil || !strings.Contains(err.Error(), "UTF-8") {
		t.Errorf("UTF-16 without a mark: got %v, want an error about UTF-8", err)
	}
}

// The parser accepts CR LF, a byte order mark, document markers and JSON.
func TestEncodings(t *testing.T) {
	for name, text := range map[string]string{
		"CRLF":           "workers:\r\n  - queue: a\r\n    exec: [x]\r\n",
		"BOM":            "\ufeffworkers:\n  - queue: a\n    exec: [x]\n",
		"document start": "%YAML 1.2\n---\nworkers:\n  - queue: a\n    exec: [x]\n...\n",
		"JSON":           `{"workers": [{"queue": "a", "exec": ["x"]}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			if c := mustParse(t, text); len(c.Workers) != 1 || c.Workers[0].Queue != "a" || c.Workers[0].Exec.Command[0] != "x" {
				t.Errorf("got %+v, want len(Workers) 1, Workers[0].Queue a, Workers[0].Exec.Command[0] x", c)
			}
		})
	}
}
