package api

import (
	"context"
	"net/http"
	"net/url"
)

// BeginReplay begins a replay, which goes on by itself.
func (c *Client) BeginReplay(ctx context.Context, p Plan) (Replay, error) {
	return call[Replay](ctx, c, http.MethodPost, "replays", nil, p)
}

// WouldReplay counts what BeginReplay would select, by where it would be sent.
func (c *Client) WouldReplay(ctx context.Context, p Plan) (Preview, error) {
	return call[Preview](ctx, c, http.MethodPost, "replays", dry(true), p)
}

// Replay returns how far a replay is.
func (c *Client) Replay(ctx context.Context, id int64) (Replay, error) {
	return get[Replay](ctx, c, at("replays", id), nil)
}

// Replays returns a page of replays, newest first.
func (c *Client) Replays(ctx context.Context, p Page) (Replays, error) {
	return get[Replays](ctx, c, "replays", p.in(url.Values{}))
}

// Cancel ends a replay: what has not been sent is failed again.
func (c *Client) Cancel(ctx context.Context, id int64, reason string) (Replay, error) {
	return call[Replay](ctx, c, http.MethodPost, at("replays", id, "cancel"), nil, Cancel{Reason: reason})
}
