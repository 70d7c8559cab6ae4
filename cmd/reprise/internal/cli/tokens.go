package cli

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/reprisemq/reprise/archive"
	"github.com/reprisemq/reprise/internal/brief"
)

// readTokens reads the users of a console from a file with lines such as
//
//	anna operate sha256:…
//
// Empty lines and lines that begin with # are ignored. The file contains only hashes of tokens. `reprise console
// token` prints a token once and does not save it.
func readTokens(path string) ([]archive.Token, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return parseTokens(path, text)
}

func parseTokens(path string, text []byte) ([]archive.Token, error) {
	var tokens []archive.Token
	lines := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		words := strings.Fields(lines.Text())
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		if len(words) != 3 {
			return nil, fmt.Errorf("%s:%d: line must have a name, a role and a hash, as in anna operate sha256:… (`reprise console token` prints such lines)", path, n)
		}
		if !slices.Contains([]string{"view", "operate", "admin"}, words[1]) {
			return nil, fmt.Errorf("%s:%d: role must be view, operate or admin: got %s", path, n, brief.Quoted(words[1]))
		}
		tokens = append(tokens, archive.Token{Name: words[0], Role: words[1], Hash: words[2]})
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(tokens) == 0 {
		return nil, fmt.Errorf("%s must have at least one token (create it with `reprise console token NAME --tokens %s`)", path, path)
	}
	return tokens, nil
}

// watchTokens applies changes of the file of tokens until ctx is canceled. If the file is invalid, the
// console continues to use the previous tokens.
func (d *archiveService) watchTokens(ctx context.Context) {
	var before []byte
	var failed string // last error in the log
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		text, err := os.ReadFile(d.tokens)
		if err == nil {
			if bytes.Equal(text, before) && failed == "" {
				continue
			}
			var list []archive.Token
			if list, err = parseTokens(d.tokens, text); err == nil {
				err = d.SetTokens(list)
			}
		}
		switch {
		case err == nil:
			if before != nil || failed != "" {
				d.log.Info("tokens read again", "file", d.tokens)
			}
			before, failed = text, ""
		case err.Error() != failed:
			failed = err.Error()
			d.log.Error("cannot read the tokens; the console uses the previous tokens", "file", d.tokens, "error", err)
		}
	}
}

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
func (c *tokenCmd) Run(streams IO) error {
	token, hash := archive.NewToken()
	if strings.ContainsAny(c.Name, " \t\r\n#") || c.Name == "" {
		return usagef("name must be letters, digits and . _ - @: got %s", brief.Quoted(c.Name))
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
	if there, err := readTokens(c.Tokens); err == nil {
		for _, t := range there {
			if t.Name == c.Name {
				return usagef("%s already contains a token of %s (remove its line, or use another name)", c.Tokens, c.Name)
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
