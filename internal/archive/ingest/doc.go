// Package ingest moves messages from failed queues to an archive. An Ingest runs until it is stopped. Empty removes messages of
// any queue once, and can keep them in the archive as discarded.
package ingest
