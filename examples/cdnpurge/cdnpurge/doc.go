// Package cdnpurge contains the consumer of a service that purges objects from a CDN, and a stand-in for the CDN. It
// demonstrates the [Design]: several routing keys share one wait exchange, and each message carries its own backoff
// state.
//
//	url, cpcode, tag                      POST /ccu/v3/invalidate/{key}/production
//	──► cdn-purge (direct) ─► cdn-purge (queue) ─► Purger ──────────► CDN ─► 201: ack
//	        ▲                                        │                  the CDN processes its queue,
//	        │                                        │ 507 queue is full: at peak hours
//	        │                                        ▼
//	        └─ expires ─ cdn-purge.wait (queue) ◄─ cdn-purge.wait (direct)
//	                     10 s, 30 s, 90 s …        a copy, under its own key
//
// The routing key of a message is the kind of the objects to purge, and the body is a JSON array of them. Purger calls
// Akamai's Fast Purge API v3. The CDN stores accepted purges in a queue. In the peak hours of its customers, this queue is
// full, and the CDN refuses purges. The message of a refused purge waits for a retry. The growing delays keep the number
// of calls low.
//
// The response of the CDN determines the outcome of an attempt:
//
//	201                            nil: processed
//	429                            reprise.PauseFor: retried, and the worker pauses until the rate limit permits the request
//	507, other 5xx, 408, 401, 403  an error: retried, like a call that does not reach the CDN
//	other 4xx                      reprise.Park, because the CDN would refuse each retry
//
// A second purge for a message that is delivered twice is harmless.
//
// TestWeek simulates a week of purges in virtual time, in three variants: without backoff, as designed, and with the
// defaults of Reprise. The README.md of the example contains the results.
package cdnpurge
