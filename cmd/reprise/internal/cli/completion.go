package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/reprisemq/reprise/cmd/reprise/internal/config"
	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
)

type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"Name of the shell: bash, zsh or fish."`
}

// Help implements kong.HelpProvider.
func (completionCmd) Help() string {
	return `Prints a script that completes commands, flags and values. Run the first command for the current session, or
add it to the file for all sessions:

  bash:  source <(reprise completion bash)   ~/.bashrc
  zsh:   source <(reprise completion zsh)    ~/.zshrc, after compinit
  fish:  reprise completion fish | source    ~/.config/fish/config.fish
`
}

// Run prints the completion script.
func (c *completionCmd) Run(streams terminal.IO) error {
	_, err := io.WriteString(streams.Stdout, completionScripts[c.Shell])
	return err
}

// completionScripts call completeCmd, so that completions always match the flags of the installed program.
var completionScripts = map[string]string{
	"bash": `_reprise() {
	local line value kind= cur words
	read -r -a words <<<"${COMP_LINE:0:COMP_POINT}"
	[[ ${COMP_LINE:0:COMP_POINT} == *[[:space:]] ]] && words+=("")
	cur=${words[${#words[@]}-1]}
	COMPREPLY=()
	while IFS= read -r line; do
		case $line in
		:*) kind=$line ;;
		*)
			value=${line%%$'\t'*}
			# Readline replaces what follows the =, not the whole word.
			[[ $cur == *=* && $COMP_WORDBREAKS == *=* ]] && value=${value#*=}
			COMPREPLY+=("$value")
			;;
		esac
	done < <("$1" __complete -- "${words[@]:1}" 2>/dev/null)
	[[ $cur == *=* ]] && cur=${cur#*=}
	case $kind in
	:files) compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
	:dirs) compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -d -- "$cur") ;;
	esac
}
complete -F _reprise reprise
`,
	"zsh": `#compdef reprise
_reprise() {
	local line kind= value
	local -a candidates
	for line in "${(@f)$("${words[1]}" __complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
		case $line in
		:*) kind=$line ;;
		?*) value=${line%%$'\t'*}; candidates+=("${value//:/\\:}:${line#*$'\t'}") ;;
		esac
	done
	case $kind in
	:files) compset -P '*='; _files ;;
	:dirs) compset -P '*='; _files -/ ;;
	*) _describe reprise candidates ;;
	esac
}
if [[ ${funcstack[1]} == _reprise ]]; then
	_reprise "$@" # zsh has loaded this file as the function
else
	compdef _reprise reprise
fi
`,
	"fish": `function __reprise_complete
	set -l tokens (commandline -opc) (commandline -ct)
	set -l kind
	for line in ($tokens[1] __complete -- $tokens[2..-1] 2>/dev/null)
		switch $line
			case ':files'
				__fish_complete_path (commandline -ct)
			case ':dirs'
				__fish_complete_directories (commandline -ct)
			case '*'
				echo $line
		end
	end
end
complete -c reprise -f -a '(__reprise_complete)'
`,
}

// completeCmd serves the completion scripts. It prints the candidates for the last word, one per line, each with a tab
// and a description. It prints ":files" or ":dirs" if the shell must complete file or directory names.
type completeCmd struct {
	Words []string `arg:"" optional:""`
}

// Run prints the candidates.
func (c *completeCmd) Run(streams terminal.IO, command *kong.Context) error {
	if len(c.Words) == 0 {
		c.Words = []string{""}
	}
	for _, x := range candidates(command.Model.Node, c.Words) {
		if _, err := fmt.Fprintln(streams.Stdout, strings.TrimSuffix(x.value+"\t"+x.help, "\t")); err != nil {
			return err
		}
	}
	return nil
}

// candidate is a possible completion of a word, with a description. The special candidates files and dirs make the
// shell complete file or directory names.
type candidate struct{ value, help string }

var (
	files = candidate{value: ":files"}
	dirs  = candidate{value: ":dirs"}
)

// candidates returns the candidates for the last word.
func candidates(node *kong.Node, words []string) []candidate {
	flags := node.Flags
	last := words[len(words)-1]
	var pending *kong.Flag // flag that takes the next word as its value
	arguments, literal := 0, false
	for _, word := range words[:len(words)-1] {
		child := childOf(node, word)
		switch {
		case pending != nil:
			pending = nil
		case literal:
			arguments++
		case word == "--":
			literal = true
		case strings.HasPrefix(word, "-"):
			if f := flagOf(flags, word); f != nil && !f.IsBool() && !strings.Contains(word, "=") {
				pending = f
			}
		case child != nil && arguments == 0:
			node, flags = child, append(flags[:len(flags):len(flags)], child.Flags...)
			if child.DefaultCmd != nil { // the command accepts the arguments of its default command
				flags = append(flags, child.DefaultCmd.Flags...)
			}
		default:
			arguments++
		}
	}
	values := func(v *kong.Value, before, begun string) []candidate {
		return valuesOf(v, before, begun, queuesOf(v, flags, words))
	}
	name, value, assigned := strings.Cut(last, "=")
	final := len(node.Positional) - 1
	switch {
	case pending != nil:
		return values(pending.Value, "", last)
	case !literal && assigned && strings.HasPrefix(last, "--"):
		if f := flagOf(flags, name); f != nil {
			return values(f.Value, name+"=", value)
		}
		return nil
	case !literal && strings.HasPrefix(last, "-"):
		return matchingFlags(flags, last)
	case arguments <= final || final >= 0 && node.Positional[final].IsCumulative():
		return values(node.Positional[min(arguments, final)], "", last)
	}
	var found []candidate
	for _, child := range node.Children {
		if !child.Hidden && strings.HasPrefix(child.Name, last) {
			found = append(found, candidate{child.Name, child.Help})
		}
	}
	return found
}

func childOf(node *kong.Node, name string) *kong.Node {
	for _, child := range node.Children {
		if child.Name == name {
			return child
		}
	}
	return nil
}

// flagOf returns the flag of a word such as --listen, --listen=x or -c.
func flagOf(flags []*kong.Flag, word string) *kong.Flag {
	word, _, _ = strings.Cut(word, "=")
	for _, f := range flags {
		if "--"+f.Name == word || f.Short != 0 && "-"+string(f.Short) == word {
			return f
		}
	}
	return nil
}

func matchingFlags(flags []*kong.Flag, prefix string) []candidate {
	var found []candidate
	for _, f := range flags {
		if !f.Hidden && strings.HasPrefix("--"+f.Name, prefix) {
			found = append(found, candidate{"--" + f.Name, f.Help})
		}
	}
	return found
}

// valuesOf returns the possible values of a flag or an argument that start with the string begun: the fixed values, and
// the candidates in present.
func valuesOf(v *kong.Value, before, begun string, present []candidate) []candidate {
	var found []candidate
	for _, word := range v.EnumSlice() {
		if word != "" && strings.HasPrefix(word, begun) {
			found = append(found, candidate{value: before + word})
		}
	}
	for _, c := range present {
		if strings.HasPrefix(c.value, begun) {
			found = append(found, candidate{before + c.value, c.help})
		}
	}
	placeholder := v.Name
	if v.Flag != nil {
		placeholder = v.Flag.PlaceHolder
	}
	switch strings.ToUpper(placeholder) {
	case "FILE":
		return []candidate{files}
	case "DIR":
		return []candidate{dirs}
	}
	return found
}

// queuesOf returns the queues of the configuration file, if v is the value of the flag --queue and the command has
// the flag --config.
func queuesOf(v *kong.Value, flags []*kong.Flag, words []string) (found []candidate) {
	if v.Name != "queue" || flagOf(flags, "--config") == nil {
		return nil
	}
	var paths []string
	for i, word := range words {
		name, value, assigned := strings.Cut(word, "=")
		switch {
		case name != "--config" && name != "-c":
		case assigned:
			paths = append(paths, value)
		case i+1 < len(words):
			paths = append(paths, words[i+1])
		}
	}
	if len(paths) == 0 {
		paths = []string{"reprise.yaml"}
	}
	cfg, err := config.Load(paths...)
	if err != nil {
		return nil // shells do not show errors
	}
	for _, w := range cfg.Workers {
		found = append(found, candidate{value: w.Queue})
	}
	return found
}
