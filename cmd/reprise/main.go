// Command reprise runs workers and a broker from a configuration file; see
// `reprise --help` and docs/cli.md.
package main

import (
	"os"

	"github.com/reprisemq/reprise/cmd/reprise/internal/cli"
	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
)

func main() {
	os.Exit(cli.Main(os.Args[1:], terminal.Process()))
}
