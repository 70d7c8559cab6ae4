// Package chaos cuts the power of a broker at any moment, and damages each file of its data directory. It uses the packages
// of the broker directly, on a file system in memory that loses a part of the unsynced data.
package chaos
