// Package backofftest tests properties of the schedules of package backoff. It is a separate package, because it imports a
// library for property-based tests.
package backofftest
