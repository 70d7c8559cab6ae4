package handler

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/testkit"
)

func newHTTP(t *testing.T, cfg HTTPConfig) *HTTP {
	t.Helper()
	h, err := NewHTTP(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h
}

// service starts a server and returns a handler that posts messages to it.
func service(t *testing.T, f http.HandlerFunc) *HTTP {
	t.Helper()
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	return newHTTP(t, HTTPConfig{URL: s.URL + "/path"})
}

func TestHTTPOutcome(t *testing.T) {
	for _, tt := range []struct {
		status     int
		header     string // Name: value
		body       string
		kind, text string
	}{
		{200, "", "fine", "ack", ""},
		{204, "", "", "ack", ""},
		{299, "", "", "ack", ""},
		{301, "Location: https://user:hush@h/new", "moved", "park", "301 Moved Permanently: redirects are not followed; if https://user:xxxxx@h/new is the right place"},
		{303, "", "", "park", "303 See Other"},
		{307, "Location: /", "", "park", "redirects are not followed"},
		{304, "", "", "park", "304 Not Modified"},
		{400, "", "no such field", "park", "400 Bad Request: no such field"},
		{404, "Retry-After: 5", "", "park", "404 Not Found"},
		{408, "", "", "retry", "408 Request Timeout"},
		{425, "", "", "retry", "425 Too Early"},
		{429, "Retry-After: 7", "slow down\n", "retry after 7s", "429 Too Many Requests: slow down"},
		{429, "Retry-After: soon", "", "retry", "429"},
		{499, "", "", "park", "499"},
		{500, "", "\xff\x00", "retry", "500 Internal Server Error: \uFFFD\uFFFD"},
		{503, "Retry-After: 120", "", "retry after 2m0s", "503"},
		{507, "", "queue is full", "retry", "507 Insufficient Storage: queue is full"},
		{599, "", "", "retry", "599"},
	} {
		t.Run(fmt.Sprint(tt.status), func(t *testing.T) {
			h := service(t, func(w http.ResponseWriter, _ *http.Request) {
				if name, value, ok := strings.Cut(tt.header, ": "); ok {
					w.Header().Set(name, value)
				}
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.body)
			})
			err := h.Handle(bounded(t), full())
			if got := kind(err); got != tt.kind {
				t.Errorf("got %s, want %s (%v)", got, tt.kind, err)
			}
			if tt.text != "" && (!strings.Contains(err.Error(), tt.text) || !strings.HasPrefix(err.Error(), "POST http://127.0.0.1:")) {
				t.Errorf("got %q, want %q", err, tt.text)
			}
		})
	}
}

// With Pause, a Retry-After header of the service pauses the worker. A response without a usable header, or with a
// status that parks, does not pause the worker.
func TestHTTPPause(t *testing.T) {
	for _, tt := range []struct {
		status     int
		retryAfter string
		kind       string
	}{
		{503, "120", "pause for 2m0s"},
		{429, "7", "pause for 7s"},
		{503, "", "retry"},
		{503, "0", "retry"},
		{404, "7", "park"},
		{200, "7", "ack"},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", tt.retryAfter)
			w.WriteHeader(tt.status)
		}))
		if got := kind(newHTTP(t, HTTPConfig{URL: s.URL, Pause: true}).Handle(bounded(t), full())); got != tt.kind {
			t.Errorf("status %d with Retry-After %q: got %s, want %s", tt.status, tt.retryAfter, got, tt.kind)
		}
		s.Close()
	}
}

func TestHTTPRequest(t *testing.T) {
	var got http.Header
	var body, about string
	h := service(t, func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got, body, about = r.Header, string(b), fmt.Sprint(r.Method, " ", r.URL.Path, " ", r.ContentLength, " ", r.Host)
	})
	h.cfg.Headers = http.Header{"authorization": {"Bearer x"}, "Host": {"example.com"}, "User-Agent": {"me"}}
	if err := h.Handle(bounded(t), full()); err != nil {
		t.Fatal(err)
	}
	if body != "the body" || about != "POST /path 8 example.com" {
		t.Errorf("got request %q, want %q; body %q, want %q", about, "POST /path 8 example.com", body, "the body")
	}
	want := http.Header{
		"Accept-Encoding": {"gzip"}, "Authorization": {"Bearer x"}, "Content-Length": {"8"}, "User-Agent": {"me"},
		"Content-Type": {"text/plain; charset=utf-8"}, "Content-Encoding": {"identity"},
		"Reprise-Queue": {"orders"}, "Reprise-Exchange": {"shop"}, "Reprise-Routing-Key": {"order.new"},
		"Reprise-Attempt": {"3"}, "Reprise-Message-Id": {"m-1"}, "Reprise-Correlation-Id": {"c-1"},
		"Reprise-Reply-To": {"answers"}, "Reprise-Type": {"order"}, "Reprise-App-Id": {"till"}, "Reprise-User-Id": {"guest"},
		"Reprise-Priority": {"7"}, "Reprise-Timestamp": {"2026-01-02T02:04:05Z"}, "Reprise-Expiration": {"90000"},
		"Reprise-Redelivered": {"true"}, "Reprise-First-Failed": {"2026-01-02T03:05:00Z"}, "Reprise-Last-Error": {"second"},
		"Reprise-Header-Tenant-Id": {"acme"}, "Reprise-Header-Tries": {"3"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// Each header of a message becomes exactly one HTTP header, whose name and value can be decoded.
func TestHTTPPreventsHeaderInjection(t *testing.T) {
	var got http.Header
	h := service(t, func(_ http.ResponseWriter, r *http.Request) { got = r.Header })
	nasty := []string{
		"a\r\nX-Injected: yes", "\n", "naïve €", "100%", " blanks ", "\x00\x7f\xff", "tab\there", `"quoted", list`, "",
	}
	m := reprise.Message{
		MessageID: nasty[0], ContentType: "text/plain\r\nX-Injected: yes", RoutingKey: "a%2Eb",
		Headers: map[string]any{"bad\r\nX-Injected: yes\r\n": "v", "a:b c": "w", "": "nameless"},
	}
	for i, value := range nasty {
		m.Headers[fmt.Sprint("v", i)] = value
	}
	if err := h.Handle(bounded(t), &reprise.Delivery{Message: m}); err != nil {
		t.Fatal(err)
	}
	if got.Get("X-Injected") != "" {
		t.Errorf("message injected a header: %v", got)
	}
	decoded := func(s string) string {
		d, err := url.PathUnescape(s)
		if err != nil {
			t.Errorf("cannot decode %q: %v", s, err)
		}
		return d
	}
	for i, want := range nasty {
		if v := decoded(got.Get(fmt.Sprint("Reprise-Header-V", i))); v != want {
			t.Errorf("value %d: got %q, want %q", i, v, want)
		}
	}
	if v := got.Get("Reprise-Routing-Key"); v != "a%252Eb" {
		t.Errorf("value with a percent sign: got %q, want %q", v, "a%252Eb")
	}
	names := map[string]string{}
	for name, values := range got {
		names[strings.ToLower(decoded(name))] = values[0]
	}
	for name, want := range map[string]string{"bad\r\nx-injected: yes\r\n": "v", "a:b c": "w", "": "nameless"} {
		if v := names["reprise-header-"+name]; v != want {
			t.Errorf("header %q: got %q, want %q", name, v, want)
		}
	}
}

func TestHTTPHeadersAreLimited(t *testing.T) {
	var got http.Header
	h := service(t, func(_ http.ResponseWriter, r *http.Request) { got = r.Header })
	var log testkit.Buffer
	h.cfg.Logger = textLog(&log)
	m := &reprise.Delivery{Message: reprise.Message{Headers: map[string]any{"big": strings.Repeat("x", maxHeader+1), "blanks": strings.Repeat("\n", maxHeader/2)}}, Queue: "q"}
	for i := range 1000 {
		m.Headers[fmt.Sprint("z", strings.Repeat("ä", 80), i)] = strings.Repeat("v", 200)
	}
	if err := h.Handle(bounded(t), m); err != nil {
		t.Fatal(err)
	}
	size := 0
	for name, values := range got {
		for _, v := range values {
			size += len(name) + len(v) + 4
		}
	}
	if size > 16<<10 || got.Get("Reprise-Queue") != "q" || !strings.HasPrefix(got.Get("Reprise-Omitted"), "Reprise-Header-Big Reprise-Header-Blanks ") {
		t.Errorf("got %d bytes, want at most %d, omitted %q", size, 16<<10, got.Get("Reprise-Omitted"))
	}
	if !strings.Contains(log.String(), "Reprise-Header-Big") {
		t.Errorf("log: got %s, want \"Reprise-Header-Big\"", log.String())
	}
}

func TestHTTPErrorTextIsLimited(t *testing.T) {
	h := service(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(500)
		for range 1 << 10 {
			_, _ = io.WriteString(w, strings.Repeat("long ", 200))
		}
	})
	if text := h.Handle(bounded(t), full()).Error(); len(text) > maxErrorText || !strings.HasSuffix(text, "long") || !strings.Contains(text, " … ") {
		t.Errorf("error text: got %d bytes, want at most %d: …%q", len(text), maxErrorText, text[len(text)-20:])
	}
}

func TestHTTPNetworkErrors(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close()
	h := newHTTP(t, HTTPConfig{URL: "http://user:hush@" + addr + "/"})
	err = h.Handle(bounded(t), full())
	if kind(err) != "retry" || !strings.Contains(err.Error(), "connection refused") || strings.Contains(err.Error(), "hush") {
		t.Errorf("refused connection: got %s (%v), want retry without the password", kind(err), err)
	}

	broken := service(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	if err := broken.Handle(bounded(t), full()); kind(err) != "retry" || !strings.Contains(err.Error(), "EOF") {
		t.Errorf("truncated response: got %s (%v), want retry with EOF", kind(err), err)
	}

	// The status determines the outcome, even if the body is incomplete.
	for status, want := range map[int]string{200: "ack", 400: "park", 500: "retry"} {
		half := service(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, "half")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		})
		if err := half.Handle(bounded(t), full()); kind(err) != want {
			t.Errorf("%d with half a body: %s, want %s: %v", status, kind(err), want, err)
		}
	}
}

// slow is a service that responds only after the client has disconnected.
func slow(t *testing.T, called chan<- struct{}) *HTTP {
	t.Helper()
	return service(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // the server detects a disconnected client only after it has read the body
		called <- struct{}{}
		<-r.Context().Done()
	})
}

func TestHTTPTimeout(t *testing.T) {
	h := slow(t, make(chan struct{}, 1))
	h.cfg.Timeout = 20 * time.Millisecond
	if err := h.Handle(bounded(t), full()); kind(err) != "retry" || !strings.HasSuffix(err.Error(), "timeout after 20ms") {
		t.Errorf("got %s, want retry: %v", kind(err), err)
	}
}

// A response is an outcome even if its body has no end, is shorter than announced, or is compressed.
func TestHTTPForeignBodies(t *testing.T) {
	endless := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, "card declined")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}
	}
	for _, tt := range []struct {
		name    string
		handler http.HandlerFunc
		timeout time.Duration
		kind    string
		want    string
	}{
		{"no end, 200", endless(200), time.Hour, "ack", ""},
		{"no end, 500", endless(500), time.Hour, "retry", "500 Internal Server Error: card declined (the response was truncated)"},
		{"no end, 500, short timeout", endless(500), 4 * time.Second, "retry", "500 Internal Server Error: card declined (the response was truncated)"},
		{"no end, 500, fast", func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(500)
			for r.Context().Err() == nil {
				_, _ = io.WriteString(w, "card declined\n")
			}
		}, time.Hour, "retry", "500 Internal Server Error: card declined"},
		{"too short", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			w.WriteHeader(422)
			_, _ = io.WriteString(w, "card declined")
		}, time.Hour, "park", "422 Unprocessable Entity: card declined (the response was truncated)"},
		{"compressed", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			w.WriteHeader(422)
			z := gzip.NewWriter(w)
			_, _ = io.WriteString(z, `{"error":"card declined"}`)
			_ = z.Close()
		}, time.Hour, "park", "422 Unprocessable Entity: card declined"},
		{"early hints", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusNoContent)
		}, time.Hour, "ack", ""},
		{"not modified", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotModified) }, time.Hour, "park", "304 Not Modified"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := service(t, tt.handler)
			h.cfg.Timeout = tt.timeout
			ctx := bounded(t)
			err := h.Handle(ctx, full())
			if kind(err) != tt.kind || tt.want != "" && !strings.Contains(err.Error(), tt.want) || ctx.Err() != nil {
				t.Errorf("got %s: %v, want %s: %s", kind(err), err, tt.kind, tt.want)
			}
		})
	}
}

func TestHTTPContextEnd(t *testing.T) {
	called := make(chan struct{}, 1)
	h := slow(t, called)
	ctx, cancel := context.WithCancelCause(bounded(t))
	go func() {
		<-called
		cancel(errors.New("the test ends it"))
	}()
	if err := h.Handle(ctx, full()); kind(err) != "retry" || !strings.Contains(err.Error(), "the test ends it") {
		t.Errorf("got %s, want retry: %v", kind(err), err)
	}
}

func TestHTTPReusesConnections(t *testing.T) {
	addrs := map[string]bool{}
	h := service(t, func(w http.ResponseWriter, r *http.Request) {
		addrs[r.RemoteAddr] = true
		_, _ = io.WriteString(w, strings.Repeat("x", 20<<10))
	})
	for range 5 {
		if err := h.Handle(bounded(t), full()); err != nil {
			t.Fatal(err)
		}
	}
	if len(addrs) != 1 {
		t.Errorf("got %d connections for 15 messages, want 1", len(addrs))
	}
}

func TestNewHTTPRefusesInvalidConfig(t *testing.T) {
	for _, cfg := range []HTTPConfig{
		{},
		{URL: "127.0.0.1:80/x"},
		{URL: "ftp://h/"},
		{URL: "http:///x"},
		{URL: "http://h/%zz"},
		{URL: "http://h/", Timeout: -1},
		{URL: "http://h/", Connections: -1},
	} {
		if _, err := NewHTTP(cfg); err == nil {
			t.Errorf("%+v was accepted", cfg)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	date := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(d time.Duration) string { return date.Add(d).Format(http.TimeFormat) }
	for value, want := range map[string]time.Duration{
		"": 0, "0": 0, "-5": 0, "+5": 0, "1.5": 0, "soon": 0, "5 s": 0, "0x10": 0,
		"5": 5 * time.Second, " 60 ": time.Minute, "86400": 24 * time.Hour,
		"86401": maxRetryAfter, "99999999999999999999": maxRetryAfter,
		at(0): 0, at(-time.Hour): 0, at(90 * time.Second): 90 * time.Second, at(1000 * time.Hour): maxRetryAfter,
		date.Add(time.Minute).Format(time.ANSIC): time.Minute,
		"Fri, 31 Dec 9999 23:59:59 GMT":          maxRetryAfter,
	} {
		h := http.Header{"Retry-After": {value}, "Date": {date.Format(http.TimeFormat)}}
		if got, ok := retryAfter(h); got != want && ok || ok != (want > 0) {
			t.Errorf("%q: got %v, %v; want %v", value, got, ok, want)
		}
	}
	// Without a Date header, the delay until the date is measured from the local time.
	h := http.Header{"Retry-After": {time.Now().Add(10 * time.Hour).UTC().Format(http.TimeFormat)}}
	if got, ok := retryAfter(h); !ok || got < 9*time.Hour || got > 11*time.Hour {
		t.Errorf("without a Date header: got %v, want at least %v, %v", got, 9*time.Hour, ok)
	}
}

// A service on a Unix socket receives the same requests as one on a port.
func TestHTTPUnixSocket(t *testing.T) {
	dir, err := os.MkdirTemp("", "unix") // t.TempDir can exceed the maximum length of a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "h.sock")
	gone := newHTTP(t, HTTPConfig{URL: "unix://" + socket + ":/orders?token=hush"}).Handle(bounded(t), full())
	if kind(gone) != "retry" || !strings.HasPrefix(gone.Error(), "POST unix://"+socket+":/orders?token=xxxxx: dial unix "+socket) {
		t.Errorf("without a service: got %v", gone)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan string, 1)
	s := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- fmt.Sprint(r.Host, " ", r.Method, " ", r.URL, " ", r.Header.Get("Reprise-Message-Id"), " ", string(body))
		w.WriteHeader(http.StatusTeapot)
	})}}
	s.Start()
	t.Cleanup(s.Close)
	for path, want := range map[string]string{":/a/b?token=hush": "/a/b?token=hush", "": "/", ":/": "/"} {
		err := newHTTP(t, HTTPConfig{URL: "unix://" + socket + path}).Handle(bounded(t), full())
		if kind(err) != "park" || strings.Contains(err.Error(), "hush") {
			t.Errorf("%q: got %v", path, err)
		}
		if got := <-got; got != "localhost POST "+want+" m-1 the body" {
			t.Errorf("%q: got %s", path, got)
		}
	}
}

func TestUnixSocketRefusesInvalidURL(t *testing.T) {
	for text, want := range map[string]string{
		"unix://run/h.sock":       "absolute path",
		"unix://":                 "absolute path",
		"unix:h.sock":             "absolute path",
		"unix://user@/run/h.sock": "absolute path",
		"unix:///run/h.sock:path": "begins with /",
		"unix:///" + strings.Repeat("x", maxSocket): "at most 107 bytes",
	} {
		_, err := NewHTTP(HTTPConfig{URL: text})
		expect(t, err, want)
	}
}
