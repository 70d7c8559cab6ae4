// Package failed contains failed messages and what is said about them, as values: a Message and where it came from, a Filter
// that selects messages, a BulkEdit that changes them, a Plan that sends them again, and the Outcome of each. It imports
// neither a database nor a broker connection. Package store keeps the values.
package failed
