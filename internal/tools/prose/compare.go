package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
)

// model is a project whose English the style follows.
type model struct{ name, module string }

var models = []model{
	{"river", "github.com/riverqueue/river@v0.51.1"},
	{"pgx", "github.com/jackc/pgx/v5@v5.12.0"},
	{"franz-go", "github.com/twmb/franz-go@v1.22.2"},
}

func modelNames() (names []string) {
	for _, m := range models {
		names = append(names, m.name)
	}
	return names
}

// compare prints the alert rates of this project and of the model projects in o.compare.
func compare(out io.Writer, o options) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "words\talerts\tper 10,000\tdocuments\tcomments\tstrings\t  project")
	row := func(name, root string) error {
		units, err := measure(o, root, nil)
		if err != nil {
			return fmt.Errorf("cannot measure %s: %w", name, err)
		}
		var docs, comments unit
		for _, u := range units {
			if u.document {
				docs = docs.plus(*u)
			} else {
				comments = comments.plus(*u)
			}
		}
		all := docs.plus(comments)
		fmt.Fprintf(table, "%d\t%d\t%s\t%s\t%s\t%d\t  %s\n", all.words, all.alerts, rate(all), rate(docs), rate(comments), all.strings, name)
		return nil
	}
	if err := row("reprise", "."); err != nil {
		return err
	}
	for name := range strings.SplitSeq(o.compare, ",") {
		i := slices.IndexFunc(models, func(m model) bool { return m.name == name })
		if i < 0 {
			return fmt.Errorf("model project %q not found (use %s)", name, strings.Join(modelNames(), ", "))
		}
		dir, err := download(models[i].module)
		if err != nil {
			return err
		}
		if err := row(filepath.Base(name), dir); err != nil {
			return err
		}
	}
	return table.Flush()
}

// download downloads a module and returns its folder in the module cache.
func download(module string) (string, error) {
	cmd := exec.Command("go", "mod", "download", "-json", module)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("cannot download %s: %w: %s%s", module, err, stderr.Bytes(), out)
	}
	var answer struct{ Dir string }
	if err := json.Unmarshal(out, &answer); err != nil {
		return "", fmt.Errorf("cannot read the output of go mod download: %w", err)
	}
	return answer.Dir, nil
}
