// Package upgradetest tests that this version can use the data of older versions, and that older versions can use the
// data of this version. The data consists of archives, ledgers, deduplication stores, and data directories of the
// broker that contain waiting messages. docs/durability.md ("Upgrade and downgrade") specifies the guarantees.
//
// Each folder in testdata is named after the format of its fixtures. Fixtures of older formats do not change. If this
// version introduces a new format, add its fixtures with:
//
//	scripts/test ./internal/upgradetest -run TestFixtures -update
package upgradetest
