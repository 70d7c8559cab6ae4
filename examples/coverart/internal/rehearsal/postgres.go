package rehearsal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// StartPostgres starts a temporary PostgreSQL server and returns its URL. It runs scripts/postgres in the clone that
// contains the working directory. The function stop stops the server and deletes its data.
func StartPostgres(ctx context.Context) (url string, stop func() error, err error) {
	script, err := findScript()
	if err != nil {
		return "", nil, err
	}
	name := fmt.Sprintf("coverart-%d", os.Getpid())
	run := func(ctx context.Context, args ...string) (string, error) {
		var out, says bytes.Buffer
		cmd := exec.CommandContext(ctx, script, args...)
		cmd.Stdout, cmd.Stderr = &out, &says
		if err := cmd.Run(); ctx.Err() != nil {
			return "", context.Cause(ctx)
		} else if err != nil {
			return "", fmt.Errorf("%s\n(%w; or use a running PostgreSQL with -postgres postgres://user:password@host/database)",
				strings.TrimSpace(says.String()), err)
		}
		return strings.TrimSpace(out.String()), nil
	}
	url, err = run(ctx, "start", name)
	if err != nil {
		return "", nil, err
	}
	return url, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), tidyUp)
		defer cancel()
		_, err := run(ctx, "stop", name)
		return err
	}, nil
}

func findScript() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		script := filepath.Join(dir, "scripts", "postgres")
		if _, err := os.Stat(script); err == nil {
			return script, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("scripts/postgres not found (run this program in a clone of the repository, or use a running PostgreSQL with -postgres postgres://user:password@host/database)")
		}
		dir = parent
	}
}
