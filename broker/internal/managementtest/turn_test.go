package managementtest

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprisemq/reprise/broker"
)

// pipes is a listener without sockets.
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

// ask sends a request for all queues, and returns the connection.
func (p *pipes) ask(t *testing.T) net.Conn {
	client, server := net.Pipe()
	p.conns <- server
	r, err := http.NewRequest("GET", "http://pipes/api/queues", nil)
	must(t, err)
	r.SetBasicAuth("guest", "guest")
	must(t, r.Write(client))
	return client
}

// Two lists of a user are in work at a time. Who waits for those that do not read theirs has as much time to read as they had.
func TestATurnIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, err := broker.New(broker.Config{Definitions: manyDefinitions(1000)})
		must(t, err)
		defer func() { must(t, b.Shutdown(context.Background())) }()
		const timeout = 30 * time.Second
		l, s := newPipes(), &http.Server{Handler: b.Management(), WriteTimeout: timeout}
		var serving sync.WaitGroup
		serving.Go(func() { _ = s.Serve(l) }) // ErrServerClosed
		defer serving.Wait()
		defer s.Close()

		begin := time.Now()
		for range 2 {
			defer l.ask(t).Close()
		}
		synctest.Wait()
		time.Sleep(time.Second)
		third := l.ask(t)
		defer third.Close()
		first := bufio.NewReader(third)
		if _, err := first.Peek(1); err != nil || time.Since(begin) != timeout {
			t.Errorf("the third answer began after %v: %v", time.Since(begin), err)
		}
		time.Sleep(timeout / 2)
		answer, err := http.ReadResponse(first, nil)
		must(t, err)
		defer answer.Body.Close()
		if text, err := io.ReadAll(answer.Body); err != nil || len(text) < 500_000 {
			t.Errorf("%d bytes of the third answer: %v", len(text), err)
		}
	})
}
