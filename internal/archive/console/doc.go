// Package console serves web pages and a JSON API for failed messages in a [store.Archive].
//
//	c, err := console.New(console.Config{Archive: archive, Replayer: replayer})
//	http.Serve(listener, c)
//
// Without Config.Tokens, only local users have access, with the role admin. A request must come from a loopback
// address, and its Host header must name a loopback host, so that another site cannot reach the console through a host
// name that resolves to this machine (DNS rebinding). The console also refuses requests with a header that proxies add,
// such as X-Forwarded-For. Some proxies do not add such headers, so configure tokens if the console is behind a proxy.
//
// With tokens, every visitor needs a token. A program sends its token with each request, in the header Authorization
// ("Authorization: Bearer …"), or in Reprise-Token if a proxy needs the header Authorization. A browser sends the token to /login once, and gets a session, which lasts twelve hours
// at most and ends when this program exits. With a valid session, the console ignores the header Authorization, which a
// proxy may set for its own purposes. A token has one of three roles. Each role includes the permissions of the previous
// roles:
//
//	view     read everything except for secrets (store.Config.Redact)
//	operate  replay, edit, discard, and undo
//	admin    see secrets, import, purge
//
// After five wrong tokens from an address, the console makes the address wait before the next attempt. Each further
// wrong token doubles the wait, up to one minute. Tokens from NewToken cannot be guessed, so the console accepts them
// even during the wait. Therefore visitors who send wrong tokens cannot lock out users with tokens from NewToken behind
// the same proxy.
//
// The console refuses a request that changes data if a page of another site sent it ([http.CrossOriginProtection]), or
// if it belongs to a session and has neither an Origin nor a Sec-Fetch-Site header. Pages load only scripts and styles
// that the console serves, and show messages as plain text, never as markup. Visitors without the role admin see
// "[redacted]" instead of secrets, and can neither change nor export them. The console does not encrypt connections.
// Use HTTPS for access from other machines, because requests contain tokens.
//
// /api/v1/openapi.json describes the API. An error is an object with the fields error and advice. An action on several
// messages requires a filter, or "all": true to select all messages. With ?dry_run=true, such an action only counts the
// messages. In JSON, names and values that are not valid UTF-8, or that begin with "base64:", have the form "base64:…".
// The audit log in the archive records each action with its actor, which is the name of the token or, without tokens,
// the value of the header Reprise-Actor (default: "local").
//
// A request passes through the packages of console/internal in this order: web (origin, role, parameters), then pages
// or jsonapi (handlers). The packages access, fault, show, editor, figures and flow do not know the routes. The comment
// of package pages describes how to add a column to the lists of messages.
package console
