// Package presettest tests package internal/preset with brokers, archives and consoles, which users of
// package preset do not need.
package presettest
