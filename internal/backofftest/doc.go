// Package backofftest tests the properties of the schedules of package backoff with a library
// that its users do not need.
package backofftest
