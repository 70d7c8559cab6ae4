package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/reprisemq/reprise/internal/amqpwire"
)

// parallel calls the function do in n goroutines and waits for them.
func parallel(n int, do func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { do(i) })
	}
	all.Wait()
}

// errorCount records the first error and the number of errors.
type errorCount struct {
	mu    sync.Mutex
	first error
	n     int
}

func (f *errorCount) add(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.n++; f.first == nil {
		f.first = err
	}
}

func (f *errorCount) String() string {
	if f.n == 0 {
		return "no errors"
	}
	return fmt.Sprintf("%d errors (the first: %s)", f.n, short(f.first))
}

// idle returns an attack that opens connections with the given client capabilities, and sends nothing after the login.
func idle(capabilities amqpwire.Table) func(context.Context, *target) string {
	return func(ctx context.Context, t *target) string {
		var opened, closed counter
		var failed errorCount
		parallel(20, func(int) {
			for range 500 {
				if ctx.Err() != nil {
					return
				}
				c, err := t.connectWith(ctx, "guest", "guest", capabilities)
				if err != nil {
					failed.add(err)
					continue
				}
				opened.Add(1)
				go func() {
					if err := c.end(); !over(ctx, err) {
						closed.Add(1)
					}
				}()
			}
		})
		outcome := t.after("%d opened, %v", opened.Load(), &failed)
		<-ctx.Done()
		return fmt.Sprintf("%s; %d closed by the broker", outcome, closed.Load())
	}
}

// silent opens connections and sends only the protocol header on each.
func silent(ctx context.Context, t *target) string {
	var ended errorCount
	var all sync.WaitGroup
	for range 5000 {
		c, err := t.dial(ctx)
		if err != nil {
			return t.after("%v", err)
		}
		t.keep(c.conn)
		_ = c.write(amqpwire.ProtocolHeader[:])
		all.Go(func() {
			if err := c.end(); ctx.Err() == nil {
				ended.add(err)
			}
		})
	}
	all.Wait()
	if ended.n == 0 {
		return "not stopped"
	}
	return t.after("%d of 5,000 closed by the broker (%v)", ended.n, ended.first)
}

func churn(ctx context.Context, t *target) string {
	var n counter
	var failed errorCount
	parallel(8, func(int) {
		for ctx.Err() == nil {
			c, err := t.dial(ctx)
			if err == nil {
				err = c.handshake("guest", "guest")
				_ = c.conn.Close()
			}
			switch {
			case err == nil:
				n.Add(1)
			case !over(ctx, err):
				failed.add(err)
			}
		}
	})
	return t.after("not stopped: %d connections, %v", n.Load(), &failed)
}

func channelChurn(ctx context.Context, t *target) string {
	c, err := t.connect(ctx)
	if err != nil {
		return t.outcome(ctx, c, err)
	}
	pair, _ := amqpwire.AppendMethodFrame(nil, 1, &amqpwire.ChannelOpen{})
	pair, _ = amqpwire.AppendMethodFrame(pair, 1, &amqpwire.ChannelClose{ReplyCode: 200})
	many := bytes.Repeat(pair, 100)
	go func() { _, _ = io.Copy(io.Discard, c.conn) }()
	var n int
	outcome := t.repeat(ctx, c, func(int) error {
		n += 100
		return c.write(many)
	})
	return fmt.Sprintf("%s: %d channels", outcome, n)
}

func guess(ctx context.Context, t *target) string {
	var refused, held counter
	var other errorCount
	parallel(50, func(int) {
		for ctx.Err() == nil {
			began := time.Now()
			_, err := t.connectAs(ctx, "guest", "wrong")
			switch {
			case over(ctx, err):
			case err == nil || !strings.Contains(err.Error(), "403"):
				other.add(err)
			case time.Since(began) > time.Second:
				held.Add(1)
			default:
				refused.Add(1)
			}
		}
	})
	outcome := t.after("%d refused immediately, %d held for seconds", refused.Load(), held.Load())
	if other.n > 0 {
		outcome += ", " + other.String()
	}
	return outcome
}

// request sends a request to the management API, and returns the number of bytes in the response.
func (t *target) request(ctx context.Context, method, path string, body io.Reader) (int64, error) {
	r, err := http.NewRequestWithContext(ctx, method, t.management+path, body)
	if err != nil {
		return 0, err
	}
	r.SetBasicAuth("guest", "guest")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	if answer.StatusCode/100 != 2 {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 300))
		return 0, fmt.Errorf("%s %s", answer.Status, text)
	}
	return io.Copy(io.Discard, answer.Body)
}

// queues returns a definitions document with n queues, whose names begin with prefix.
func queues(prefix string, n int) []byte {
	b := []byte(`{"queues":[`)
	for i := range n {
		b = fmt.Appendf(b, `{"name":"%s-%06d","vhost":"/"},`, prefix, i)
	}
	return append(b[:len(b)-1], "]}"...)
}

func manyQueues(ctx context.Context, t *target) error {
	_, err := t.request(ctx, "POST", "/api/definitions", bytes.NewReader(queues("queue", 100_000)))
	return err
}

func list(path string) func(context.Context, *target) string {
	return func(ctx context.Context, t *target) string {
		var read counter
		var failed errorCount
		parallel(6, func(int) {
			n, err := t.request(ctx, "GET", path, nil)
			if read.Add(n); err != nil {
				failed.add(err)
			}
		})
		return t.after("got %s, %v", size(read.Load()), &failed)
	}
}

// unreadList requests a list on many connections and does not read the responses.
func unreadList(ctx context.Context, t *target) string {
	var waited counter
	parallel(100, func(int) {
		r, _ := http.NewRequestWithContext(ctx, "GET", t.management+"/api/queues", nil) // cannot fail: the URL is valid
		r.SetBasicAuth("guest", "guest")
		answer, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			waited.Add(1)
			return
		}
		defer answer.Body.Close()
		<-ctx.Done()
	})
	return fmt.Sprintf("%d of 100 requests waited for the others until the end", waited.Load())
}

func definitions(ctx context.Context, t *target) string {
	var failed errorCount
	parallel(6, func(i int) {
		body := queues(fmt.Sprint("d", i), 500_000)
		t.sent.Add(int64(len(body)))
		if _, err := t.request(ctx, "POST", "/api/definitions", bytes.NewReader(body)); err != nil {
			failed.add(err)
		}
	})
	return t.after("3,000,000 queues, %v", &failed)
}

// endless sends a body of 1 GB without a Content-Length.
func endless(ctx context.Context, t *target) string {
	body := io.TeeReader(io.LimitReader(spaceReader{}, 1<<30), countingWriter{&t.sent})
	_, err := t.request(ctx, "POST", "/api/definitions", struct{ io.Reader }{body})
	if err == nil {
		err = errors.New("accepted")
	}
	return t.after("%v", err)
}

type spaceReader struct{}

func (spaceReader) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = ' '
	}
	return len(b), nil
}

type countingWriter struct{ n *counter }

func (c countingWriter) Write(b []byte) (int, error) {
	c.n.Add(int64(len(b)))
	return len(b), nil
}
