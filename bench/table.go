package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"unicode/utf8"
)

// text returns the report for a terminal.
func (r *report) text() string {
	var b strings.Builder
	for _, line := range r.about() {
		b.WriteString(line + "\n")
	}
	for _, db := range []string{"sqlite", "postgres"} {
		if r.has(db) {
			fmt.Fprintf(&b, "\n%s\n\n%s", r.title(db), aligned(r.table(db)))
		}
	}
	return b.String()
}

// markdown returns the report for a page.
func (r *report) markdown() string {
	var b strings.Builder
	b.WriteString(strings.Join(r.about(), ".  \n") + ".\n")
	for _, db := range []string{"sqlite", "postgres"} {
		if !r.has(db) {
			continue
		}
		fmt.Fprintf(&b, "\n%s:\n\n", r.title(db))
		for i, cells := range r.table(db) {
			fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | "))
			if i == 0 {
				b.WriteString("|---" + strings.Repeat("|--:", len(cells)-1) + "|\n")
			}
		}
	}
	return b.String()
}

// aligned sets the cells in columns, the first to the left and numbers to the right.
func aligned(table [][]string) string {
	widths := make([]int, len(table[0]))
	for _, cells := range table {
		for i, cell := range cells {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for _, cells := range table {
		for i, cell := range cells {
			space := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i == 0 {
				b.WriteString(cell + space)
			} else {
				b.WriteString("  " + space + cell)
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

// short writes a number as people read it: three digits that count at most, and commas.
func short(n float64) string {
	switch {
	case n < 1:
		return strconv.FormatFloat(n, 'g', 2, 64)
	case n < 10:
		return strconv.FormatFloat(n, 'f', 1, 64)
	case n >= 1000:
		step := math.Pow(10, math.Floor(math.Log10(n))-2)
		n = math.Round(n/step) * step
	}
	digits := strconv.FormatFloat(n, 'f', 0, 64)
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}
