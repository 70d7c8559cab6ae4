// Package sqlkit is what the stores in databases have in common: statements for both dialects,
// transactions with time limits, rows as a sequence, and times as numbers.
package sqlkit
