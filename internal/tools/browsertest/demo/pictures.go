package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/chromedp/chromedp"

	"github.com/reprisemq/reprise/internal/tools/browsertest"
)

// takePictures writes NAME-WIDTH-SCHEME.png for each page, and the pictures of the README.
func takePictures(ctx context.Context, shop *browsertest.Shop, dir, readme string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	all, err := browsertest.Pages(ctx, shop.Archive)
	if err != nil {
		return err
	}
	b, err := browsertest.NewBrowser(ctx)
	if err != nil {
		return err
	}
	defer b.Close()
	if readme != "" {
		if err := takeForReadme(b, shop.URL, all, readme); err != nil {
			return err
		}
	}
	for _, width := range []int{1440, 390} {
		for _, scheme := range []string{"light", "dark"} {
			if err := b.Look(width, 800, scheme, 2); err != nil {
				return err
			}
			for _, a := range all {
				if err := take(b, shop.URL+a.Path, filepath.Join(dir, fmt.Sprintf("%s-%d-%s.png", a.Name, width, scheme))); err != nil {
					return fmt.Errorf("%s: %w", a.Path, err)
				}
			}
		}
	}
	for _, p := range b.Problems() {
		fmt.Println("browser:", p)
	}
	return nil
}

// takeForReadme takes two pictures with the size of a screen. One shows a message. The other shows the overview, after
// the broker has measured its rates.
func takeForReadme(b *browsertest.Browser, url string, all []browsertest.Page, dir string) error {
	for _, want := range []struct{ name, scheme, ready string }{
		{"overview", "light", "[...document.querySelectorAll('dt')].some(t => t.innerText === 'Processed per second' && /^[1-9][0-9,.]*\\s+[1-9][0-9,.]* incoming/.test(t.nextElementSibling.innerText))"},
		{"message-edited", "dark", "true"},
	} {
		i := slices.IndexFunc(all, func(p browsertest.Page) bool { return p.Name == want.name })
		if i < 0 {
			return fmt.Errorf("page %s not found", want.name)
		}
		if err := b.Look(1280, 880, want.scheme, 1.5); err != nil {
			return err
		}
		if err := b.Do(chromedp.Navigate(url + all[i].Path)); err != nil {
			return err
		}
		if _, err := chromedp.Run(b.Tab, chromedp.Poll[bool](want.ready)); err != nil {
			return err
		}
		picture, err := chromedp.Run(b.Tab, chromedp.CaptureScreenshot())
		if err != nil {
			return err
		}
		name := "console-" + strings.TrimSuffix(want.name, "-edited") + ".png"
		if err := os.WriteFile(filepath.Join(dir, name), picture, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func take(b *browsertest.Browser, url, file string) error {
	if err := b.Do(chromedp.Navigate(url), chromedp.WaitVisible(chromedp.CSS("main"))); err != nil {
		return err
	}
	over, err := chromedp.Run(b.Tab, chromedp.Evaluate[int]("document.documentElement.scrollWidth - document.documentElement.clientWidth"))
	if err != nil {
		return err
	}
	if over > 0 {
		fmt.Printf("%s is %d wider than the screen\n", file, over)
	}
	picture, err := chromedp.Run(b.Tab, chromedp.FullScreenshot(100))
	if err != nil {
		return err
	}
	return os.WriteFile(file, picture, 0o644)
}
