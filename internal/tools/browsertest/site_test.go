package browsertest

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// The documentation site works from files, without a server. This includes the search, the links of its results, and
// the layout on phones.
func TestDocumentationSite(t *testing.T) {
	b := newBrowser(t)
	script, err := os.ReadFile(filepath.Join("axe", "node_modules", "axe-core", "axe.min.js"))
	if err != nil {
		t.Skip("needs the npm package axe-core: run npm ci in internal/tools/browsertest/axe, or make test")
	}
	out := buildSite(t)
	do(t, b, chromedp.Navigate("file://"+out+"/index.html"), chromedp.WaitVisible(chromedp.CSS("main")))
	do(t, b, chromedp.KeyEvent("/"), chromedp.KeyEvent("circuit brea"))
	shows(t, b, "#results", "breaker")
	do(t, b, chromedp.KeyEvent(kb.Enter))
	shows(t, b, "main", "breaker")
	do(t, b, chromedp.Navigate("file://"+out+"/index.html"), chromedp.SendKeys(chromedp.ID("query"), "zzyzx"))
	shows(t, b, "#results", "No results")
	checkProblems(t, b)
	var pages []string
	for _, pattern := range []string{"*.html", "docs/*.html", "docs/how-to/index.html", "docs/getting-started/go.html"} {
		names, err := filepath.Glob(filepath.Join(out, pattern))
		if err != nil || len(names) == 0 {
			t.Fatalf("no pages %s: %v", pattern, err)
		}
		pages = append(pages, names...)
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
		check(t, b, string(script), allRules, filepath.Base(page), 1440, "dark")
		b.Problems() // axe fetches the style sheet, which the browser refuses for pages from files
	}
}

// On wide screens, the menu shows the current page. On phones, the outline is above the text.
func TestSiteNavigation(t *testing.T) {
	b := newBrowser(t)
	address := "file://" + buildSite(t) + "/docs/configuration.html"
	if err := b.Look(1440, 900, "light", 1); err != nil {
		t.Fatal(err)
	}
	do(t, b, chromedp.Navigate(address), chromedp.WaitVisible(chromedp.CSS("nav [aria-current]")))
	if !eval[bool](t, b, `(r => r.top > 56 && r.bottom < innerHeight)(document.querySelector("nav [aria-current]").getBoundingClientRect())`) {
		t.Error("the menu does not show the current page")
	}
	if err := b.Look(390, 844, "light", 1); err != nil {
		t.Fatal(err)
	}
	do(t, b, chromedp.Navigate(address), chromedp.Click(chromedp.CSS("#outline > summary")),
		chromedp.WaitVisible(chromedp.CSS(`#outline a[href="#the-broker"]`)))
	checkProblems(t, b)
}

// The first three results of a search contain the page that answers the question, even if the page uses different
// words.
func TestSiteSearch(t *testing.T) {
	b := newBrowser(t)
	do(t, b, chromedp.Navigate("file://"+buildSite(t)+"/index.html"), chromedp.WaitVisible(chromedp.CSS("main")))
	for words, page := range map[string]string{
		"DLQ":                       "docs/how-to/use-a-dead-letter-queue.html",
		"dead letter queue":         "docs/how-to/use-a-dead-letter-queue.html",
		"alerting":                  "docs/how-to/monitor-with-prometheus.html",
		"alertmanager":              "docs/how-to/monitor-with-prometheus.html",
		"audit log":                 "docs/failed-messages.html#audit-log",
		"autoscaling":               "docs/how-to/scale-workers.html",
		"backpressure":              "docs/how-to/protect-a-service.html",
		"circut braker":             "docs/how-to/protect-a-service.html",
		"delayed message":           "docs/how-to/publish-reliably.html",
		"distributed tracing":       "docs/how-to/trace-with-opentelemetry.html",
		"docker compose":            "docs/install.html",
		"exactly once":              "docs/duplicates.html",
		"GDPR":                      "docs/failed-messages.html",
		"graceful shutdown":         "docs/how-to/stop-gracefully.html",
		"healthcheck":               "docs/how-to/run-in-kubernetes.html",
		"high availability":         "docs/durability.html",
		"how do I stop a worker":    "docs/how-to/stop-gracefully.html",
		"idempotency":               "docs/duplicates.html",
		"logging":                   "docs/observability.html",
		"migrating existing queues": "docs/how-to/use-existing-queues.html",
		"mTLS":                      "docs/security.html",
		"ordering":                  "docs/how-to/keep-the-order.html",
		"pause consumer":            "docs/how-to/pause-a-queue.html",
		"poison pill":               "docs/how-to/use-a-dead-letter-queue.html",
		"rate limiting":             "docs/how-to/protect-a-service.html",
		"reprise failed replay":     "docs/failed-messages.html#replay",
		"requeue message":           "docs/getting-started/operators.html",
		"slack zzyzx":               "docs/notifications.html", // no section has both words
		"tracing":                   "docs/how-to/trace-with-opentelemetry.html",
	} {
		if got := eval[[]string](t, b, "search("+quoted(words)+").slice(0, 3).map(hit => hit.url)"); !slices.Contains(got, page) {
			t.Errorf("%s: got %v, want %s", words, got, page)
		}
	}
}

// buildSite builds the documentation site and returns its folder.
func buildSite(t *testing.T) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "site")
	build := exec.CommandContext(t.Context(), "go", "run", ".", "-root", filepath.Join("..", "..", ".."), "-out", out)
	build.Dir = filepath.Join("..", "site")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return out
}
