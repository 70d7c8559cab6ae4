package config

import (
	"strings"
	"testing"
)

// Logs contain the errors of invalid files, so the errors must not show secrets.
func TestErrorsHideSecrets(t *testing.T) {
	const workers = "\nworkers:\n  - queue: a\n    exec: [x]\n"
	handler := func(s string) string { return "workers:\n  - {queue: a, " + s + "}\n" }
	duplicates := func(s string) string { return "workers:\n  - queue: a\n    exec: [x]\n    duplicates: " + s + "\n" }
	for name, text := range map[string]string{
		"a blank":             `broker: "amqp://u:my hush@host/"` + workers,
		"a blank before":      `broker: "amqp://u:hush hush@host/"` + workers,
		"an at and a slash":   `broker: amqp://u:p@hush/word@host/` + workers,
		"an at":               `broker: amqp://u:hunter@2hush@host:x/` + workers,
		"a slash":             `broker: amqp://u:hu/hush@host/` + workers,
		"a percent sign":      `broker: amqp://u:hush%zz@host/` + workers,
		"no at at all":        `broker: amqp://u:hush` + workers,
		"a quote":             `broker: 'amqp://u:it''s hush@host/'` + workers,
		"several lines":       "broker: \"amqp://u:some\n  hush\n  hush@host/\"" + workers,
		"a block":             "broker: |\n  amqp://u:some\n  hush@host/" + workers,
		"a comment":           "broker: amqp://u@host:x/ # was amqp://u:hush@host/" + workers,
		"a password in the %": "broker: amqp://u:${hush!}@host/" + workers,
		"a mapping":           `broker: {url: amqp://u:hush@host/}` + workers,
		"a list":              `broker: [amqp, hush]` + workers,
		"a tag":               `broker: !hush x` + workers,
		"an anchor":           `broker: &hush` + workers,
		"an alias":            `broker: *hush` + workers,
		"an alias of it":      "workers: []\nx: &x {y: hush}\nbroker: *x\n",
		"itself":              "broker: &a [hush, *a]" + workers,
		"in no place":         "workers: [{queue: a, exec: [x], brokr: amqp://u:hush@host/}]",
		"another name":        "amqp: [hush]" + workers,
		"a slip":              "brocker: u:hush" + workers,
		"a second one":        "broker: amqp://h/\nbroker: amqp://u:hush@host/" + workers,
		"no blank":            "broker:amqp://u:hush@host/" + workers,
		"no blank, a mapping": "{broker:amqp://u:hush@host/}",
		"no blank, a key":     "{broker:amqp://u:hush@host/: x, workers: []}",
		"nothing but it":      "amqp://u:hush@host/",
		"a second document":   "workers: []\n--- {broker: hush}\n",
		"a queue":             handler("queue: amqp://u:hush@host/, exec: [x], x: y"),
		"a command":           handler("exec: amqp://u:hush@host/"),

		"a store":               duplicates(`"postgres://u:my s%zzhush@host/db"`),
		"a store's parameter":   duplicates(`"postgres://host?password=hush"`),
		"no store":              duplicates(`redis://:hush@host`),
		"a store in a mapping":  duplicates(`{store: "postgres://u:hush@h/", kep: 1d}`),
		"a store's other name":  duplicates(`{databse: "u hush"}`),
		"a store and its slips": duplicates(`"postgres://u:hush@h/db" x: y`),

		"an endpoint":         handler(`http: ftp://h/hush`),
		"an endpoint's query": handler(`http: {url: "h?token=hush"}`),
		"headers":             handler(`http: {url: http://h/, headers: {Authorization: Bearer hush, X: [1]}}`),
		"headers' names":      handler(`http: {url: http://h/, headers: {Authorization Bearer hush, X: [1]}}`),
		"headers' slips":      handler(`http: {url: http://h/, headers: {Authorization Bearer hush: 1}}`),
		"headers as a list":   handler(`http: {url: http://h/, headers: [Bearer hush]}`),
		"headers elsewhere":   handler(`exec: [x], header: {Authorization: hush}`),
		"headers in lines":    "workers:\n  - queue: a\n    http:\n      url: http://h/\n      headers:\n        A: [hush,\n          hush]\n",
		"env":                 handler(`exec: {command: [x], env: {DBPASS: hush, X: [1]}}`),
		"env as a list":       handler(`exec: {command: [x], env: [DBPASS=hush]}`),
		"env's names":         handler(`exec: {command: [x], env: {DBPASS=hush}}`),
		"env's names twice":   handler(`exec: {command: [x], env: {DBPASS=hush, DBPASS=hush}}`),
		"env misspelt":        handler(`exec: {command: [x], enviroment: {DBPASS: hush, X: [1]}}`),
		"env with a tag":      handler(`exec: {command: [x], env: {DBPASS: !hush}}`),
		"env with a variable": handler(`exec: {command: [x], env: {DBPASS: "a${hush"}}`),

		"syntax: a colon":       "broker: amqp://u:hush@host/ : x" + workers,
		"syntax: a bracket":     "broker: [amqp://u:hu@hush@host/\nworkers:\n",
		"syntax: no at":         "broker: [amqp://u:hush\nworkers:\n",
		"syntax: a parameter":   "duplicates: [postgres://host/?password=hush\nworkers:\n",
		"syntax: both":          "duplicates: [postgres://u:hush@host/?password=hush&x=a@b hush\nworkers:\n",
		"syntax: headers":       "workers:\n  - {queue: a, http: {url: x, headers: {Authorization: Bearer hush, X: [1}}}\n",
		"syntax: below headers": "workers:\n  - queue: a\n    http:\n      headers:\n        X: \"hush\n        Y: \"x\"\n",
		"syntax: below env":     "workers:\n  - queue: a\n    exec:\n      env:\n        X: @hush\n",
		"syntax: a quote":       "broker: \"amqp://u:some\n  hush@host/\nworkers: [\n",
		"syntax: below broker":  "broker:\n  'hush\nworkers: [\n",
		"syntax: a tab":         "broker:\n\tamqp://hush\n",
		"syntax: a percent":     "broker: %hush\n",
		"syntax: deep":          "broker: hush" + strings.Repeat("[", 300) + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse("x.yaml", []byte(text), environment)
			if err == nil {
				t.Fatalf("file was accepted:\n%s", text)
			}
			if strings.Contains(err.Error(), "hush") {
				t.Errorf("file\n%s\nerror shows a secret\n%v", text, err)
			}
		})
	}
}

// Errors show the text next to a secret, and the caret points to the error.
func TestErrorsShowTextNextToSecrets(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"behind a secret": {
			"workers: [{queue: a, http: {url: http://h/, headers: {A: long hush, B: [1]}, timeot: 1s}}]",
			"      1 | workers: [{queue: a, http: {url: …, headers: {A: …, B: […]}, timeot: 1s}}]\n" +
				"        |                                                              ^",
		},
		"a secret": {
			"broker: 'amqp:hush' # of the first\nworkers: []",
			"      1 | broker: … # of the first\n        |         ^",
		},
		"syntax": {
			"workers:\n  - queue: [a\n    exec: [x]\n",
			"      3 |     exec: [x]\n        |     ^",
		},
		"syntax beside a secret": {
			"broker: amqp://u:hush@host/ : x\nworkers: []\n",
			"      1 | broker: amqp://…@host/ : x\n        |         ^",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse("x.yaml", []byte(c.text), environment)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got\n%v\nwant\n%s", err, c.want)
			}
		})
	}
}
