package cli

import (
	"strings"

	"github.com/alecthomas/kong"
)

// helpText shows a flag's text with its environment variable.
func helpText(v *kong.Value) string { return kong.DefaultHelpValueFormatter(v) }

// printHelp prints the help of a command with its examples as they are written:
// kong would run their lines together.
func printHelp(options kong.HelpOptions, ctx *kong.Context) error {
	node := ctx.Selected()
	if node == nil {
		return kong.DefaultHelpPrinter(options, ctx)
	}
	detail := node.Detail
	node.Detail = ""
	err := kong.DefaultHelpPrinter(options, ctx)
	node.Detail = detail
	if err == nil && detail != "" {
		_, err = ctx.Stdout.Write([]byte("\n" + strings.TrimRight(detail, "\n") + "\n"))
	}
	return err
}
