package management

import (
	"io"
	"strconv"
	"strings"
)

// expositionType is the media type of Prometheus' text format
// (https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format).
const expositionType = "text/plain; version=0.0.4; charset=utf-8"

// exposition writes metrics in Prometheus' text format. It does not use Prometheus' client library, because the broker
// already has counters, and writing the format takes only a few lines of code.
type exposition struct {
	w    io.Writer
	text []byte // not yet sent
	err  error
}

// send sends the buffered text.
func (e *exposition) send() {
	if e.err == nil {
		_, e.err = e.w.Write(e.text)
	}
	e.text = e.text[:0]
}

type label struct{ name, value string }

type labels []label

// family writes the header of a metric. The caller then writes the samples.
func (e *exposition) family(name, kind, help string) {
	e.text = append(e.text, "# TYPE "+name+" "+kind+"\n# HELP "+name+" "+helpEscaper.Replace(help)+"\n"...)
}

func (e *exposition) sample(name string, l labels, value int64) {
	e.name(name, l)
	e.text = append(strconv.AppendInt(e.text, value, 10), '\n')
	if len(e.text) >= partSize {
		e.send()
	}
}

func (e *exposition) sampleFloat(name string, l labels, value float64) {
	e.name(name, l)
	e.text = append(strconv.AppendFloat(e.text, value, 'g', -1, 64), '\n')
}

func (e *exposition) name(name string, l labels) {
	e.text = append(e.text, name...)
	for i, label := range l {
		e.text = append(e.text, "{,"[min(i, 1)])
		e.text = append(e.text, label.name+`="`+valueEscaper.Replace(strings.ToValidUTF8(label.value, "\uFFFD"))+`"`...)
	}
	if len(l) > 0 {
		e.text = append(e.text, '}')
	}
	e.text = append(e.text, ' ')
}

var (
	helpEscaper  = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
	valueEscaper = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
)

func (e *exposition) gauge(name, help string, value int64) {
	e.family(name, "gauge", help)
	e.sample(name, nil, value)
}

func (e *exposition) counter(name, help string, value uint64) {
	e.family(name, "counter", help)
	e.sample(name, nil, int64(value))
}
