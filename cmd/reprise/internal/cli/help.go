package cli

import (
	"cmp"
	"os"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
)

// printHelp prints the help of a command. It keeps the line breaks of examples, which kong would remove.
func printHelp(options kong.HelpOptions, ctx *kong.Context) error {
	width := min(cmp.Or(terminal.IO{Stdout: ctx.Stdout, Lookup: os.LookupEnv}.Width(), 80), 100)
	options.WrapUpperBound = width
	node := ctx.Selected()
	if node == nil {
		text := ctx.Model.Help
		ctx.Model.Help = filled(text, width)
		err := kong.DefaultHelpPrinter(options, ctx)
		ctx.Model.Help = text
		return err
	}
	detail, flags := node.Detail, node.Flags
	node.Detail = ""
	if node.DefaultCmd != nil { // the command accepts the flags of its default command
		node.Flags = append(flags[:len(flags):len(flags)], node.DefaultCmd.Flags...)
	}
	err := kong.DefaultHelpPrinter(options, ctx)
	node.Detail, node.Flags = detail, flags
	if err == nil && detail != "" {
		_, err = ctx.Stdout.Write([]byte("\n" + filled(strings.TrimRight(detail, "\n"), width) + "\n"))
	}
	return err
}

// filled wraps the paragraphs of a text. It does not change indented lines.
func filled(text string, width int) string {
	var lines, paragraph []string
	end := func() {
		if paragraph != nil {
			lines, paragraph = append(lines, terminal.Fill(strings.Join(paragraph, " "), width, 0)), nil
		}
	}
	for line := range strings.SplitSeq(text, "\n") {
		if line != "" && !strings.HasPrefix(line, " ") {
			paragraph = append(paragraph, line)
			continue
		}
		end()
		lines = append(lines, line)
	}
	end()
	return strings.Join(lines, "\n")
}
