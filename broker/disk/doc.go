// Package disk works on the data directories of brokers that keep their state on disk: it copies, restores, checks and
// salvages them.
//
// It is separate from package broker so that a program whose broker is in memory does not link the database.
package disk
