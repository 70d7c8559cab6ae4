package handler

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// advice returns the probable correction of a program that does not exist, or "".
func (e *Exec) advice() string {
	name := e.cfg.Command[0]
	words := strings.Fields(name)
	switch {
	case strings.HasPrefix(name, "~"):
		return "~ is not expanded; use an absolute path, or [sh, -c, …]"
	case strings.HasPrefix(name, "$"):
		return "variables are not expanded here; use an absolute path, or [sh, -c, …]"
	case len(words) > 1 || strings.TrimSpace(name) != name:
		return "list the arguments separately: [" + strings.Join(words, ", ") + "]"
	case strings.ContainsRune(name, filepath.Separator):
		return ""
	}
	if _, err := os.Stat(filepath.Join(e.cfg.Dir, name)); err == nil {
		return "for the file in the directory of the handler, use ./" + name
	}
	return "install it, or use its full path"
}

// interpreters are programs whose first argument is the path of a script, unless it is an option.
var interpreters = regexp.MustCompile(`^(python[\d.]*|php[\d.]*|ruby[\d.]*|perl[\d.]*|node|nodejs|lua[\d.]*|Rscript|escript|elixir)$`)

// checkArgument returns an error if the program is an interpreter and its script does not exist. An interpreter would report
// it only when a message arrives.
func (e *Exec) checkArgument() error {
	if len(e.cfg.Command) < 2 || !interpreters.MatchString(filepath.Base(e.cfg.Command[0])) {
		return nil
	}
	script := e.cfg.Command[1]
	if script == "" || strings.HasPrefix(script, "-") || filepath.Ext(script) == "" {
		return nil // an option, or a name that the interpreter resolves, such as node app or elixir's modules
	}
	path := script
	if !filepath.IsAbs(path) {
		path = filepath.Join(e.cfg.Dir, path)
	}
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("script %s of %s not found", path, e.cfg.Command[0])
	}
	return nil
}

// maxHead is the number of bytes at the beginning of a program in which Linux searches the interpreter.
const maxHead = 256

// checkScript returns an error if the file at path is a text that the system cannot start: without the line #!, with a
// missing interpreter, or with the line breaks of Windows. Other files, and files that cannot be read, have no error.
func (e *Exec) checkScript(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return nil // the permission to execute a file does not include the permission to read it
	}
	defer f.Close()
	head := make([]byte, maxHead)
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return nil
	}
	head = head[:n]
	line, found := bytes.CutPrefix(head, []byte("#!"))
	if !found {
		if bytes.IndexByte(head, 0) < 0 {
			return fmt.Errorf("cannot start %s: it is a text without an interpreter (add a first line such as #!/bin/sh)", path)
		}
		return nil
	}
	line, _, _ = bytes.Cut(line, []byte("\n"))
	if bytes.HasSuffix(line, []byte("\r")) {
		return fmt.Errorf("cannot start %s: its first line ends with the line break of Windows (use sed -i 's/\\r$//' %s)", path, path)
	}
	words := strings.Fields(string(line))
	if len(words) == 0 {
		return fmt.Errorf("cannot start %s: its first line has no interpreter (write for example #!/bin/sh)", path)
	}
	return e.checkInterpreter(path, words)
}

// checkInterpreter returns an error if the interpreter in the words of a line #! does not exist. The program env searches
// its first operand in the PATH.
func (e *Exec) checkInterpreter(path string, words []string) error {
	interpreter := words[0]
	if !filepath.IsAbs(interpreter) {
		interpreter = filepath.Join(e.cfg.Dir, interpreter)
	}
	if _, err := exec.LookPath(interpreter); err != nil {
		return fmt.Errorf("cannot start %s: interpreter %s not found", path, words[0])
	}
	if filepath.Base(interpreter) != "env" {
		return nil
	}
	for _, word := range words[1:] {
		if strings.HasPrefix(word, "-") || strings.Contains(word, "=") {
			continue
		}
		if _, err := exec.LookPath(word); err != nil {
			return fmt.Errorf("cannot start %s: interpreter %s not found in the PATH", path, word)
		}
		return nil
	}
	return nil
}
