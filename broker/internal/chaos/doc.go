// Package chaos tests a broker whose power is cut at any moment, and a broker whose data directory is damaged. It runs the
// broker on a file system in memory that loses a part of the unsynced data.
package chaos
