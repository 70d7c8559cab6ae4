package managementtest

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/broker"
)

// pipes is a listener for in-memory connections.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
	close func()
}

func newPipes() *pipes {
	done := make(chan struct{})
	return &pipes{conns: make(chan net.Conn), done: done, close: sync.OnceFunc(func() { close(done) })}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.close()
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Net: "unix", Name: "pipes"} }

// ask sends a request on a new connection, and returns the connection without reading the response.
func (p *pipes) ask(t *testing.T, method, path, body string) net.Conn {
	client, server := net.Pipe()
	p.conns <- server
	r, err := http.NewRequest(method, "http://pipes"+path, strings.NewReader(body))
	must(t, err)
	r.SetBasicAuth("guest", "guest")
	must(t, r.Write(client))
	return client
}

// Read and write timeouts of the test server.
const (
	readTimeout  = 10 * time.Second
	writeTimeout = 30 * time.Second
)

// serveLists starts a broker with 1,000 queues and serves its API.
func serveLists(t *testing.T) (*broker.Broker, *pipes) {
	b, err := broker.New(broker.Config{Definitions: manyDefinitions(1000)})
	must(t, err)
	l, s := newPipes(), &http.Server{Handler: b.Management(), ReadTimeout: readTimeout, WriteTimeout: writeTimeout}
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(l) }) // returns ErrServerClosed
	t.Cleanup(func() {
		_ = s.Close()
		serving.Wait()
		must(t, b.Shutdown(context.Background()))
	})
	return b, l
}

// For each user, the server writes at most two lists at a time. A client that had to wait for slow readers still has
// the full write timeout to read its list.
func TestListWaitsForTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l := serveLists(t)
		begin := time.Now()
		for range 2 {
			defer l.ask(t, "GET", "/api/queues", "").Close()
		}
		synctest.Wait()
		time.Sleep(time.Second)
		third := l.ask(t, "GET", "/api/queues", "")
		defer third.Close()
		first := bufio.NewReader(third)
		if _, err := first.Peek(1); err != nil || time.Since(begin) != writeTimeout {
			t.Errorf("start of the third response: got %v, want %v: %v", time.Since(begin), writeTimeout, err)
		}
		time.Sleep(writeTimeout / 2)
		answer, err := http.ReadResponse(first, nil)
		must(t, err)
		defer answer.Body.Close()
		if text, err := io.ReadAll(answer.Body); err != nil || len(text) < 500_000 {
			t.Errorf("third response: got %d bytes, want at least 500000: %v", len(text), err)
		}
	})
}

// Messages in a response use memory until the client has read them. The server therefore removes messages from a queue
// only during the turn of the request.
func TestGetWaitsForTurnBeforeTakingMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, l := serveLists(t)
		ready := func() int { return b.Queues()[0].Ready }
		const publish = `{"properties":{},"routing_key":"q0","payload":"x","payload_encoding":"string"}`
		published, err := http.ReadResponse(bufio.NewReader(l.ask(t, "POST", "/api/exchanges/%2F/amq.default/publish", publish)), nil)
		must(t, err)
		must(t, published.Body.Close())
		if ready() != 1 {
			t.Fatalf("publish: got status %s and %d messages, want 1", published.Status, ready())
		}
		for range 2 {
			defer l.ask(t, "GET", "/api/queues", "").Close()
		}
		synctest.Wait()
		defer l.ask(t, "POST", "/api/queues/%2F/q0/get", `{"ackmode":"ack_requeue_false","encoding":"auto","count":1}`).Close()
		synctest.Wait()
		if ready() != 1 {
			t.Error("request took a message without a turn")
		}
		time.Sleep(writeTimeout)
		synctest.Wait()
		if ready() != 0 {
			t.Error("request did not take a message during its turn")
		}
	})
}

// Each list waits for its turn, including the list of consumers in the description of a queue or channel.
func TestListsTakeTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, l := serveLists(t)
		get[*amqp.Channel](t)(inMemory(t, b).Channel())
		for _, path := range []string{
			"/api/queues/%2F/q0", "/api/channels/memory:1%20-%3E%20memory:0%20(1)",
			"/api/permissions", "/api/vhosts/%2F/permissions", "/api/users/guest/permissions", "/api/users",
			"/api/queues/%2F/q0/bindings", "/api/exchanges/%2F/x0/bindings/source", "/api/bindings/%2F/e/x0/q/q0",
			"/api/definitions", "/metrics/per-object",
		} {
			begin := time.Now()
			for range 2 {
				defer l.ask(t, "GET", "/api/queues", "").Close()
			}
			synctest.Wait()
			answer, err := http.ReadResponse(bufio.NewReader(l.ask(t, "GET", path, "")), nil)
			must(t, err)
			if must(t, answer.Body.Close()); answer.StatusCode != 200 || time.Since(begin) != writeTimeout {
				t.Errorf("%s: got %s after %v, want 200 after %v", path, answer.Status, time.Since(begin), writeTimeout)
			}
		}
	})
}

// If a client sends the body too slowly, the error response reports the timeout and not a size limit.
func TestSlowBodyTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l := serveLists(t)
		for _, path := range []string{"/api/definitions", "/api/vhosts/v"} {
			method := map[bool]string{true: "POST", false: "PUT"}[path == "/api/definitions"]
			client, server := net.Pipe()
			defer client.Close()
			l.conns <- server
			_, err := io.WriteString(client, method+" "+path+" HTTP/1.1\r\nHost: x\r\n"+
				"Authorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\nContent-Length: 100\r\n\r\n{")
			must(t, err)
			answer, err := http.ReadResponse(bufio.NewReader(client), nil)
			must(t, err)
			defer answer.Body.Close()
			text, err := io.ReadAll(answer.Body)
			must(t, err)
			if answer.StatusCode != http.StatusRequestTimeout || !strings.Contains(string(text), "took too long") {
				t.Errorf("%s: got %s: %s, want 408 with \"took too long\"", path, answer.Status, text)
			}
		}
	})
}
