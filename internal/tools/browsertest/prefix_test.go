package browsertest

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/reprisemq/reprise/archive"
)

// prefixProxy is a proxy that serves a console under /reprise/ and another site under /.
type prefixProxy struct {
	*httptest.Server
	mu      sync.Mutex
	escaped []string // requests to the other site
}

func newPrefixProxy(t *testing.T, target string) *prefixProxy {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	p := &prefixProxy{}
	mux := http.NewServeMux()
	mux.Handle("/reprise/", &httputil.ReverseProxy{
		FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(u)
			r.SetXForwarded()
			r.Out.Host = r.In.Host
		},
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.escaped = append(p.escaped, r.Method+" "+r.URL.String()+" from "+r.Referer())
		http.NotFound(w, r)
	})
	p.Server = httptest.NewServer(mux)
	t.Cleanup(func() {
		p.CloseClientConnections() // pages hold a connection for live updates
		p.Close()
	})
	return p
}

func (p *prefixProxy) takeEscaped() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	escaped := p.escaped
	p.escaped = nil
	return escaped
}

// Behind a proxy with a path prefix, all pages work and no URL is outside the prefix.
func TestPrefixBehindProxy(t *testing.T) {
	b := newBrowser(t)
	secret, hash := archive.NewToken()
	shop := newShop(t, ShopConfig{Seeded: true, Prefix: "/reprise", Tokens: []archive.Token{{Name: "anna", Role: "operate", Hash: hash}}})
	proxy := newPrefixProxy(t, shop.URL)
	do(t, b, chromedp.Navigate(proxy.URL+"/reprise/groups?order=last"))
	do(t, b, chromedp.SendKeys(chromedp.ID("f-token"), secret))
	click(t, b, "Sign in")
	shows(t, b, "h1", "Failed groups")
	shows(t, b, "#live", "Live")

	// The menu.
	for _, entry := range []string{"Overview", "Failed groups", "Messages", "Replays", "Topology", "Ledger", "Audit log"} {
		click(t, b, entry)
		shows(t, b, "h1", entry)
		shows(t, b, "#live", "Live")
	}

	// Selection, confirmation, undo, more rows of a list, and the preview of an edit.
	do(t, b, chromedp.Navigate(proxy.URL+"/reprise/messages?queue=emails"), chromedp.Click(chromedp.CSS("#rows tr:nth-child(1) input")))
	click(t, b, "Discard…")
	do(t, b, chromedp.SendKeys(chromedp.ID("f-reason"), "no such people"))
	click(t, b, "Discard")
	shows(t, b, ".note", "1 message discarded.")
	click(t, b, "Undo")
	shows(t, b, ".note", "1 message restored.")
	do(t, b, chromedp.Navigate(proxy.URL+"/reprise/messages"), chromedp.Click(link("Show more")), chromedp.WaitVisible(chromedp.CSS("#rows tr:nth-child(100)")))
	do(t, b, chromedp.Click(chromedp.CSS("#rows a.row")), chromedp.WaitVisible(chromedp.CSS(".journey")))
	click(t, b, "Edit")
	do(t, b, chromedp.SendKeys(chromedp.ID("f-type"), "other"))
	shows(t, b, "#changes .add", "other")
	eval[bool](t, b, `document.getElementById("edit").reset() || true`)

	// All URLs on all kinds of pages.
	pages, err := Pages(t.Context(), shop.Archive)
	if err != nil {
		t.Fatal(err)
	}
	checkProblems(t, b)
	for _, p := range pages {
		do(t, b, chromedp.Navigate(proxy.URL+"/reprise"+p.Path), chromedp.WaitVisible(chromedp.CSS("main")))
		all := eval[[]string](t, b, `[...document.querySelectorAll("[href]:not([rel=external]), [src], [action], [formaction], [hx-get], [hx-post]")].flatMap(e =>
			["href", "src", "action", "formaction", "hx-get", "hx-post"].filter(a => e.hasAttribute(a)).map(a => new URL(e.getAttribute(a), location.href).href))`)
		if len(all) < 10 {
			t.Errorf("page %s: got %d URLs, want at least 10", p.Path, len(all))
		}
		for _, address := range slices.Compact(slices.Sorted(slices.Values(all))) {
			if !strings.HasPrefix(address, proxy.URL+"/reprise/") {
				t.Errorf("page %s contains the URL %s", p.Path, address)
			}
		}
		b.Problems() // the browser reports the status 404
	}
	click(t, b, "Sign out")
	shows(t, b, "h1", "Sign in")
	if escaped := proxy.takeEscaped(); len(escaped) > 0 {
		t.Errorf("requests without the prefix: got %q, want none", escaped)
	}
}
