package serve

import (
	"context"
	"log/slog"
	"net"
	"net/http"
)

// Socket serves HTTP on a Unix socket until stop is called. stop removes the socket, and waits for running requests until ctx is
// done. Requests have no time limit: their clients are commands of the same user.
func Socket(l net.Listener, h http.Handler, log *slog.Logger) (stop func(ctx context.Context)) {
	server := &http.Server{Handler: h, ReadHeaderTimeout: webReadTimeout, ErrorLog: WebLog(log)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l) // runs until the listener is closed, which removes the socket
	}()
	return func(ctx context.Context) {
		if server.Shutdown(ctx) != nil {
			_ = server.Close()
		}
		<-done
	}
}

// SocketClient returns a client for the server of a Unix socket. The client ignores the host of the URL.
func SocketClient(path string) *http.Client {
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		},
	}}
}
