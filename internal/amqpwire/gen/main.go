// Command gen writes methods_gen.go from methods.def, both in the working
// directory, which go generate makes that of the package.
package main

import (
	"fmt"
	"os"
)

const (
	input  = "methods.def"
	output = "methods_gen.go"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func run() error {
	def, err := os.ReadFile(input)
	if err != nil {
		return err
	}
	src, err := generate(def)
	if err != nil {
		return err
	}
	return os.WriteFile(output, src, 0o644)
}

func generate(def []byte) ([]byte, error) {
	methods, err := parse(def)
	if err != nil {
		return nil, err
	}
	return emit(methods)
}
