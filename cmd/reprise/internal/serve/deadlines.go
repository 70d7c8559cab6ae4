package serve

import (
	"io"
	"net/http"
	"time"
)

// ProgressDeadlines permits requests of any duration while they make progress. Each read and each write has a separate
// timeout, which replaces the timeouts of Web. Use it for long requests, such as an export, and for event streams.
func ProgressDeadlines(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := http.NewResponseController(w)
		_ = c.SetWriteDeadline(time.Now().Add(progressTimeout)) // fails if the connection does not support deadlines
		r.Body = &progressBody{ReadCloser: r.Body, c: c, began: time.Now()}
		h.ServeHTTP(&progressWriter{w, c}, r)
	})
}

// progressTimeout is the maximum time for one read or write. A request body that takes longer than progressTimeout
// must arrive at minRate bytes per second or more, so that a client cannot hold a connection for days by sending
// single bytes.
const (
	progressTimeout = time.Minute
	minRate         = 1 << 10
)

type progressWriter struct {
	http.ResponseWriter
	c *http.ResponseController
}

// Write implements [io.Writer].
func (w *progressWriter) Write(b []byte) (int, error) {
	_ = w.c.SetWriteDeadline(time.Now().Add(progressTimeout))
	return w.ResponseWriter.Write(b)
}

// Unwrap supports [http.ResponseController].
func (w *progressWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

type progressBody struct {
	io.ReadCloser
	c     *http.ResponseController
	began time.Time
	n     int64 // bytes read
}

// Read implements [io.Reader].
func (b *progressBody) Read(p []byte) (int, error) {
	left := progressTimeout + time.Duration(b.n/minRate)*time.Second - time.Since(b.began)
	_ = b.c.SetReadDeadline(time.Now().Add(min(progressTimeout, left)))
	n, err := b.ReadCloser.Read(p)
	b.n += int64(n)
	return n, err
}
