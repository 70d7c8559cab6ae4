package handler

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/reprisemq/reprise"
)

// DefaultTimeout is how long an HTTP request may take.
const DefaultTimeout = 30 * time.Second

// HTTPConfig describes an HTTP. The URL is required.
type HTTPConfig struct {
	URL string

	// Headers are sent with each message, and win over what the message says:
	// a Content-Type here is the Content-Type of all messages.
	Headers http.Header

	// Timeout of a request, from dialling to the last byte of the answer.
	// Default 30 s.
	Timeout time.Duration

	// Connections is how many are kept open for the next messages: as many as
	// there are handlers at once. Default 16.
	Connections int

	// Pause has the worker consume nothing until the time of a Retry-After: for a
	// service that means itself by it, and not the message. Default: the message
	// alone waits.
	Pause bool

	// Secrets are texts that errors do not show, also where the service repeats them.
	// Those of fewer than four bytes are shown. The password and the values of the
	// parameters of the URL are secrets anyway.
	Secrets []string

	// Logger gets what could not be passed on. Default: none.
	Logger *slog.Logger
}

// HTTP is a handler that posts each message to a URL, see the package comment.
//
// A redirect is not followed: a POST would become a GET without a body, or a
// message would go where the configuration does not say. The message is parked,
// and the error names the place to configure instead.
type HTTP struct {
	cfg    HTTPConfig
	client *http.Client
	shown  string // the URL as errors may show it
	hide   *strings.Replacer
}

// NewHTTP checks the configuration.
func NewHTTP(cfg HTTPConfig) (*HTTP, error) {
	u, err := url.Parse(cfg.URL)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, errors.New("handler: HTTPConfig.URL is no URL such as http://host:port/path")
	}
	if cfg.Timeout < 0 || cfg.Connections < 0 {
		return nil, errors.New("handler: HTTPConfig.Timeout and Connections cannot be negative")
	}
	cfg.Timeout = cmp.Or(cfg.Timeout, DefaultTimeout)
	cfg.Connections = cmp.Or(cfg.Connections, 16)
	hide := hider(cfg.Secrets, u)
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost = cfg.Connections, cfg.Connections
	return &HTTP{
		cfg:   cfg,
		shown: hide.Replace(shownURL(u)),
		hide:  hide,
		client: &http.Client{
			Transport:     transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// Close closes the connections that are kept for the next message.
func (h *HTTP) Close() { h.client.CloseIdleConnections() }

// Handle implements [reprise.Handler].
func (h *HTTP) Handle(ctx context.Context, m *reprise.Message) error {
	ctx, cancel := context.WithTimeoutCause(ctx, h.cfg.Timeout, &timeoutError{h.cfg.Timeout})
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.cfg.URL, bytes.NewReader(m.Body))
	if err != nil {
		return fmt.Errorf("POST %s: %w", h.shown, err)
	}
	h.header(req, m)
	resp, err := h.client.Do(req)
	if err != nil {
		return h.failed(ctx, err)
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorText+1))
	// A little more is read and dropped, so that the connection can be used again.
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10)
	if err != nil {
		said = append(said, " (the answer broke off)"...)
	}
	return h.outcome(resp, said)
}

// failed is the error of a request without an answer.
func (h *HTTP) failed(ctx context.Context, err error) error {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err // what it wraps around has the URL again, and not always without the password
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if text := err.Error(); h.hide.Replace(text) != text {
		err = errors.New(h.hide.Replace(text))
	}
	return fmt.Errorf("POST %s: %w", h.shown, err)
}

// outcome makes an answer the result of the attempt. The status alone counts:
// an answer of 200 whose body breaks off is still a success.
func (h *HTTP) outcome(resp *http.Response, said []byte) error {
	text := fmt.Sprintf("POST %s: %d %s", h.shown, resp.StatusCode, http.StatusText(resp.StatusCode))
	text = strings.TrimSpace(text)
	if place := resp.Header.Get("Location"); resp.StatusCode/100 == 3 && place != "" {
		if u, err := url.Parse(place); err == nil {
			place = shownURL(u)
		}
		text += fmt.Sprintf(": redirects are not followed; if %s is the right place, configure it as the url of this handler", cut(h.hide.Replace(place), 512))
	} else if body := clean([]byte(h.hide.Replace(string(said[:min(len(said), maxErrorText)])))); body != "" {
		text += ": " + body
		if len(said) > maxErrorText {
			text += " …"
		}
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

// Retried reports whether an answer with this status, which is no success, brings
// the message back.
func Retried(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	}
	return status >= 500
}

// StatusError is the error of an answer that was no success.
type StatusError struct {
	Code int
	text string
}

// Error says where it came from, and how the answer begins.
func (e *StatusError) Error() string { return e.text }
