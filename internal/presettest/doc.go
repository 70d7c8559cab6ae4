// Package presettest tests package topology/preset with brokers, archives and consoles, which
// its users do not need.
package presettest
