package handler

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/cmd/reprise/internal/cause"
	"github.com/reprisemq/reprise/internal/pemfile"
)

// DefaultTimeout is the default timeout of an HTTP request.
const DefaultTimeout = 30 * time.Second

// HTTPConfig configures an [HTTP] handler. URL is required.
type HTTPConfig struct {
	// URL is the URL of the service, such as http://host:port/path, or unix:///run/service.sock:/path for a Unix socket.
	URL string

	// Headers are sent with each message and override the headers that come from the message. For example, a
	// Content-Type in Headers applies to all messages.
	Headers http.Header

	// Timeout limits a request, from dialing until the response has been read. Default: 30 s.
	Timeout time.Duration

	// CACertFile is a PEM file with the authorities of the service's certificate. NewHTTP reads it. Default: the authorities
	// of the system.
	CACertFile string

	// CertFile and KeyFile are PEM files with the certificate of this client and its private key. A new connection reads them
	// again, so that a certificate can be renewed. Default: none.
	CertFile, KeyFile string

	// Connections is the maximum number of idle connections that are kept open. Set it to the number of concurrent
	// handlers. Default: 16.
	Connections int

	// If Pause is set and a response with a Retry-After header causes a retry, the worker pauses consumption for the
	// time in the header. Set Pause if this time applies to the whole service, not to one message. Default: false; only
	// the message is delayed.
	Pause bool

	// Secrets are strings that are hidden in errors, even if the service repeats them. Secrets of fewer than four bytes
	// are not hidden. The password and the parameter values of the URL are always secrets.
	Secrets []string

	// Results receives the bodies of successful responses, except those with status 204. Default: none.
	Results *Results

	// Logger logs the names of omitted values. Default: none.
	Logger *slog.Logger
}

// HTTP is a handler that posts each message to a URL. The package comment describes the inputs and outcomes.
//
// HTTP does not follow redirects. A redirected POST could become a GET without a body, or send a message to an address
// that is not configured. If the response is a redirect, HTTP parks the message, with an error that contains the new
// address.
type HTTP struct {
	cfg    HTTPConfig
	client *http.Client
	target string // URL of the requests
	shown  string // URL without secrets, for errors
	hide   *strings.Replacer
}

// NewHTTP returns a handler for cfg, or an error if cfg is invalid.
func NewHTTP(cfg HTTPConfig) (*HTTP, error) {
	u, err := url.Parse(cfg.URL)
	if err != nil {
		return nil, errNoURL
	}
	socket, target, err := UnixSocket(u)
	switch {
	case err != nil:
		return nil, fmt.Errorf("handler: HTTPConfig.URL %w", err)
	case socket == "" && ((u.Scheme != "http" && u.Scheme != "https") || u.Host == ""):
		return nil, errNoURL
	}
	if cfg.Timeout < 0 || cfg.Connections < 0 {
		return nil, fmt.Errorf("handler: HTTPConfig.Timeout and Connections must not be negative: got %s and %d", cfg.Timeout, cfg.Connections)
	}
	cfg.Timeout = cmp.Or(cfg.Timeout, DefaultTimeout)
	cfg.Connections = cmp.Or(cfg.Connections, 16)
	var trusted *x509.CertPool
	if cfg.CACertFile != "" {
		if trusted, err = pemfile.Authorities(cfg.CACertFile); err != nil {
			return nil, err
		}
	}
	hide := hider(cfg.Secrets, u)
	transport := pemfile.Transport(trusted)
	if cfg.CertFile != "" {
		load := func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			c, err := tls.LoadX509KeyPair(cfg.CertFile, cfg.KeyFile)
			return &c, err
		}
		if _, err := load(nil); err != nil {
			return nil, fmt.Errorf("certfile %s, keyfile %s: %w", cfg.CertFile, cfg.KeyFile, err)
		}
		transport.TLSClientConfig.GetClientCertificate = load
	}
	if socket != "" {
		transport.Proxy = nil
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}
	}
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost = cfg.Connections, cfg.Connections
	return &HTTP{
		cfg:    cfg,
		target: target,
		shown:  hide.Replace(shownURL(u)),
		hide:   hide,
		client: &http.Client{
			Transport:     transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

var errNoURL = errors.New("handler: HTTPConfig.URL must be a URL such as http://host:port/path or unix:///run/service.sock:/path")

// maxSocket is the maximum length of the path of a Unix socket on Linux.
const maxSocket = 107

// UnixSocket returns the path of the socket in a URL such as unix:///run/service.sock:/path, and the URL of its requests, whose
// host is localhost. For other schemes, it returns no socket, and u.
func UnixSocket(u *url.URL) (socket, target string, err error) {
	if u.Scheme != "unix" {
		return "", u.String(), nil
	}
	socket, path, found := strings.Cut(u.Path, ":")
	switch {
	case u.Host != "" || u.User != nil || u.Opaque != "" || !strings.HasPrefix(socket, "/"):
		return "", "", errors.New("must have an absolute path after unix://")
	case found && !strings.HasPrefix(path, "/"):
		return "", "", errors.New("must have a path that begins with / after the colon")
	case len(socket) > maxSocket:
		return "", "", fmt.Errorf("must have a socket of at most %d bytes: got %d", maxSocket, len(socket))
	}
	request := url.URL{Scheme: "http", Host: "localhost", Path: cmp.Or(path, "/"), RawQuery: u.RawQuery}
	return socket, request.String(), nil
}

// Close closes the idle connections.
func (h *HTTP) Close() { h.client.CloseIdleConnections() }

// Handle implements [reprise.Handler].
func (h *HTTP) Handle(outer context.Context, m *reprise.Delivery) error {
	ctx, cancel := context.WithTimeoutCause(outer, h.cfg.Timeout, &timeoutError{h.cfg.Timeout})
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.target, bytes.NewReader(m.Body))
	if err != nil {
		return fmt.Errorf("POST %s: %w", h.shown, err)
	}
	h.header(req, m)
	resp, err := h.client.Do(req)
	if err != nil {
		return h.failed(ctx, err)
	}
	defer resp.Body.Close()
	if h.cfg.Results != nil && resp.StatusCode/100 == 2 && resp.StatusCode != http.StatusNoContent {
		return h.result(ctx, outer, m, resp)
	}
	var body []byte
	limit := maxDrain
	failed := resp.StatusCode/100 != 2
	if failed {
		limit = maxReading
	}
	defer time.AfterFunc(limit, cancel).Stop() // a body without an end must not delay the outcome
	if failed {
		if body, err = io.ReadAll(io.LimitReader(resp.Body, maxResponse)); err != nil {
			body = append(body, " (the response was truncated)"...)
		}
	}
	// The connection can be reused only if the body was read completely.
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10)
	return h.outcome(resp, body)
}

// result passes on the body of a response, which ctx limits. The time for the result is not part of it.
func (h *HTTP) result(ctx, outer context.Context, m *reprise.Delivery, resp *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(resp.Body, int64(h.cfg.Results.Max)+1))
	if err != nil {
		return h.failed(ctx, fmt.Errorf("cannot read the result: %w", err))
	}
	return h.cfg.Results.send(outer, m, Result{Body: body, ContentType: resp.Header.Get("Content-Type")})
}

// failed returns the error for a request that got no response.
func (h *HTTP) failed(ctx context.Context, err error) error {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err // the wrapper repeats the URL, sometimes with the password
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if text := err.Error(); h.hide.Replace(text) != text {
		err = errors.New(h.hide.Replace(text))
	}
	return fmt.Errorf("POST %s: %w", h.shown, err)
}

// maxResponse is the maximum size of the part of an unsuccessful response that can contain its cause.
const maxResponse = 256 << 10

// maxReading is the maximum time for reading an unsuccessful response, and maxDrain for a body that nothing uses.
const (
	maxReading = 5 * time.Second
	maxDrain   = time.Second
)

// outcome returns the result of the attempt for a response. The body does not affect the result: a 200 with a truncated
// body is a success.
func (h *HTTP) outcome(resp *http.Response, body []byte) error {
	text := fmt.Sprintf("POST %s: %d %s", h.shown, resp.StatusCode, http.StatusText(resp.StatusCode))
	text = strings.TrimSpace(text)
	if place := resp.Header.Get("Location"); resp.StatusCode/100 == 3 && place != "" {
		if u, err := url.Parse(place); err == nil {
			place = shownURL(u)
		}
		text += fmt.Sprintf(": redirects are not followed; if %s is the right place, configure it as the url of this handler", cut(h.hide.Replace(place), 512))
	} else if found, output := cause.OfBody(resp.Header.Get("Content-Type"), []byte(clean(body))); found != http.StatusText(resp.StatusCode) {
		text = errorText(text, h.hide.Replace(found), h.hide.Replace(output)) // after the decoding of HTML and JSON
	}
	if resp.StatusCode/100 == 2 {
		return nil
	}
	refused := &StatusError{Code: resp.StatusCode, text: text}
	if !Retried(resp.StatusCode) {
		return reprise.Park(refused)
	}
	d, ok := retryAfter(resp.Header)
	switch {
	case ok && h.cfg.Pause:
		return reprise.PauseFor(d, refused)
	case ok:
		return reprise.RetryAfter(d, refused)
	}
	return refused
}

// Retried reports whether an unsuccessful response with this status causes a retry.
func Retried(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	}
	return status >= 500
}

// StatusError is the error of an unsuccessful response.
type StatusError struct {
	Code int
	text string
}

// Error returns the URL, the status, and the cause in the body or, for a redirect, the new address. The next lines contain
// the text of the body.
func (e *StatusError) Error() string { return e.text }

// ErrorType returns the status, for the attribute error.type of a span.
func (e *StatusError) ErrorType() string { return strconv.Itoa(e.Code) }
