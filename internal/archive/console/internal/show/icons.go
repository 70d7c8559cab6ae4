package show

import (
	"fmt"
	"html/template"
	"strings"
)

// icons contains SVG shapes on a 16×16 grid, for a stroke width of 1.5.
var icons = map[string]string{
	"brand":    `<path d="M13 4.5A6 6 0 1 0 14 8"/><path d="M14 1.5v3.2h-3.2"/><circle cx="8" cy="8" r="1.6" fill="currentColor" stroke="none"/>`,
	"overview": `<rect x="2" y="2" width="5" height="5" rx="1"/><rect x="9" y="2" width="5" height="5" rx="1"/><rect x="2" y="9" width="5" height="5" rx="1"/><rect x="9" y="9" width="5" height="5" rx="1"/>`,
	"groups":   `<path d="M8 1.8 14 5 8 8.2 2 5z"/><path d="m2 8 6 3.2L14 8M2 11l6 3.2 6-3.2"/>`,
	"search":   `<circle cx="7" cy="7" r="4.5"/><path d="m10.5 10.5 3.5 3.5"/>`,
	"replay":   `<path d="M2.5 8a5.5 5.5 0 1 0 1.8-4.1L2.5 5.5"/><path d="M2.5 2v3.5H6"/>`,
	"topology": `<circle cx="3.5" cy="8" r="1.8"/><circle cx="12.5" cy="3.5" r="1.8"/><circle cx="12.5" cy="12.5" r="1.8"/><path d="m5.2 7.2 5.6-2.9M5.2 8.8l5.6 2.9"/>`,
	"doctor":   `<path d="M6 2.5h4V6h3.5v4H10v3.5H6V10H2.5V6H6z"/>`,
	"workers":  `<rect x="2" y="2.5" width="12" height="4.5" rx="1.2"/><rect x="2" y="9" width="12" height="4.5" rx="1.2"/><path d="M4.8 4.7v.2M4.8 11.2v.2M7.5 4.8h4M7.5 11.3h4"/>`,
	"history":  `<path d="M2 2v12h12"/><path d="m4.5 10.5 2.5-3 2.5 1.5L13.5 4"/>`,
	"audit":    `<rect x="3" y="1.8" width="10" height="12.4" rx="1.5"/><path d="M5.8 5.2h4.4M5.8 8h4.4M5.8 10.8h2.4"/>`,
	"edit":     `<path d="m2.5 13.5.7-2.9 7.6-7.6a1.3 1.3 0 0 1 1.9 0l.3.3a1.3 1.3 0 0 1 0 1.9l-7.6 7.6z"/>`,
	"discard":  `<path d="M2.5 4h11M6 4V2.5h4V4M4 4l.6 9.5h6.8L12 4"/>`,
	"info":     `<circle cx="8" cy="8" r="6"/><path d="M8 7.2v3.6M8 5v.2"/>`,
	"warn":     `<path d="M8 2 14.5 13.5h-13z"/><path d="M8 6.5v3.2M8 11.6v.2"/>`,
	"check":    `<path d="m3 8.5 3.2 3.2L13 4.8"/>`,

	"failed":    `<circle cx="8" cy="8" r="4.5" fill="currentColor"/>`,
	"replaying": `<circle cx="8" cy="8" r="5"/><path d="M8 3a5 5 0 0 1 0 10z" fill="currentColor" stroke="none"/>`,
	"replayed":  `<circle cx="8" cy="8" r="6"/><path d="m5.4 8.2 1.8 1.8 3.4-3.8"/>`,
	"discarded": `<circle cx="8" cy="8" r="5.5"/><path d="m4.2 11.8 7.6-7.6"/>`,
	"stopped":   `<rect x="4" y="4" width="8" height="8" rx="1.5" fill="currentColor"/>`,
	"dot":       `<circle cx="8" cy="8" r="3"/>`,
	"paused":    `<path d="M5.5 3.5v9M10.5 3.5v9"/>`,
	"retrying":  `<circle cx="8" cy="8" r="6"/><path d="M8 4.5V8l2.5 1.5"/>`,
	"scheduled": `<rect x="2" y="3" width="12" height="11" rx="1.5"/><path d="M2 6.5h12M5.2 1.5V4M10.8 1.5V4M5 9.8h2.6M5 11.8h5.5"/>`,
	"in":        `<circle cx="8" cy="8" r="6"/><path d="M8 4.8v6.4M5.4 8.6 8 11.2l2.6-2.6"/>`,
}

// likeIcons maps a state to the state whose icon it uses.
var likeIcons = map[string]string{
	"running": "replaying", "cancelling": "replaying", "done": "replayed", "cancelled": "discarded",
	"closed": "replayed", "open": "stopped", "half-open": "replaying",
	"consuming": "replayed", "failed again": "failed", "connecting": "warn", "silent": "warn",
}

// Icon returns a decorative icon, which screen readers ignore. The adjacent text conveys the meaning.
func Icon(name string) template.HTML {
	if like, ok := likeIcons[name]; ok {
		name = like
	}
	drawing, ok := icons[name]
	if !ok {
		drawing = icons["dot"]
	}
	size := 16
	if name == "brand" {
		size = 20
	}
	return template.HTML(fmt.Sprintf(`<svg width="%d" height="%d" viewBox="0 0 16 16" fill="none" stroke="currentColor" `+
		`stroke-width="1.5" stroke-linecap="round" stroke-linejoin="round" aria-hidden="true">%s</svg>`, size, size, drawing))
}

// Tag returns a colored tag with the icon and the name of a state.
func Tag(state any) template.HTML {
	word := fmt.Sprint(state)
	drawn := strings.Replace(string(Icon(word)), `width="16" height="16"`, `width="12" height="12"`, 1)
	text := template.HTMLEscapeString(word)
	return template.HTML(`<span class="tag ` + text + `">` + drawn + text + `</span>`)
}
