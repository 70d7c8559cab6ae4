package cli

import (
	"slices"

	"github.com/alecthomas/kong"
)

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
