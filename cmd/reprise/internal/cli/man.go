package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
	"github.com/reprisemq/reprise/cmd/reprise/internal/version"
)

// manCmd prints the manual page reprise(1), generated from the commands. The release build runs it.
type manCmd struct{}

// Run prints the page.
func (manCmd) Run(streams terminal.IO, command *kong.Context) error {
	var b strings.Builder
	app := command.Model.Node
	fmt.Fprintf(&b, ".TH REPRISE 1 \"\" \"reprise %s\" \"User Commands\"\n", roff(version.String()))
	summary, examples, _ := strings.Cut(description, "\n")
	examples, exits, _ := strings.Cut(examples, "Exit codes: ")
	b.WriteString(".SH NAME\nreprise \\- reliable message processing on RabbitMQ\n")
	b.WriteString(".SH SYNOPSIS\n.B reprise\n.I command\n[\\fIflags\\fR]\n")
	b.WriteString(".SH DESCRIPTION\n" + roff(summary) + "\n" + roffText(examples))
	b.WriteString(".SH COMMANDS\n")
	walk(app, func(node *kong.Node) { manCommand(&b, node) })
	b.WriteString(".SH EXIT STATUS\n" + roff(exits) + "\n")
	b.WriteString(".SH SEE ALSO\nhttps://github.com/reprisemq/reprise\n")
	_, err := io.WriteString(streams.Stdout, b.String())
	return err
}

// manCommand writes the section of a command.
func manCommand(b *strings.Builder, node *kong.Node) {
	fmt.Fprintf(b, ".SS %s\n%s\n", roff(node.FullPath()+usageOf(node)), roff(node.Help))
	if node.Detail != "" {
		b.WriteString(".PP\n" + roffText(node.Detail))
	}
	for _, p := range node.Positional {
		if p.Help != "" {
			fmt.Fprintf(b, ".TP\n\\fI%s\\fR\n%s\n", roff(p.Summary()), roff(p.Help))
		}
	}
	for _, f := range flagsOf(node) {
		fmt.Fprintf(b, ".TP\n\\fB%s\\fR\n%s\n", roff(manFlag(f)), roff(f.Help))
	}
}

// usageOf returns the arguments of a command.
func usageOf(node *kong.Node) (usage string) {
	if len(node.Children) > 0 && node.DefaultCmd == nil {
		usage = " <command>"
	}
	for _, p := range node.Positional {
		usage += " " + p.Summary()
	}
	return usage
}

func manFlag(f *kong.Flag) string {
	text := "--" + f.Name
	if f.Short != 0 {
		text = "-" + string(f.Short) + ", " + text
	}
	if !f.IsBool() {
		text += "=" + f.FormatPlaceHolder()
	}
	return text
}

// roff escapes a line of text. Without UTF-8, man cannot print an ellipsis.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "\n", " ", "\u00a0", `\ `, "…", "...").Replace(text)
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		text = `\&` + text
	}
	return text
}

// roffText converts paragraphs and indented examples to roff.
func roffText(text string) string {
	var b strings.Builder
	example := false
	for line := range strings.SplitSeq(strings.Trim(text, "\n"), "\n") {
		if indented := strings.HasPrefix(line, " "); line != "" && indented != example {
			example = indented
			b.WriteString(map[bool]string{true: ".PP\n.nf\n", false: ".fi\n.PP\n"}[example])
		}
		switch {
		case line != "":
			b.WriteString(roff(line) + "\n")
		case example:
			b.WriteString("\n")
		default:
			b.WriteString(".PP\n")
		}
	}
	if example {
		b.WriteString(".fi\n")
	}
	return b.String()
}

// walk calls the function visit for the visible commands below a node, in the order of the help. It omits default
// commands, such as "broker run", because the help lists their flags and arguments with the parent command.
func walk(node *kong.Node, visit func(*kong.Node)) {
	for _, child := range node.Children {
		if child.Hidden || child == node.DefaultCmd {
			continue
		}
		visit(child)
		walk(child, visit)
	}
}

// flagsOf returns the visible flags of a command and of its default command, without --help.
func flagsOf(node *kong.Node) []*kong.Flag {
	flags := slices.Clone(node.Flags)
	if node.DefaultCmd != nil {
		flags = append(flags, node.DefaultCmd.Flags...)
	}
	return slices.DeleteFunc(flags, func(f *kong.Flag) bool { return f.Hidden || f.Name == "help" })
}
