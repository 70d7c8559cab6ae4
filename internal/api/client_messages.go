package api

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/reprisemq/reprise/failed"
)

// Me returns who the client is for the console.
func (c *Client) Me(ctx context.Context) (Me, error) {
	return get[Me](ctx, c, "me", nil)
}

// Messages returns a page of messages, the latest failure first.
func (c *Client) Messages(ctx context.Context, f failed.Filter, p Page) (Messages, error) {
	return get[Messages](ctx, c, "messages", p.in(f.Values()))
}

// Count counts messages.
func (c *Client) Count(ctx context.Context, f failed.Filter) (Total, error) {
	return get[Total](ctx, c, "messages/count", f.Values())
}

// Message returns a message with its content.
func (c *Client) Message(ctx context.Context, id int64) (Message, error) {
	return get[Message](ctx, c, at("messages", id), nil)
}

// Revisions returns when a message was edited, and by whom.
func (c *Client) Revisions(ctx context.Context, id int64) (Revisions, error) {
	return get[Revisions](ctx, c, at("messages", id, "revisions"), nil)
}

// Revision returns what an edit made of a message.
func (c *Client) Revision(ctx context.Context, id int64, number int) (Revision, error) {
	return get[Revision](ctx, c, at("messages", id, "revisions", strconv.Itoa(number)), nil)
}

// Diff returns what edits have changed.
func (c *Client) Diff(ctx context.Context, id int64) (Diff, error) {
	return get[Diff](ctx, c, at("messages", id, "diff"), nil)
}

// Edit changes what a replay sends of a message, and returns it as it is then.
func (c *Client) Edit(ctx context.Context, id int64, e Edit) (Message, error) {
	return call[Message](ctx, c, http.MethodPut, at("messages", id, "edit"), nil, e)
}

// EditAndReplay changes what a replay sends of a message and begins to replay it, or does
// neither: if it is at another revision than the one that was seen.
func (c *Client) EditAndReplay(ctx context.Context, id int64, e EditAndReplay) (Replay, error) {
	return call[Replay](ctx, c, http.MethodPost, at("messages", id, "replay"), nil, e)
}

// Revert takes the edits of a message back, of which the latest was seen.
func (c *Client) Revert(ctx context.Context, id int64, seen int) (Message, error) {
	return call[Message](ctx, c, http.MethodDelete, at("messages", id, "edit"), url.Values{"revision": {strconv.Itoa(seen)}}, nil)
}

// Discard drops messages, or, in a dry run, counts them.
func (c *Client) Discard(ctx context.Context, d Discard, dryRun bool) (Done, error) {
	return call[Done](ctx, c, http.MethodPost, "discard", dry(dryRun), d)
}

// Restore undoes Discard, or, in a dry run, counts the messages.
func (c *Client) Restore(ctx context.Context, s Selection, dryRun bool) (Done, error) {
	return call[Done](ctx, c, http.MethodPost, "restore", dry(dryRun), s)
}

// Purge removes, or, in a dry run, counts the messages that are older than the archive's
// retention.
func (c *Client) Purge(ctx context.Context, dryRun bool) (Done, error) {
	return call[Done](ctx, c, http.MethodPost, "purge", dry(dryRun), nil)
}

const jsonLines = "application/x-ndjson"

// Export writes messages as JSON Lines, and returns how many bytes. What has been written
// when it returns an error is not all.
func (c *Client) Export(ctx context.Context, f failed.Filter, w io.Writer) (int64, error) {
	answer, err := c.send(ctx, http.MethodGet, "messages/export", f.Values(), "", nil)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	n, err := io.Copy(w, answer.Body)
	if err != nil {
		return n, fmt.Errorf("the export ended early: %w", err)
	}
	return n, nil
}

// Import archives what Export wrote, and returns how many messages were new.
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

// Group returns a group.
func (c *Client) Group(ctx context.Context, id int64) (Group, error) {
	return get[Group](ctx, c, at("groups", id), nil)
}

// Queues returns what the archive has of each work queue.
func (c *Client) Queues(ctx context.Context) (Queues, error) {
	return get[Queues](ctx, c, "queues", nil)
}

// Acts returns a page of the audit log, newest first.
func (c *Client) Acts(ctx context.Context, p Page) (Acts, error) {
	return get[Acts](ctx, c, "acts", p.in(url.Values{}))
}
