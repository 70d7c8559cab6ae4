package serve

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener in memory, for virtual time.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	c, open := <-p
	if !open {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (p pipes) Close() error { close(p); return nil }

func (pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

func TestWebServerClosesSlowConnections(t *testing.T) {
	long := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, "begun")
		_ = http.NewResponseController(w).Flush()
		_, _ = io.Copy(w, io.LimitReader(zeros{}, 1<<20))
	})
	for name, c := range map[string]struct {
		handler http.Handler
		request string
		reads   bool          // the client reads the response
		want    time.Duration // time until the connection is closed
	}{
		"incomplete header":                       {long, "GET / HTTP/1.1\r\n", false, webReadTimeout},
		"incomplete body":                         {long, "GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n", true, webReadTimeout},
		"unread response":                         {long, "GET / HTTP/1.1\r\nHost: x\r\n\r\n", false, webWriteTimeout},
		"unread response with progress deadlines": {ProgressDeadlines(long), "GET / HTTP/1.1\r\nHost: x\r\n\r\n", false, progressTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := make(pipes)
				s := Web("x", l, c.handler, slog.New(slog.DiscardHandler))
				defer s.Stop()
				client, server := net.Pipe()
				defer client.Close()
				closed := &closeRecorder{Conn: server, at: make(chan time.Time, 1)}
				began := time.Now()
				l <- closed
				if _, err := fmt.Fprint(client, c.request); err != nil {
					t.Fatal(err)
				}
				if c.reads {
					go func() { _, _ = io.Copy(io.Discard, client) }()
				}
				if took := (<-closed.at).Sub(began); took < c.want || took > c.want+time.Second {
					t.Errorf("connection closed after %s, want %s", took, c.want)
				}
			})
		})
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

// closeRecorder records the time at which a connection is closed.
type closeRecorder struct {
	net.Conn
	once sync.Once
	at   chan time.Time
}

func (c *closeRecorder) Close() error {
	c.once.Do(func() { c.at <- time.Now() })
	return c.Conn.Close()
}

// The log contains the errors of the HTTP server, in the format of the logger.
func TestWebServerLogsErrors(t *testing.T) {
	var logged bytes.Buffer
	l := NewPipeListener()
	panics := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("a handler's fault") })
	s := Web("x", l, panics, slog.New(slog.NewJSONHandler(&logged, nil)))
	client := l.Client()
	if _, err := client.Get("http://x/"); err == nil {
		t.Error("client received a response")
	}
	client.CloseIdleConnections()
	s.Stop()
	var line struct{ Level, Msg string }
	if err := json.Unmarshal(logged.Bytes(), &line); err != nil || line.Level != "ERROR" || !strings.Contains(line.Msg, "a handler's fault") {
		t.Errorf("log: got %q: %v", logged.String(), err)
	}
}

// Clients cannot fill the log with errors of an HTTP server.
func TestErrorsOfWebServerDoNotFloodLog(t *testing.T) {
	var log bytes.Buffer
	errors := WebLog(slog.New(slog.NewTextHandler(&log, nil)))
	for range 1000 {
		errors.Print("http: TLS handshake error from 192.0.2.1:1: EOF")
	}
	if n := strings.Count(log.String(), "level=WARN"); n != 10 {
		t.Errorf("got %d log messages about 1000 errors, want 10", n)
	}
	errors.Print("http: panic serving 192.0.2.1:1: no such message")
	if n := strings.Count(log.String(), "level=ERROR"); n != 1 {
		t.Errorf("got %d log messages about the panic of a page, want 1", n)
	}
}
