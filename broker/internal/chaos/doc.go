// Package chaos tests that a broker recovers from a power failure at any moment, and that it detects a damaged data
// directory. The broker runs on an in-memory file system that loses a part of the unsynced data.
package chaos
