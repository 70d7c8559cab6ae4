// Package upgradetest holds this version against what other versions have written, and what it writes against what other
// versions read: data directories of the broker, with messages that wait and have attempts behind them, archives, ledgers and
// stores of duplicates. docs/durability.md ("Upgrade and downgrade") has the promises.
//
// The fixtures in testdata were written by the version whose format their folder names. Those of an older format stay as they
// are. If this version has a new format, this adds its fixtures:
//
//	scripts/test ./internal/upgradetest -run TestThereAre -update
package upgradetest
