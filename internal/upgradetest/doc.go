// Package upgradetest tests that this version reads the data of other versions, and that they read the data of this version: data
// directories of the broker with waiting messages, archives, ledgers and stores of duplicates. docs/durability.md ("Upgrade and
// downgrade") has the promises.
//
// The name of each folder in testdata is the format of its fixtures. Fixtures of older formats do not change. If this version has a
// new format, this command adds its fixtures:
//
//	scripts/test ./internal/upgradetest -run TestThereAre -update
package upgradetest
