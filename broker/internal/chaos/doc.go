// Package chaos tests how a broker recovers from a power failure at an arbitrary moment and from a damaged data
// directory. It runs the broker on an in-memory file system that loses a part of the unsynced data.
package chaos
