// Package presettest tests package topology/preset with brokers, archives and consoles, which users of
// package preset do not need.
package presettest
