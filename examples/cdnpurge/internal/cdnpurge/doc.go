// Package cdnpurge is the consumer of a service that purges objects from a CDN,
// with a stand-in for the CDN: several routing keys through one wait exchange, and
// back-off that is on the message itself (preset.CDNPurge).
//
//	url, directory, tag                       POST /purge/{key}
//	──► cdn-purge (direct) ─► cdn-purge (queue) ─► Purger ──────────► CDN ─► 201: ack
//	        ▲                                        │                  its queue is worked off,
//	        │                                        │ 507 queue is full, and full at peak hours
//	        │                                        ▼
//	        └─ expires ─ cdn-purge.wait (queue) ◄─ cdn-purge.wait (direct)
//	                     10 s, 30 s, 90 s …        a copy, under its own key
//
// A message says what to purge: its routing key is the kind of what is named
// (url, directory, tag), its body a JSON array of names. The CDN takes them into a
// queue of its own, and refuses them while that is full, which it is at the hours
// at which everybody purges. Then a message has to wait, and the less it asks in
// the meantime the better.
//
// What comes of an attempt:
//
//	201                nil: done
//	507, 429, 5xx      an error: it comes back. So does it when the CDN cannot be reached
//	other 4xx          reprise.Park: it would be refused for ever
//
// A call carries the message's id as its Idempotency-Key, by which the CDN knows a
// message that is delivered twice: purging twice does no harm, but costs.
//
// TestWeek, beside this, is a week of it in virtual time, handled in three ways:
// without back-off, as designed, and as Reprise does it unless told otherwise. What
// it finds stands in README.md.
package cdnpurge
