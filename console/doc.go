// Package console serves web pages and a JSON API for the work on failed messages, over a
// [failed.Archive].
//
//	c, err := console.New(console.Config{Archive: archive, Replayer: replayer})
//	http.Serve(listener, c)
//
// Without Config.Tokens only this machine has access, as an administrator: the connection must
// come from a loopback address and ask for a loopback host, so that no page of another site can
// have its own name lead here (DNS rebinding). Forwarded requests are refused, but a proxy need
// not mark them: a console behind a proxy needs tokens.
//
// With tokens, every visitor needs one. A program sends it with each request ("Authorization:
// Bearer …"). A browser sends it to /login once and has a session of twelve hours, or until the
// program ends. A token has one of three roles, each of which includes those before it:
//
//	view     read everything but secrets (failed.Config.Redact)
//	operate  replay, edit, discard, and undo
//	admin    see secrets, import, purge
//
// An address that sends wrong tokens has to wait longer and longer. Tokens of NewToken cannot be
// guessed and do not wait for wrong ones of the same address, such as a proxy's.
//
// A request that changes something must not come from another site's page
// ([http.CrossOriginProtection]); one with a session must say where it comes from. Pages load
// only scripts and styles of the console, and show messages as text, never as markup. Visitors
// who may not see secrets get "[redacted]", and can neither change nor export what they do
// not see. Tokens are not encrypted: beyond this machine the console needs HTTPS.
//
// /api/v1/openapi.json describes the API. An error is an object with error and advice. An act on
// many messages takes a filter and ?dry_run=true, which counts them, and needs "all": true to
// select all. The archive's audit log has every act with the name of the token, or, without
// tokens, with the header Reprise-Actor or "local". Bytes that are not UTF-8 are "base64:"
// strings.
//
// Requests go down the packages of console/internal: web (origin, role, parameters), then pages
// or jsonapi (handlers); access, show, editor, figures and flow do the parts that know no
// requests. A new column of the lists of messages: see package pages.
package console
