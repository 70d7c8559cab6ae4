package consolecmd

import (
	"fmt"
	"os"
	"strings"

	"github.com/reprisemq/reprise/archive"
	"github.com/reprisemq/reprise/cmd/reprise/internal/archiving"
	"github.com/reprisemq/reprise/cmd/reprise/internal/exit"
	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
	"github.com/reprisemq/reprise/internal/brief"
)

type tokenCmd struct {
	Name   string `arg:"" help:"Name of the user: letters, digits and . _ - @."`
	Role   string `enum:"view,operate,admin" default:"operate" placeholder:"ROLE" help:"Role: view; operate (also replay, edit, discard, restore); admin (also import, purge, erase, see secrets). Default ${default}."`
	Tokens string `placeholder:"FILE" help:"File for the hash of the token. The command creates a missing file. Default: print the hash on stderr."`
}

// Help implements kong.HelpProvider.
func (tokenCmd) Help() string {
	return `Prints a new token. The user enters it in the login page of the console, or sets REPRISE_TOKEN for reprise
failed. The file contains only a hash. A running console applies changes of the file within a second; an empty or invalid file changes nothing.

Examples:
  reprise console token anna --role operate --tokens tokens
  reprise console --tokens tokens --queue orders.failed
  REPRISE_TOKEN=reprise_… reprise failed ls
`
}

// Run creates a token.
func (c *tokenCmd) Run(streams terminal.IO) error {
	token, hash := archive.NewToken()
	if strings.ContainsAny(c.Name, " \t\r\n#") || c.Name == "" {
		return exit.Usagef("name must be letters, digits and . _ - @: got %s", brief.Quoted(c.Name))
	}
	line := fmt.Sprintf("%s %s %s\n", c.Name, c.Role, hash)
	if c.Tokens == "" {
		fmt.Fprint(streams.Stderr, "for the file of --tokens: "+line)
	} else if err := c.add(line); err != nil {
		return err
	}
	_, err := fmt.Fprintln(streams.Stdout, token)
	return err
}

// add appends the line to the file, unless the file already contains a token of the user.
func (c *tokenCmd) add(line string) error {
	if there, err := archiving.ReadTokens(c.Tokens); err == nil {
		for _, t := range there {
			if t.Name == c.Name {
				return exit.Usagef("%s already contains a token of %s (remove its line, or use another name)", c.Tokens, c.Name)
			}
		}
	}
	text, err := os.ReadFile(c.Tokens)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	if len(text) > 0 && text[len(text)-1] != '\n' {
		line = "\n" + line
	}
	f, err := os.OpenFile(c.Tokens, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if err = f.Chmod(0o600); err == nil { // an editor may have created the file with other permissions
		_, err = f.WriteString(line)
	}
	if closing := f.Close(); err == nil {
		err = closing
	}
	return err
}
