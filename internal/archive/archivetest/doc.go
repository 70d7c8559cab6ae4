// Package archivetest contains a broker with an archive in real time, and an archive in memory for tests in virtual time.
package archivetest
