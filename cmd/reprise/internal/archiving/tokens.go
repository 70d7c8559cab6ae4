package archiving

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

// ReadTokens reads the users of a console from a file with lines such as
//
//	anna operate sha256:…
//
// Empty lines and lines that begin with # are ignored. The file contains only hashes of tokens. `reprise console
// token` prints a token once and does not save it.
func ReadTokens(path string) ([]archive.Token, error) {
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
func (d *Service) watchTokens(ctx context.Context) {
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
		text, err := os.ReadFile(d.Tokens)
		if err == nil {
			if bytes.Equal(text, before) && failed == "" {
				continue
			}
			var list []archive.Token
			if list, err = parseTokens(d.Tokens, text); err == nil {
				err = d.SetTokens(list)
			}
		}
		switch {
		case err == nil:
			if before != nil || failed != "" {
				d.log.Info("tokens read again", "file", d.Tokens)
			}
			before, failed = text, ""
		case err.Error() != failed:
			failed = err.Error()
			d.log.Error("cannot read the tokens; the console uses the previous tokens", "file", d.Tokens, "error", err)
		}
	}
}
