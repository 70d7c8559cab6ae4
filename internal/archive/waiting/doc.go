// Package waiting acts on messages that wait for a retry: it delivers them now, postpones them or parks them. A Rescheduler
// receives the reports of workers, which the archive lists, and recognizes wait queues whose first message never expires.
package waiting
