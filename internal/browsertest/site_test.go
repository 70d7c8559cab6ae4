package browsertest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// The documentation site works from files, without a server: the search, the links of results, and the layout on a phone.
func TestDocumentationSite(t *testing.T) {
	b := newBrowser(t)
	script, err := os.ReadFile(filepath.Join("axe", "node_modules", "axe-core", "axe.min.js"))
	if err != nil {
		t.Skip("needs the npm package axe-core: run npm ci in internal/browsertest/axe, or make test")
	}
	out := filepath.Join(t.TempDir(), "site")
	build := exec.CommandContext(t.Context(), "go", "run", "./internal/tools/site", "-out", out)
	build.Dir = filepath.Join("..", "..")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	do(t, b, chromedp.Navigate("file://"+out+"/index.html"), chromedp.WaitVisible(chromedp.CSS("main")))
	do(t, b, chromedp.KeyEvent("/"), chromedp.KeyEvent("circuit brea"))
	shows(t, b, "#results", "breaker")
	do(t, b, chromedp.KeyEvent(kb.Enter))
	shows(t, b, "main", "breaker")
	do(t, b, chromedp.Navigate("file://"+out+"/index.html"), chromedp.SendKeys(chromedp.ID("query"), "zzyzx"))
	shows(t, b, "#results", "No results")
	checkProblems(t, b)
	pages, err := filepath.Glob(filepath.Join(out, "*.html"))
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		if err := b.Look(390, 800, "light", 1); err != nil {
			t.Fatal(err)
		}
		do(t, b, chromedp.Navigate("file://"+page), chromedp.WaitVisible(chromedp.CSS("main")))
		for _, wide := range eval[[]string](t, b, stickingOut) {
			t.Errorf("%s is wider than a phone: %s", filepath.Base(page), wide)
		}
		checkProblems(t, b)
		if err := b.Look(1440, 800, "dark", 1); err != nil {
			t.Fatal(err)
		}
		check(t, b, string(script), filepath.Base(page), 1440, "dark")
		b.Problems() // axe fetches the style sheet, which the browser refuses for pages from files
	}
}
