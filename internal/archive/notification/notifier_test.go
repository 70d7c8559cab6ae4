package notification

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // driver "pgx"
	_ "modernc.org/sqlite"             // driver "sqlite"

	"github.com/reprisemq/reprise/internal/sqlkit"
	"github.com/reprisemq/reprise/internal/testkit/pgtest"
)

const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// receiverServer receives messages. Its handler gets the number of the request, starting at 1.
type receiverServer struct {
	*httptest.Server
	mu       sync.Mutex
	messages []*http.Request
	bodies   [][]byte
}

func serve(t *testing.T, answer func(w http.ResponseWriter, r *http.Request, n int)) *receiverServer {
	s := &receiverServer{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		s.messages, s.bodies = append(s.messages, r), append(s.bodies, body)
		n := len(s.messages)
		s.mu.Unlock()
		if answer != nil {
			answer(w, r, n)
		}
	}))
	t.Cleanup(s.Close)
	t.Cleanup(s.CloseClientConnections)
	return s
}

func (s *receiverServer) requests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.messages)
}

// env is a database with a clock and a reading, which all notifiers of a test share.
type env struct {
	t       *testing.T
	db      *sql.DB
	dialect sqlkit.Dialect
	now     time.Time
	reading *Reading
	unread  error
	log     bytes.Buffer
	sent    []string
}

func eachDatabase(t *testing.T, test func(t *testing.T, h *env)) {
	t.Helper()
	for name, open := range map[string]func(t *testing.T) (string, string, sqlkit.Dialect){
		"sqlite": func(t *testing.T) (string, string, sqlkit.Dialect) {
			return "sqlite", "file:" + filepath.Join(t.TempDir(), "test.db") + "?_pragma=synchronous(OFF)&_pragma=journal_mode(WAL)&_pragma=busy_timeout(10000)", sqlkit.SQLite
		},
		"postgres": func(t *testing.T) (string, string, sqlkit.Dialect) { return "pgx", pgtest.Schema(t), sqlkit.PostgreSQL },
	} {
		t.Run(name, func(t *testing.T) {
			driver, source, dialect := open(t)
			db, err := sql.Open(driver, source)
			check(t, err)
			t.Cleanup(func() { db.Close() })
			test(t, &env{t: t, db: db, dialect: dialect, now: noon, reading: reading(0)})
		})
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// notifier returns a notifier on the shared database. It simulates a separate process.
func (h *env) notifier(webhooks ...Webhook) *Notifier {
	return New(Config{
		DB: h.db, Dialect: h.dialect, Webhooks: webhooks, Console: "https://ops.example.com/reprise",
		Read:   func(context.Context) (*Reading, error) { return h.reading, h.unread },
		Logger: slog.New(slog.NewTextHandler(&h.log, nil)), Sent: func(result string) { h.sent = append(h.sent, result) },
		Clock: func() time.Time { return h.now },
	})
}

// poll advances the clock and makes the given notifiers take a reading.
func (h *env) poll(after time.Duration, all ...*Notifier) {
	h.now = h.now.Add(after)
	if h.reading != nil {
		next := *h.reading
		next.Time = h.now
		h.reading = &next
	}
	for _, n := range all {
		n.poll(h.t.Context())
	}
}

// send makes all due attempts of a notifier.
func (h *env) send(n *Notifier) {
	_ = n.outbox.open(h.t.Context(), h.now.Add(-2*GiveUp)) // as poll does
	for _, w := range n.webhooks {
		for n.sendNext(h.t.Context(), w) {
		}
	}
}

// addGroups adds the given number of groups to the reading.
func (h *env) addGroups(groups int) {
	next := *h.reading
	for range groups {
		next.Newest++
		next.Groups = append(next.Groups[:len(next.Groups):len(next.Groups)], Group{ID: next.Newest, Arrived: 1, Failed: 1, Queue: "orders", Text: fmt.Sprint("failure ", next.Newest)})
	}
	h.reading = &next
}

// stored returns the number of messages in the outbox.
func (h *env) stored() (n int) {
	h.t.Helper()
	check(h.t, h.db.QueryRow("SELECT COUNT(*) FROM reprise_notify_message").Scan(&n))
	return n
}

func TestNotifierSendsOneMessageForBurst(t *testing.T) {
	eachDatabase(t, func(t *testing.T, h *env) {
		s := serve(t, nil)
		n := h.notifier(Webhook{URL: s.URL + "/hook", Format: JSON, Secret: secret})
		h.poll(0, n)
		for range 3 {
			h.addGroups(20)
			h.poll(10*time.Second, n)
		}
		h.send(n)
		if got := s.requests(); got != 0 {
			t.Fatalf("got %d messages before 30 s, want 0", got)
		}
		h.poll(10*time.Second, n)
		h.poll(10*time.Second, n)
		h.send(n)
		h.poll(time.Hour, n)
		h.send(n)
		if got := s.requests(); got != 1 || h.stored() != 0 {
			t.Fatalf("got %d messages and %d stored, want 1 and 0", got, h.stored())
		}
		var d document
		check(t, json.Unmarshal(s.bodies[0], &d))
		if d.Type != "reprise.notification" || d.Data.Counts[NewGroup] != 60 || len(d.Data.Events) != maxShown || d.Data.Text != "Reprise: 60 new error groups" ||
			d.Data.Events[0].URL != "https://ops.example.com/reprise/groups/1" {
			t.Errorf("got message %+v, want 60 new error groups, %d of them listed", d, maxShown)
		}
		verify(t, s.messages[0], s.bodies[0])
		if strings.Join(h.sent, " ") != "sent" {
			t.Errorf("got results %q, want sent", h.sent)
		}
	})
}

// verify checks the signature of a message as the Standard Webhooks specification requires.
func verify(t *testing.T, r *http.Request, body []byte) {
	t.Helper()
	k, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	check(t, err)
	mac := hmac.New(sha256.New, k)
	mac.Write([]byte(r.Header.Get("webhook-id") + "." + r.Header.Get("webhook-timestamp") + "." + string(body)))
	if want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)); r.Header.Get("webhook-signature") != want {
		t.Errorf("signature: got %q, want %q", r.Header.Get("webhook-signature"), want)
	}
	if id := r.Header.Get("webhook-id"); len(id) < 20 || !strings.HasPrefix(id, "msg_") {
		t.Errorf("webhook-id: got %q, want msg_ and at least 16 characters", id)
	}
}

// The test vector comes from the tests of the specification.
func TestSign(t *testing.T) {
	got, err := sign(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`))
	if err != nil || got != "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=" {
		t.Errorf("sign: got %q, %v, want the signature of the specification", got, err)
	}
}

// Two processes detect the same events, and only one of them stores a message. If that process is killed before the
// attempt, the other process sends the message.
func TestNotifiersShareDatabase(t *testing.T) {
	eachDatabase(t, func(t *testing.T, h *env) {
		s := serve(t, nil)
		hook := Webhook{URL: s.URL, Format: JSON}
		a, b := h.notifier(hook), h.notifier(hook)
		h.poll(0, a, b)
		h.addGroups(3)
		h.poll(10*time.Second, a, b)
		h.poll(30*time.Second, a, b)
		if got := h.stored(); got != 1 {
			t.Fatalf("got %d stored messages, want 1", got)
		}
		h.send(b) // a was killed after it had stored the message
		h.send(a)
		if got := s.requests(); got != 1 {
			t.Errorf("got %d requests, want 1", got)
		}
	})
}

// If a process is killed while it sends a message, another process sends the message after the lease has expired.
func TestNotifierTakesOverExpiredLease(t *testing.T) {
	eachDatabase(t, func(t *testing.T, h *env) {
		s := serve(t, nil)
		hook := Webhook{URL: s.URL, Format: JSON}
		a, b := h.notifier(hook), h.notifier(hook)
		h.poll(0, a)
		h.addGroups(1)
		h.poll(10*time.Second, a)
		h.poll(30*time.Second, a)
		m, err := a.outbox.claim(t.Context(), hook.id(), h.now, lease)
		if err != nil || m == nil {
			t.Fatalf("claim: got %v, %v, want a message", m, err)
		}
		h.send(b)
		if got := s.requests(); got != 0 {
			t.Fatal("notifier sent a message that another notifier has claimed")
		}
		h.now = h.now.Add(lease)
		h.send(b)
		if s.requests() != 1 || s.messages[0].Header.Get("webhook-id") != m.id || h.stored() != 0 {
			t.Errorf("got %d requests after the lease, want 1", s.requests())
		}
	})
}

// A clock that is set back by a day delays neither new events, nor events of a kind that was notified before, nor messages.
func TestNotifierContinuesAfterClockIsSetBack(t *testing.T) {
	eachDatabase(t, func(t *testing.T, h *env) {
		const back = -24 * time.Hour
		accept := false
		s := serve(t, func(w http.ResponseWriter, _ *http.Request, _ int) {
			if !accept {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		})
		n := h.notifier(Webhook{URL: s.URL, Format: JSON})
		h.poll(0, n)
		n.Report(StoreUnavailable, "store/ledger", "store", "")
		h.poll(time.Second, n)
		h.poll(DefaultGather, n)
		h.send(n) // not accepted: the next attempt is later
		h.addGroups(1)
		h.poll(time.Second, n) // not due yet
		accept = true
		h.poll(back, n)
		h.send(n)
		if got := s.requests(); got != 3 || h.stored() != 0 {
			t.Fatalf("got %d requests and %d stored messages, want 3 and 0: one not accepted, its repetition, and the new group", got, h.stored())
		}
		n.Report(StoreUnavailable, "store/ledger", "store", "")
		h.poll(time.Second, n)
		h.poll(DefaultGather, n)
		h.send(n)
		if got := s.requests(); got != 4 {
			t.Errorf("got %d requests, want another one for the event that was notified by the wrong clock", got)
		}
	})
}

// Two processes that read and send at the same time send each message once.
func TestConcurrentNotifiersSendOnce(t *testing.T) {
	eachDatabase(t, func(t *testing.T, h *env) {
		s := serve(t, nil)
		hook := Webhook{URL: s.URL, Format: JSON}
		var all []*Notifier
		for range 2 {
			n := h.notifier(hook)
			n.cfg.Sent, n.cfg.Logger = func(string) {}, slog.New(slog.DiscardHandler)
			all = append(all, n)
		}
		together := func(do func(*Notifier)) {
			var running sync.WaitGroup
			for _, n := range all {
				running.Go(func() { do(n) })
			}
			running.Wait()
		}
		h.poll(0)
		together(func(n *Notifier) { n.poll(t.Context()) })
		const bursts = 5
		for range bursts {
			h.addGroups(1)
			h.poll(10 * time.Second)
			together(func(n *Notifier) { n.poll(t.Context()) })
			h.poll(30 * time.Second)
			together(func(n *Notifier) { n.poll(t.Context()); h.send(n) })
		}
		together(h.send)
		if got := s.requests(); got != bursts {
			t.Errorf("got %d requests, want %d", got, bursts)
		}
	})
}

// failing contains handlers that do not accept a message.
var failing = map[string]func(w http.ResponseWriter, r *http.Request){
	"503": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) },
	"404": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) },
	"redirect": func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	},
	"cut off": func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			_ = conn.Close()
		}
	},
	"no answer": nil,
}

// deadline is a transport that cancels a request when the server has received the request and does not respond.
type deadline struct {
	next http.RoundTripper
	hung <-chan struct{}
}

func (d deadline) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	answered := make(chan struct{})
	defer close(answered)
	go func() {
		select {
		case <-d.hung:
			cancel()
		case <-answered:
		}
	}()
	answer, err := d.next.RoundTrip(r.WithContext(ctx))
	if ctx.Err() != nil {
		return nil, os.ErrDeadlineExceeded
	}
	return answer, err
}

func TestNotifierRetries(t *testing.T) {
	for name, fail := range failing {
		t.Run(name, func(t *testing.T) {
			eachDatabase(t, func(t *testing.T, h *env) {
				hung := make(chan struct{})
				s := serve(t, func(w http.ResponseWriter, r *http.Request, n int) {
					switch {
					case n > 2:
					case fail == nil:
						hung <- struct{}{}
						<-r.Context().Done()
					default:
						fail(w, r)
					}
				})
				client := newClient(nil)
				client.Transport = deadline{client.Transport, hung}
				hook := Webhook{URL: s.URL + "/T000/hush", Format: JSON, Secret: secret}
				n := h.notifier(hook)
				n.cfg.Client = client
				h.poll(0, n)
				h.addGroups(1)
				h.poll(10*time.Second, n)
				h.poll(30*time.Second, n)
				h.send(n)
				h.send(n) // before the next attempt is due
				if got := s.requests(); got != 1 || h.stored() != 1 {
					t.Fatalf("got %d requests and %d stored messages, want 1 and 1", got, h.stored())
				}
				h.now = h.now.Add(10 * time.Second)
				n = h.notifier(hook) // after a restart
				n.cfg.Client = client
				h.send(n)
				h.now = h.now.Add(20 * time.Second)
				h.send(n)
				if got := s.requests(); got != 3 || h.stored() != 0 {
					t.Fatalf("got %d requests and %d stored messages, want 3 and 0", got, h.stored())
				}
				for i, r := range s.messages {
					if r.URL.Path != "/T000/hush" || r.Header.Get("webhook-id") != s.messages[0].Header.Get("webhook-id") {
						t.Errorf("request %d: got URL %s, webhook-id %s, want the webhook URL and the webhook-id of the first request", i, r.URL, r.Header.Get("webhook-id"))
					}
					verify(t, r, s.bodies[i])
				}
				if strings.Join(h.sent, " ") != "retried retried sent" {
					t.Errorf("got results %q, want retried, retried, sent", h.sent)
				}
				for _, hidden := range []string{"hush", "T000", strings.TrimPrefix(secret, "whsec_"), "v1,"} {
					if strings.Contains(h.log.String(), hidden) {
						t.Errorf("log contains the secret %q:\n%s", hidden, h.log.String())
					}
				}
			})
		})
	}
}

// A slow or endless response body does not affect the result.
func TestNotifierIgnoresResponseBody(t *testing.T) {
	eachDatabase(t, func(t *testing.T, h *env) {
		s := serve(t, func(w http.ResponseWriter, r *http.Request, _ int) {
			w.WriteHeader(http.StatusAccepted)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		})
		n := h.notifier(Webhook{URL: s.URL, Format: JSON})
		h.poll(0, n)
		h.addGroups(1)
		h.poll(10*time.Second, n)
		h.poll(30*time.Second, n)
		h.send(n)
		if strings.Join(h.sent, " ") != "sent" {
			t.Errorf("got results %q, want sent", h.sent)
		}
	})
}

func TestNotifierGivesUp(t *testing.T) {
	for name, x := range map[string]struct {
		status int
		least  int // minimum number of requests
		most   int
	}{"410": {http.StatusGone, 1, 1}, "503": {http.StatusServiceUnavailable, 20, 60}} {
		t.Run(name, func(t *testing.T) {
			eachDatabase(t, func(t *testing.T, h *env) {
				s := serve(t, func(w http.ResponseWriter, _ *http.Request, _ int) { w.WriteHeader(x.status) })
				n := h.notifier(Webhook{URL: s.URL, Format: JSON})
				h.poll(0, n)
				h.addGroups(1)
				h.poll(10*time.Second, n)
				h.poll(30*time.Second, n)
				begun := h.now
				for h.stored() > 0 && h.now.Sub(begun) <= GiveUp {
					h.send(n)
					h.now = h.now.Add(time.Minute)
				}
				if got := s.requests(); got < x.least || got > x.most || h.stored() != 0 {
					t.Errorf("got %d requests, want %d to %d; %d messages stored after %s", got, x.least, x.most, h.stored(), h.now.Sub(begun))
				}
				if !strings.Contains(h.log.String(), "notification given up") || h.sent[len(h.sent)-1] != "given_up" {
					t.Errorf("got results %q and log %s, want given_up last", h.sent, h.log.String())
				}
			})
		})
	}
}
