package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// Client speaks to a console. Its methods are safe for concurrent use. An answer that
// is not a success is an *[Error].
type Client struct {
	base  *url.URL
	token string
	actor string
	http  *http.Client
}

// ClientConfig says where the console is. URL is required.
type ClientConfig struct {
	URL   string       // such as http://localhost:8085
	Token string       // "": none is needed
	Actor string       // who acts, where there are no tokens: cli:root@host
	HTTP  *http.Client // default http.DefaultClient
}

// NewClient returns a client, or an error that says what to write instead. It does not
// connect.
func NewClient(cfg ClientConfig) (*Client, error) {
	u, err := url.Parse(cfg.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("console %q: use http://host:port or https://host", cfg.URL)
	}
	if cfg.HTTP == nil {
		cfg.HTTP = http.DefaultClient
	}
	return &Client{u, cfg.Token, cfg.Actor, cfg.HTTP}, nil
}

// maxError bounds what is read of an answer that is an error.
const maxError = 64 << 10

// send sends a request and returns its successful answer, to be closed.
func (c *Client) send(ctx context.Context, method, path string, query url.Values, kind string, body io.Reader) (*http.Response, error) {
	u := c.base.JoinPath("/api/v1", path)
	u.RawQuery = query.Encode()
	r, err := http.NewRequestWithContext(ctx, method, u.String(), body)
	if err != nil {
		return nil, err
	}
	if kind != "" {
		r.Header.Set("Content-Type", kind)
	}
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	if c.actor != "" {
		r.Header.Set("Reprise-Actor", c.actor)
	}
	answer, err := c.http.Do(r)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode >= 200 && answer.StatusCode < 300 {
		return answer, nil
	}
	defer answer.Body.Close()
	b, _ := io.ReadAll(io.LimitReader(answer.Body, maxError))
	e := &Error{Status: answer.StatusCode}
	if json.Unmarshal(b, e) != nil || e.Text == "" {
		e.Text = answer.Status
		e.Advice = "is there a console at " + c.base.Redacted() + "?"
	}
	return nil, e
}

// call sends in as JSON, if it is not nil, and returns the answer.
func call[T any](ctx context.Context, c *Client, method, path string, query url.Values, in any) (T, error) {
	var body io.Reader
	kind := ""
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return *new(T), err
		}
		body, kind = bytes.NewReader(b), "application/json"
	}
	answer, err := c.send(ctx, method, path, query, kind, body)
	if err != nil {
		return *new(T), err
	}
	defer answer.Body.Close()
	return decode[T](answer.Body)
}

func get[T any](ctx context.Context, c *Client, path string, query url.Values) (T, error) {
	return call[T](ctx, c, http.MethodGet, path, query, nil)
}

func decode[T any](r io.Reader) (v T, err error) {
	d := json.NewDecoder(r)
	d.UseNumber() // an act's details may have 64 bits
	if err := d.Decode(&v); err != nil {
		return v, fmt.Errorf("the console's answer cannot be read: %w", err)
	}
	return v, nil
}

// Page is a part of a list.
type Page struct {
	After string // Next of the page before; "" for the first one
	Size  int    // at most so many; 0: the console's default
}

func (p Page) in(v url.Values) url.Values {
	if p.After != "" {
		v.Set("after", p.After)
	}
	if p.Size != 0 {
		v.Set("size", strconv.Itoa(p.Size))
	}
	return v
}

// at returns the path of the thing with this number.
func at(kind string, id int64, rest ...string) string {
	return strings.Join(append([]string{kind, strconv.FormatInt(id, 10)}, rest...), "/")
}

func dry(isDryRun bool) url.Values {
	if isDryRun {
		return url.Values{"dry_run": {"true"}}
	}
	return nil
}
