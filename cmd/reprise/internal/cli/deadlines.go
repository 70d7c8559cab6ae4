package cli

import (
	"io"
	"net/http"
	"time"
)

// untiring gives requests to a handler as long as they take, while something moves:
// each read and each write has the time of serveWeb anew. It is for what is long,
// such as an export, and for what is told as it happens.
func untiring(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := http.NewResponseController(w)
		_ = c.SetWriteDeadline(time.Now().Add(stillness)) // it fails where there are no deadlines
		r.Body = &movingBody{ReadCloser: r.Body, c: c, began: time.Now()}
		h.ServeHTTP(&movingWriter{w, c}, r)
	})
}

// stillness is how long nothing may move, and slowest how many bytes of a request come
// in a second at the least after that: drop by drop, nobody holds a connection for days.
const (
	stillness = time.Minute
	slowest   = 1 << 10
)

type movingWriter struct {
	http.ResponseWriter
	c *http.ResponseController
}

// Write implements [io.Writer].
func (w *movingWriter) Write(b []byte) (int, error) {
	_ = w.c.SetWriteDeadline(time.Now().Add(stillness))
	return w.ResponseWriter.Write(b)
}

// Unwrap is for [http.ResponseController].
func (w *movingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

type movingBody struct {
	io.ReadCloser
	c     *http.ResponseController
	began time.Time
	n     int64 // bytes read
}

// Read implements [io.Reader].
func (b *movingBody) Read(p []byte) (int, error) {
	left := stillness + time.Duration(b.n/slowest)*time.Second - time.Since(b.began)
	_ = b.c.SetReadDeadline(time.Now().Add(min(stillness, left)))
	n, err := b.ReadCloser.Read(p)
	b.n += int64(n)
	return n, err
}
