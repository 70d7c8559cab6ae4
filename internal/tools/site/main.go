// Command site builds the documentation site from the Markdown files of the repository. A browser can open the pages without
// a server, because links are relative and the search runs in the browser.
//
//	make site
//
// The file docs/site.yaml lists the pages and their order. A document that is not in the list, two documents for the same
// page, a link to a missing file and a link to a missing heading are errors.
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	root := flag.String("root", ".", "root `folder` of the repository")
	out := flag.String("out", "bin/site", "`folder` for the pages")
	flag.Parse()
	s, err := read(os.DirFS(*root))
	if err == nil {
		err = s.write(*out)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "site:", err)
		os.Exit(1)
	}
	fmt.Printf("%s/index.html: %d pages\n", *out, len(s.pages))
}
