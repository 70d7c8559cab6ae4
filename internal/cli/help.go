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
	detail, flags := node.Detail, node.Flags
	node.Detail = ""
	if node.DefaultCmd != nil { // it takes what that one takes
		node.Flags = append(flags[:len(flags):len(flags)], node.DefaultCmd.Flags...)
	}
	err := kong.DefaultHelpPrinter(options, ctx)
	node.Detail, node.Flags = detail, flags
	if err == nil && detail != "" {
		_, err = ctx.Stdout.Write([]byte("\n" + strings.TrimRight(detail, "\n") + "\n"))
	}
	return err
}
