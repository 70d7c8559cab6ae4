// Package console is the place where people work on messages that failed: web pages
// and a JSON API over a [failed.Archive].
//
//	request ─► headers ─► same origin? ─► route ─► who is it? ─► may they? ─► size ─┬─► page
//	                                                                               └─► /api/v1: resource ─► JSON
//
//	c, err := console.New(console.Config{Archive: archive, Replayer: replayer})
//	http.Serve(listener, c)
//
// # Who may do what
//
// Without Config.Tokens only this machine gets in, as an administrator: the
// connection must come from a loopback address and ask for a loopback host by its
// name or address, so that no page of another site can have its own name lead here
// (DNS rebinding). A proxy makes the whole world come from loopback: what says that
// it was forwarded is refused, but a proxy need not say so. A console behind a proxy
// wants tokens.
//
// With tokens nobody gets in without one, from wherever. A program sends it with each
// request ("Authorization: Bearer …"); a browser sends it once, to /login, and then
// has a session for twelve hours, or until the program ends. Its cookie is out of
// reach of scripts and of other sites. A token has one of three roles, each of which
// includes those before it:
//
//	view     read everything but secrets (failed.Config.Redact)
//	operate  replay, edit, discard, and undo
//	admin    see secrets, import, purge
//
// Whoever sends wrong tokens has to wait longer and longer, by address: behind a proxy
// that is one for all who come through it. Right tokens do not wait for the wrong ones of
// others if they are such as NewToken makes, whose 256 bits cannot be guessed; others
// do, since waiting is what they are protected by.
//
// A request that changes something must not come from another site's page
// ([http.CrossOriginProtection]); one with a session must say where it comes from.
// Pages run no script and no style but the console's own, and what messages contain
// is text on them, never markup. Those who may not see secrets get
// [failed.Redacted] in their place; they can change neither what they cannot see
// nor export it.
//
// Tokens travel as they are: beyond this machine the console wants HTTPS.
//
// # The API
//
// /api/v1/openapi.json describes it, package internal/api has its types. Lists are
// paged by cursor. An error is an object with error and advice. What can have many
// messages in its hands takes a filter and ?dry_run=true, which counts them; to
// select all of them wants to be said ("all": true). Every act is in the
// archive's audit log with who did it: the name of the token. Without tokens it is
// what the header Reprise-Actor says, or "local".
//
// Strings that AMQP has as bytes (names, header names and values, properties) are
// JSON strings where they are UTF-8, and else "base64:" followed by their bytes.
package console
