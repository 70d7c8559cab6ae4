package notification

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/reprisemq/reprise/internal/pemfile"
)

// Format is the format of the messages of a webhook.
type Format string

// The formats.
const (
	JSON  Format = "json"  // docs/notifications.md contains the schema
	Slack Format = "slack" // an incoming webhook of Slack, or of a compatible service
	Teams Format = "teams" // a workflow of Microsoft Teams that posts an Adaptive Card
)

// Webhook is a receiver of messages.
type Webhook struct {
	URL    string // http or https; may contain a secret, so it is not logged
	Format Format
	Secret string // if empty, messages are not signed
	Events []Kind // if empty, all kinds

	Authorities *x509.CertPool // of the receiver's certificate; nil: the authorities of the system
}

// Validate returns an error for an unusable webhook. The error does not contain the values of URL and Secret.
func (w *Webhook) Validate() error {
	u, err := url.Parse(w.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return errors.New("URL must begin with https:// or http:// and a host")
	}
	if !slices.Contains([]Format{JSON, Slack, Teams}, w.Format) {
		return fmt.Errorf("format %q not found (use json, slack or teams)", w.Format)
	}
	if w.Secret != "" {
		if _, err := key(w.Secret); err != nil {
			return err
		}
	}
	for _, k := range w.Events {
		if !slices.Contains(Kinds(), k) {
			return fmt.Errorf("event %q not found", k)
		}
	}
	return nil
}

// Name returns the host of the URL, for logs.
func (w *Webhook) Name() string {
	if u, err := url.Parse(w.URL); err == nil {
		return u.Host
	}
	return "?"
}

// id identifies the webhook in the database.
func (w *Webhook) id() string {
	sum := sha256.Sum256([]byte(w.URL))
	return hex.EncodeToString(sum[:16])
}

func (w *Webhook) wants(k Kind) bool {
	return len(w.Events) == 0 || slices.Contains(w.Events, k)
}

// secretPrefix is the prefix of a secret in Standard Webhooks (https://www.standardwebhooks.com).
const secretPrefix = "whsec_"

// key returns the bytes of a secret.
func key(secret string) ([]byte, error) {
	text, found := strings.CutPrefix(secret, secretPrefix)
	k, err := base64.StdEncoding.DecodeString(text)
	if !found || err != nil || len(k) < 24 || len(k) > 64 {
		return nil, errors.New("secret must be whsec_ and 24 to 64 bytes in base64 (openssl rand -base64 32 prints 32)")
	}
	return k, nil
}

// sign returns the signature of a message.
func sign(secret, id string, at time.Time, body []byte) (string, error) {
	k, err := key(secret)
	if err != nil {
		return "", err
	}
	mac := hmac.New(sha256.New, k)
	fmt.Fprintf(mac, "%s.%d.%s", id, at.Unix(), body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)), nil
}

// Limits of a request.
const (
	requestTimeout = 15 * time.Second
	maxAnswer      = 4 << 10 // maximum number of bytes read from a response
)

// newClient returns a client that does not follow redirects. It trusts the authorities, or those of the system if trusted
// is nil.
func newClient(trusted *x509.CertPool) *http.Client {
	transport := pemfile.Transport(trusted)
	transport.MaxResponseHeaderBytes = 64 << 10
	return &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// accepted reports whether a status means that the receiver has accepted the message.
func accepted(status int) bool { return status >= 200 && status < 300 }

// post sends a message once. ctx must have a deadline. The error does not contain the URL. The caller closes the body
// of the response.
func (w *Webhook) post(ctx context.Context, client *http.Client, id string, at time.Time, body []byte) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.URL, bytes.NewReader(body))
	if err != nil {
		return nil, errors.New("cannot use the URL") // err contains the URL
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "Reprise")
	r.Header.Set("webhook-id", id)
	r.Header.Set("webhook-timestamp", strconv.FormatInt(at.Unix(), 10))
	if w.Secret != "" {
		signature, err := sign(w.Secret, id, at, body)
		if err != nil {
			return nil, err
		}
		r.Header.Set("webhook-signature", signature)
	}
	answer, err := client.Do(r)
	if err != nil {
		if bad, ok := errors.AsType[*url.Error](err); ok {
			err = bad.Err
			if bad.Timeout() {
				err = errors.New("timed out before the receiver responded")
			}
		}
		return nil, err
	}
	return answer, nil
}

// Answer is the response of a receiver.
type Answer struct {
	Status int
	Text   string // beginning of the first line of the body
}

// ErrNotAccepted is returned if the status of the response is not 2xx.
var ErrNotAccepted = errors.New("not accepted")

// Try sends a test message once. The answer is nil if the receiver does not respond. The error does not contain the
// URL.
func (w *Webhook) Try(ctx context.Context, console string) (*Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	now := time.Now().UTC()
	m, err := newMessage(w.Format, console, now, &batch{
		Events: []Event{{Kind: Test, Time: now, Subject: "test", Title: "Test of a webhook", Detail: "Nothing needs attention"}},
		Counts: map[Kind]int64{Test: 1},
	})
	if err != nil {
		return nil, err
	}
	answer, err := w.post(ctx, newClient(w.Authorities), m.id, now, m.body)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(answer.Body, maxAnswer)) // a partial body is sufficient
	if !accepted(answer.StatusCode) {
		err = ErrNotAccepted
	}
	return &Answer{answer.StatusCode, line(string(text))}, err
}
