package archtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestCommitMsgChecksSubject(t *testing.T) {
	for subject, want := range map[string]string{
		"broker: reject empty routing keys":                        "",
		"cli, console: feed the archive\n\nWhat came of it: words": "",
		"# a comment of git\n\ndocs: list the ports":               "",
		"a: " + strings.Repeat("é", 69):                            "lowercase", // only a to z begin a summary
		"a: b" + strings.Repeat("é", 68):                           "",
		"a: b" + strings.Repeat("é", 69):                           "at most 72 characters: got 73",
		"reject empty routing keys":                                "area",
		"broker:reject empty routing keys":                         "area",
		"Broker: reject empty routing keys":                        "area",
		"broker: Reject empty routing keys":                        "lowercase",
		"broker: reject empty routing keys.":                       "period",
		"broker: rejected empty routing keys":                      "imperative",
		"broker: rejecting empty routing keys":                     "imperative",
		"broker: fixes empty routing keys":                         "imperative",
		"broker: what is empty is rejected":                        "verb",
		"":                                                         "empty",
		"Merge branch 'x'":                                         "",
		"Revert \"broker: reject empty routing keys\"":             "",
		"fixup! broker: reject empty routing keys":                 "",
	} {
		file := filepath.Join(t.TempDir(), "message")
		if err := os.WriteFile(file, []byte(subject+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(filepath.Join(root, "scripts/commit-msg"), file).CombinedOutput()
		if (err == nil) != (want == "") || !strings.Contains(string(out), want) {
			t.Errorf("%q: got %v, %q, want %q", subject, err, out, want)
		}
	}
}

func TestCommitMsgInstallsHook(t *testing.T) {
	script, err := os.ReadFile(filepath.Join(root, "scripts/commit-msg"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "scripts/commit-msg")
	if err := os.Mkdir(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, script, 0o755); err != nil {
		t.Fatal(err)
	}
	run := func(succeeds bool, command ...string) {
		t.Helper()
		cmd := exec.Command(command[0], command[1:]...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
		if out, err := cmd.CombinedOutput(); (err == nil) != succeeds {
			t.Errorf("%v: got %v, want success: %v\n%s", command, err, succeeds, out)
		}
	}
	commit := []string{"git", "-c", "user.name=test", "-c", "user.email=test@localhost", "commit", "-q", "--allow-empty", "-m"}
	run(true, "git", "init", "-q")
	run(true, "scripts/commit-msg", "install")
	run(true, "scripts/commit-msg", "install")
	run(false, append(commit, "Some changes")...)
	run(true, append(commit, "repo: add some changes")...)

	// make setup does not replace an existing hook.
	if err := os.WriteFile(filepath.Join(dir, ".git/hooks/commit-msg"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	run(false, "scripts/commit-msg", "install")
}
