// Package chaos cuts the power of a broker at any moment, and damages each file of its data directory. It uses the broker's
// packages directly, on a file system in memory that loses a part of the data that was not synced.
package chaos
