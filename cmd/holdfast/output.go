package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/mattn/go-isatty"
	"github.com/rivo/uniseg"

	"github.com/eda94727/holdfast"
)

// output is a stream that remembers its first error, and whether a person looks at it.
type output struct {
	w        io.Writer
	err      error
	terminal bool
	color    bool
}

func newOutput(w io.Writer) *output {
	o := &output{w: w}
	if f, ok := w.(*os.File); ok {
		o.terminal = isatty.IsTerminal(f.Fd()) || isatty.IsCygwinTerminal(f.Fd())
	}
	// https://no-color.org: any value that is not empty.
	o.color = o.terminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	return o
}

func (o *output) Write(p []byte) (int, error) {
	n, err := o.w.Write(p)
	if err != nil && o.err == nil {
		o.err = err
	}
	return n, err
}

// style is an SGR parameter.
type style string

const (
	plain  style = ""
	bold   style = "1"
	dim    style = "2"
	red    style = "31"
	green  style = "32"
	yellow style = "33"
	cyan   style = "36"
)

// paint colors a text where colors are welcome.
func (o *output) paint(s style, text string) string {
	if !o.color || s == plain || text == "" {
		return text
	}
	return "\x1b[" + string(s) + "m" + text + "\x1b[0m"
}

func statusStyle(s holdfast.Status) style {
	switch s {
	case holdfast.Running:
		return cyan
	case holdfast.Succeeded:
		return green
	case holdfast.Failed:
		return red
	case holdfast.Canceled:
		return yellow
	}
	return plain
}

// document prints one JSON document on a line.
func (o *output) document(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = o.Write(append(b, '\n'))
	return err
}

// cell is one field of a table.
type cell struct {
	text  string
	style style
	right bool
}

// table prints rows with aligned columns; the first row is the head.
func (o *output) table(head []string, rows [][]cell) {
	all := make([][]cell, 0, len(rows)+1)
	top := make([]cell, len(head))
	for i, h := range head {
		top[i] = cell{text: h, style: dim}
		if len(rows) > 0 {
			top[i].right = rows[0][i].right
		}
	}
	all = append(append(all, top), rows...)
	widths := make([]int, len(head))
	for _, row := range all {
		for i := range row {
			row[i].text = clean(row[i].text)
			widths[i] = max(widths[i], uniseg.StringWidth(row[i].text))
		}
	}
	var b strings.Builder
	for _, row := range all {
		for i, c := range row {
			pad := strings.Repeat(" ", widths[i]-uniseg.StringWidth(c.text))
			if i > 0 {
				b.WriteString("  ")
			}
			if c.right {
				b.WriteString(pad)
			}
			b.WriteString(o.paint(c.style, c.text))
			if !c.right && i < len(row)-1 {
				b.WriteString(pad)
			}
		}
		b.WriteByte('\n')
	}
	io.WriteString(o, b.String())
}

// clean makes a text of anybody's safe to show: a terminal obeys control characters.
func clean(s string) string { return cleanExcept(s, "") }

// cleanLines is clean for texts of several lines.
func cleanLines(s string) string { return cleanExcept(s, "\n\t") }

func cleanExcept(s, keep string) string {
	bad := func(r rune) bool {
		return (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)) && !strings.ContainsRune(keep, r)
	}
	s = strings.ToValidUTF8(s, "\uFFFD")
	if strings.IndexFunc(s, bad) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if bad(r) {
			q := strconv.QuoteRuneToASCII(r)
			b.WriteString(q[1 : len(q)-1])
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// cut shortens a text to at most n columns or so.
func cut(s string, n int) string {
	s = clean(s)
	if uniseg.StringWidth(s) <= n {
		return s
	}
	width, end := 0, 0
	g := uniseg.NewGraphemes(s)
	for g.Next() {
		width += g.Width()
		if width > n-1 {
			break
		}
		_, end = g.Positions()
	}
	return s[:end] + "…"
}

// ago says how long ago t was, or in how long it will be.
func (a *app) ago(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	d := a.now().Sub(t)
	switch {
	case d < -time.Second:
		return "in " + short(-d)
	case d < time.Second:
		return "now"
	}
	return short(d) + " ago"
}

// short is a duration in its largest unit.
func short(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// moment is a time in full and how long ago that is.
func (a *app) moment(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Local().Format("2006-01-02 15:04:05.000") + " (" + a.ago(t) + ")"
}
