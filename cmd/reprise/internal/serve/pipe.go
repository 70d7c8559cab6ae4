package serve

import (
	"context"
	"net"
	"net/http"
	"sync"
)

// PipeListener accepts connections only from this process, without a port.
type PipeListener struct {
	conns chan net.Conn
	done  chan struct{}
	close func()
}

// NewPipeListener returns a listener.
func NewPipeListener() *PipeListener {
	done := make(chan struct{})
	return &PipeListener{conns: make(chan net.Conn), done: done, close: sync.OnceFunc(func() { close(done) })}
}

// Client returns a client for the server of this listener. The client ignores the host of the URL.
func (l *PipeListener) Client() *http.Client {
	return &http.Client{Timeout: webReadTimeout + webWriteTimeout, Transport: &http.Transport{DialContext: l.dial}}
}

func (l *PipeListener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case l.conns <- far:
		return near, nil
	case <-l.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Accept implements [net.Listener].
func (l *PipeListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (l *PipeListener) Close() error {
	l.close()
	return nil
}

// Addr implements [net.Listener].
func (l *PipeListener) Addr() net.Addr { return &net.UnixAddr{Net: "pipe", Name: "broker"} }
