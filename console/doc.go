// Package console serves web pages and a JSON API for failed messages in a [failed.Archive].
//
//	c, err := console.New(console.Config{Archive: archive, Replayer: replayer})
//	http.Serve(listener, c)
//
// Without Config.Tokens, only this machine has access, as an administrator. The connection must come from a loopback
// address and request a loopback host, so that another site cannot use the console through a host name that resolves to
// this machine (DNS rebinding). The console refuses forwarded requests. But a proxy may forward requests without marking
// them, so a console behind a proxy requires tokens.
//
// With tokens, every visitor needs a token. A program sends it with each request ("Authorization: Bearer …"). A browser
// sends it to /login once, and gets a session that lasts twelve hours, or until the program ends. A token has one of three
// roles. Each role includes the permissions of the previous roles:
//
//	view     read everything except for secrets (failed.Config.Redact)
//	operate  replay, edit, discard, and undo
//	admin    see secrets, import, purge
//
// After wrong tokens, an address must wait before the next attempt, for an increasing time. Tokens of NewToken cannot be
// guessed, so the console always accepts them, even if other visitors behind the same proxy have sent wrong tokens.
//
// The console refuses a request that changes data if it comes from a page of another site ([http.CrossOriginProtection]). A
// request with a session must contain its origin. Pages load only scripts and styles of the console, and show messages as
// plain text, never as markup. Visitors who may not see secrets get "[redacted]" instead. They can neither change nor
// export the hidden values. The console does not encrypt tokens. Use HTTPS for access from other machines.
//
// /api/v1/openapi.json describes the API. An error is an object with the fields error and advice. An action on many
// messages requires a filter and accepts ?dry_run=true, which counts the messages. It requires "all": true to select all
// messages. The archive's audit log records all actions with their actor. The actor is the name of the token or, without
// tokens, the value of the header Reprise-Actor or "local". Bytes that are not UTF-8 are "base64:" strings.
//
// A request passes through the packages of console/internal in this order: web (origin, role, parameters), then pages or
// jsonapi (handlers). The packages access, show, editor, figures and flow contain the parts that are independent of
// requests. For a new column in the lists of messages, see package pages.
package console
