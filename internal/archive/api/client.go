package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/brief"
)

// Client is a client of a console. Its methods are safe for concurrent use. They return an *[Error] for an unsuccessful
// response.
type Client struct {
	base  *url.URL
	token string
	actor string
	http  *http.Client
}

// ClientConfig configures a Client. URL is required.
type ClientConfig struct {
	URL   string       // such as http://localhost:8085
	Token string       // "" if the console has no tokens
	Actor string       // actor on a console without tokens, such as cli:root@host
	HTTP  *http.Client // default http.DefaultClient
}

// NewClient returns a client for cfg. It does not connect. It returns an error if cfg.URL is not valid.
func NewClient(cfg ClientConfig) (*Client, error) {
	u, err := url.Parse(cfg.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("console must be a URL such as http://host:port or https://host: got %s", brief.Quoted(Shown(cfg.URL)))
	}
	client := *cmp.Or(cfg.HTTP, http.DefaultClient)
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse } // another host must not get the token
	return &Client{u, cfg.Token, cfg.Actor, &client}, nil
}

// Shown returns a URL for messages: without the user and the password, even if the URL is not valid.
func Shown(raw string) string {
	scheme, rest, ok := strings.Cut(raw, "//")
	if !ok {
		scheme, rest = "", raw
	} else {
		scheme += "//"
	}
	host, path := rest, ""
	if i := strings.IndexAny(rest, "/?#"); i >= 0 && strings.Contains(rest[:i], "@") == strings.Contains(rest, "@") {
		host, path = rest[:i], rest[i:]
	}
	return scheme + host[strings.LastIndexByte(host, '@')+1:] + path
}

// TokenHeader is the header with the token of a request that has a user for a proxy in its Authorization header.
const TokenHeader = "Reprise-Token"

// maxError is the maximum number of bytes that the client reads from an error response.
const maxError = 64 << 10

// send sends a request and returns the response if it is successful. The caller must close the body.
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
	switch {
	case c.token == "":
	case c.base.User != nil: // the HTTP client sends the user and the password, which a proxy requires
		r.Header.Set(TokenHeader, c.token)
	default:
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
		e.Advice = "is there a console at " + Shown(c.base.String()) + "?"
	}
	return nil, e
}

// call sends the value of in as JSON, unless in is nil, and returns the decoded response.
func call[T any](ctx context.Context, c *Client, method, path string, query url.Values, in any) (T, error) {
	var body io.Reader
	kind := ""
	if in != nil {
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false) // a patch is sent unchanged
		if err := e.Encode(in); err != nil {
			return *new(T), err
		}
		body, kind = &b, "application/json"
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
	d.UseNumber() // details of an act may have 64-bit numbers
	if err := d.Decode(&v); err != nil {
		return v, fmt.Errorf("cannot decode the response of the console: %w", err)
	}
	return v, nil
}

// Page selects a section of a list.
type Page struct {
	After string // Next of the previous page; "" for the first page
	Size  int    // maximum number of items; 0: default of the console
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

// at returns the path of the object with the given ID, followed by rest.
func at(kind string, id int64, rest ...string) string {
	return strings.Join(append([]string{kind, strconv.FormatInt(id, 10)}, rest...), "/")
}

func dry(isDryRun bool) url.Values {
	if isDryRun {
		return url.Values{"dry_run": {"true"}}
	}
	return nil
}

// Me returns the identity and role that the console assigns to the client.
func (c *Client) Me(ctx context.Context) (Me, error) {
	return get[Me](ctx, c, "me", nil)
}

// Messages returns a page of messages, the latest failure first.
func (c *Client) Messages(ctx context.Context, f failed.Filter, p Page) (Messages, error) {
	return get[Messages](ctx, c, "messages", p.in(f.Values()))
}

// Count returns the number of messages that f selects.
func (c *Client) Count(ctx context.Context, f failed.Filter) (store.Total, error) {
	return get[store.Total](ctx, c, "messages/count", f.Values())
}

// Message returns a message with its content.
func (c *Client) Message(ctx context.Context, id int64) (Message, error) {
	return get[Message](ctx, c, at("messages", id), nil)
}

// Revisions returns the times and authors of the edits of a message.
func (c *Client) Revisions(ctx context.Context, id int64) (Revisions, error) {
	return get[Revisions](ctx, c, at("messages", id, "revisions"), nil)
}

// Revision returns the content of a message after an edit.
func (c *Client) Revision(ctx context.Context, id int64, number int) (Revision, error) {
	return get[Revision](ctx, c, at("messages", id, "revisions", strconv.Itoa(number)), nil)
}

// Diff returns the differences between the original and the edited message.
func (c *Client) Diff(ctx context.Context, id int64) (Diff, error) {
	return get[Diff](ctx, c, at("messages", id, "diff"), nil)
}

// Edit changes the content that a replay sends for a message. It returns the edited message.
func (c *Client) Edit(ctx context.Context, id int64, e Edit) (Message, error) {
	return call[Message](ctx, c, http.MethodPut, at("messages", id, "edit"), nil, e)
}

// EditAndReplay changes the content of a message and begins its replay, in one transaction. If the revision of the
// message is not e.Revision, EditAndReplay fails and does neither.
func (c *Client) EditAndReplay(ctx context.Context, id int64, e EditAndReplay) (Replay, error) {
	return call[Replay](ctx, c, http.MethodPost, at("messages", id, "replay"), nil, e)
}

// Revert removes the edits of a message. The argument seen must be the current revision of the message; otherwise
// Revert fails.
func (c *Client) Revert(ctx context.Context, id int64, seen int) (Message, error) {
	return call[Message](ctx, c, http.MethodDelete, at("messages", id, "edit"), url.Values{"revision": {strconv.Itoa(seen)}}, nil)
}

// Discard removes messages from the list. A dry run only counts the messages.
func (c *Client) Discard(ctx context.Context, d Discard, dryRun bool) (Done, error) {
	return call[Done](ctx, c, http.MethodPost, "discard", dry(dryRun), d)
}

// Restore undoes Discard. A dry run only counts the messages.
func (c *Client) Restore(ctx context.Context, s failed.Selection, dryRun bool) (Done, error) {
	return call[Done](ctx, c, http.MethodPost, "restore", dry(dryRun), s)
}

// Purge removes the messages that are older than the archive's retention. A dry run only counts the messages.
func (c *Client) Purge(ctx context.Context, dryRun bool) (Done, error) {
	return call[Done](ctx, c, http.MethodPost, "purge", dry(dryRun), nil)
}

// Erase permanently deletes the contents of messages. A dry run only counts the messages.
func (c *Client) Erase(ctx context.Context, e Erase, dryRun bool) (Done, error) {
	return call[Done](ctx, c, http.MethodPost, "erase", dry(dryRun), e)
}

// PurgeQueue removes the oldest messages of a broker queue. One call removes at most several thousand messages. A dry run
// only counts the ready messages.
func (c *Client) PurgeQueue(ctx context.Context, p PurgeQueue, dryRun bool) (Done, error) {
	return call[Done](ctx, c, http.MethodPost, "queues/purge", dry(dryRun), p)
}

// Peek looks at the first messages of a broker queue. A dry run only returns the cost.
func (c *Client) Peek(ctx context.Context, p Peek, dryRun bool) (Peeks, error) {
	return call[Peeks](ctx, c, http.MethodPost, "queues/peek", dry(dryRun), p)
}

// Publish publishes a message and records the act in the audit log.
func (c *Client) Publish(ctx context.Context, p Publish) (Published, error) {
	return call[Published](ctx, c, http.MethodPost, "publish", nil, p)
}

const jsonLines = "application/x-ndjson"

// Export writes messages as JSON Lines and returns the number of bytes. If it returns an error, the output is
// incomplete.
func (c *Client) Export(ctx context.Context, f failed.Filter, w io.Writer) (int64, error) {
	answer, err := c.send(ctx, http.MethodGet, "messages/export", f.Values(), "", nil)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	n, err := io.Copy(w, answer.Body)
	if err != nil {
		return n, fmt.Errorf("export is incomplete: %w", err)
	}
	return n, nil
}

// Import archives the messages in r, which must be the output of Export, and returns the number of new messages.
func (c *Client) Import(ctx context.Context, r io.Reader) (Done, error) {
	answer, err := c.send(ctx, http.MethodPost, "messages/import", nil, jsonLines, r)
	if err != nil {
		return Done{}, err
	}
	defer answer.Body.Close()
	return decode[Done](answer.Body)
}

// Groups returns a page of groups.
func (c *Client) Groups(ctx context.Context, f GroupFilter, p Page) (Groups, error) {
	return get[Groups](ctx, c, "groups", p.in(f.Values()))
}

// Group returns the group with the given ID.
func (c *Client) Group(ctx context.Context, id int64) (store.Group, error) {
	return get[store.Group](ctx, c, at("groups", id), nil)
}

// Mute excludes a group from notifications and returns the muted group.
func (c *Client) Mute(ctx context.Context, id int64, m Mute) (store.Group, error) {
	return call[store.Group](ctx, c, http.MethodPut, at("groups", id, "mute"), nil, m)
}

// Unmute undoes Mute.
func (c *Client) Unmute(ctx context.Context, id int64) (store.Group, error) {
	return call[store.Group](ctx, c, http.MethodDelete, at("groups", id, "mute"), nil, nil)
}

// Merge merges groups and returns the resulting group.
func (c *Client) Merge(ctx context.Context, m Merge) (store.Group, error) {
	return call[store.Group](ctx, c, http.MethodPost, "groups/merge", nil, m)
}

// Unmerge undoes the merges into a group.
func (c *Client) Unmerge(ctx context.Context, id int64) (Done, error) {
	return call[Done](ctx, c, http.MethodDelete, at("groups", id, "merge"), nil, nil)
}

// Regroup moves messages to the groups in which they would arrive now.
func (c *Client) Regroup(ctx context.Context, r Regroup) (Done, error) {
	return call[Done](ctx, c, http.MethodPost, "groups/regroup", nil, r)
}

// Queues counts the archived messages of each work queue.
func (c *Client) Queues(ctx context.Context) (Queues, error) {
	return get[Queues](ctx, c, "queues", nil)
}

// Acts returns a page of the audit log, newest first.
func (c *Client) Acts(ctx context.Context, f store.ActFilter, p Page) (Acts, error) {
	return get[Acts](ctx, c, "acts", p.in(ActParams(&f).Values()))
}

// BeginReplay begins a replay. The replay continues in the background.
func (c *Client) BeginReplay(ctx context.Context, p Plan) (Replay, error) {
	return call[Replay](ctx, c, http.MethodPost, "replays", nil, p)
}

// WouldReplay returns the number of messages that BeginReplay would send to each destination, and a preview of the edit,
// if any.
func (c *Client) WouldReplay(ctx context.Context, p Plan) (Preview, error) {
	return call[Preview](ctx, c, http.MethodPost, "replays", dry(true), p)
}

// Replay returns the progress of a replay.
func (c *Client) Replay(ctx context.Context, id int64) (Replay, error) {
	return get[Replay](ctx, c, at("replays", id), nil)
}

// Replays returns a page of replays, newest first.
func (c *Client) Replays(ctx context.Context, p Page) (Replays, error) {
	return get[Replays](ctx, c, "replays", p.in(url.Values{}))
}

// Cancel cancels a replay. Messages that were not sent return to state failed.
func (c *Client) Cancel(ctx context.Context, id int64, reason string) (Replay, error) {
	return call[Replay](ctx, c, http.MethodPost, at("replays", id, "cancel"), nil, Cancel{Reason: reason})
}

// Error is the body of an unsuccessful response.
type Error struct {
	Status int    `json:"-"`
	Text   string `json:"error"`
	Advice string `json:"advice"` // recommended action
}

func (e *Error) Error() string { return e.Text + ": " + e.Advice }
