// Package sqltext reads the .sql files of the dialects: one statement each, with named parameters.
//
//	-- A comment, dropped.
//	select id from cairnq_tasks
//	where queue = :queue
//	  and name = :name    --? name
//
// A line that ends in "--? name" stands only in the variants in which that optional parameter is
// given. {{columns}} stands for a text that the dialect sets.
package sqltext

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// Text is a parsed file.
type Text struct {
	Name     string
	Optional []string // in the order of their bits in Render's mask
	lines    []line
}

type line struct {
	text string
	opt  int // index in Optional, or -1
}

var named = regexp.MustCompile(`(?:^|[^:\w]):([a-z]\w*)`)

// Load parses every .sql file of the folder, keyed by name without ending.
func Load(files fs.FS, dir string, replace map[string]string) (map[string]*Text, error) {
	list, err := fs.Glob(files, path.Join(dir, "*.sql"))
	if err != nil {
		return nil, err
	}
	sort.Strings(list)
	out := map[string]*Text{}
	for _, file := range list {
		b, err := fs.ReadFile(files, file)
		if err != nil {
			return nil, err
		}
		name := strings.TrimSuffix(path.Base(file), ".sql")
		out[name] = parse(name, string(b), replace)
	}
	return out, nil
}

// Parse reads one statement from a string.
func Parse(name, text string) *Text { return parse(name, text, nil) }

func parse(name, text string, replace map[string]string) *Text {
	t := &Text{Name: name}
	for k, v := range replace {
		text = strings.ReplaceAll(text, "{{"+k+"}}", v)
	}
	for _, s := range strings.Split(text, "\n") {
		opt := -1
		if body, o, ok := strings.Cut(s, "--?"); ok {
			o = strings.TrimSpace(o)
			if opt = slices.Index(t.Optional, o); opt < 0 {
				opt = len(t.Optional)
				t.Optional = append(t.Optional, o)
			}
			s = body
		}
		s, _, _ = strings.Cut(s, "--")
		if s = strings.TrimSpace(s); s != "" {
			t.lines = append(t.lines, line{s, opt})
		}
	}
	return t
}

// Style is how a driver writes parameters.
type Style int

const (
	Question Style = iota // ?, ?, … one for each use
	Numbered              // ?1, ?2, … one for each name
	Dollar                // $1, $2, … one for each name
)

// Render writes the variant in which the optional parameters of the mask are given, and answers the
// names to bind, in order.
func (t *Text) Render(style Style, mask uint) (sql string, params []string) {
	var b strings.Builder
	for _, l := range t.lines {
		if l.opt >= 0 && mask&(1<<l.opt) == 0 {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		rest := l.text
		for {
			m := named.FindStringSubmatchIndex(rest)
			if m == nil {
				break
			}
			name := rest[m[2]:m[3]]
			b.WriteString(rest[:m[2]-1])
			rest = rest[m[3]:]
			i := slices.Index(params, name)
			if style == Question || i < 0 {
				params = append(params, name)
				i = len(params) - 1
			}
			switch style {
			case Question:
				b.WriteByte('?')
			case Numbered:
				fmt.Fprintf(&b, "?%d", i+1)
			case Dollar:
				fmt.Fprintf(&b, "$%d", i+1)
			}
		}
		b.WriteString(rest)
	}
	return b.String(), params
}

var number = regexp.MustCompile(`\?(\d+)`)

// RenderRows writes a text that ends in "values (…)" for n rows, with numbered parameters: those of
// one row after those of the row before, in the order of params.
func (t *Text) RenderRows(n int) (sql string, params []string) {
	sql, params = t.Render(Numbered, 0)
	head, row, ok := strings.Cut(sql, "\nvalues ")
	if !ok {
		panic("sqltext: " + t.Name + " does not end in a line of values")
	}
	rows := make([]string, n)
	for i := range rows {
		rows[i] = number.ReplaceAllStringFunc(row, func(p string) string {
			k, _ := strconv.Atoi(p[1:]) // digits
			return "?" + strconv.Itoa(i*len(params)+k)
		})
	}
	return head + "\nvalues " + strings.Join(rows, ",\n"), params
}

// Edit changes every line of the text before it is rendered.
func (t *Text) Edit(fn func(line string) string) {
	for i := range t.lines {
		t.lines[i].text = fn(t.lines[i].text)
	}
}
