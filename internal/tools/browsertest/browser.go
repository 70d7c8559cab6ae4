package browsertest

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// Browser is a headless Chromium with one tab.
type Browser struct {
	Tab  context.Context // context of the tab, for chromedp
	stop func()          // kills the browser without waiting
	once sync.Once

	mu       sync.Mutex
	problems []string
}

// NewBrowser starts a browser, which runs until ctx is done or Close is called.
func NewBrowser(ctx context.Context) (*Browser, error) {
	// Some test machines run Chromium as root, which needs NoSandbox. This is safe, because the browser loads only
	// pages of the tests.
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.DisableGPU)
	if path := os.Getenv("CHROMIUM"); path != "" {
		options = append(options, chromedp.ExecPath(path))
	}
	alloc, stopAlloc := chromedp.NewExecAllocator(ctx, options...)
	tab, stopTab := chromedp.NewContext(alloc)
	b := &Browser{Tab: tab, stop: func() { stopTab(); stopAlloc() }}
	if err := b.begin(); err != nil {
		b.stop()
		return nil, fmt.Errorf("cannot start Chromium: %w (on Debian, install chromium and fonts-dejavu-core, or set CHROMIUM to the path of the program)", err)
	}
	return b, nil
}

func (b *Browser) begin() error {
	if err := chromedp.Listen(b.Tab, b.listen); err != nil {
		return err
	}
	if _, err := chromedp.Call(b.Tab, cdplog.Enable, cdp.Empty{}); err != nil {
		return err
	}
	_, err := chromedp.Call(b.Tab, runtime.Enable, cdp.Empty{})
	return err
}

// Close stops the browser and removes its temporary directory.
func (b *Browser) Close() {
	b.once.Do(func() {
		asked, cancel := context.WithTimeout(b.Tab, 10*time.Second)
		defer cancel()
		_ = chromedp.Cancel(asked)
		b.stop()
	})
}

// listen records errors, violations of the content security policy, and dialogs.
func (b *Browser) listen(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *cdplog.EventEntryAdded:
		if e.Entry.Level == "error" || e.Entry.Source == "security" {
			b.problems = append(b.problems, e.Entry.Text+" "+e.Entry.URL)
		}
	case *runtime.EventExceptionThrown:
		b.problems = append(b.problems, fmt.Sprintf("%s %s:%d", e.ExceptionDetails.Text, e.ExceptionDetails.URL, e.ExceptionDetails.LineNumber))
	case *page.EventJavascriptDialogOpening:
		b.problems = append(b.problems, "a dialog opened: "+e.Message)
	}
}

// Problems returns the errors, policy violations and dialogs since the last call.
func (b *Browser) Problems() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.problems
	b.problems = nil
	return p
}

// Do runs steps in the tab.
func (b *Browser) Do(steps ...chromedp.Action[chromedp.Void]) error {
	return chromedp.Do(b.Tab, steps...)
}

// Look sets the size of the viewport, the color scheme (light or dark) and the number of device pixels per CSS pixel.
func (b *Browser) Look(width, height int, scheme string, scale float64) error {
	if err := b.Do(chromedp.EmulateViewport(int64(width), int64(height), chromedp.EmulateScale(scale))); err != nil {
		return err
	}
	_, err := chromedp.Call(b.Tab, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
	return err
}
