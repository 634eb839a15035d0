package profile

import (
	"encoding/base64"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"math/big"
	"mime"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// checkPrimitive checks what the schema's pattern cannot: ranges of integers,
// days that exist, base64. It returns "" or what is wrong.
func checkPrimitive(typeName string, v any) string {
	switch typeName {
	case "integer", "unsignedInt", "positiveInt":
		n, _ := v.(json.Number)
		i, err := strconv.ParseInt(string(n), 10, 32)
		switch {
		case err != nil:
			return "not a whole number of 32 bits"
		case typeName == "unsignedInt" && i < 0:
			return "below zero"
		case typeName == "positiveInt" && i < 1:
			return "below one"
		}
	case "date", "dateTime", "instant":
		text, _ := v.(string)
		if _, _, ok := interval(text); !ok {
			return "not a date or time that exists"
		}
	case "base64Binary":
		text, _ := v.(string)
		compact := strings.NewReplacer(" ", "", "\t", "", "\r", "", "\n", "").Replace(text)
		if _, err := base64.StdEncoding.DecodeString(compact); err != nil || compact == "" {
			return "not base64"
		}
	}
	return ""
}

// layouts are the forms of date, dateTime and instant, with how long each lasts.
var layouts = []struct {
	length int
	layout string
	after  func(time.Time) time.Time
}{
	{4, "2006", func(t time.Time) time.Time { return t.AddDate(1, 0, 0) }},
	{7, "2006-01", func(t time.Time) time.Time { return t.AddDate(0, 1, 0) }},
	{10, "2006-01-02", func(t time.Time) time.Time { return t.AddDate(0, 0, 1) }},
}

// interval returns the time that a FHIR date, dateTime or instant covers, from
// inclusive, to exclusive, in milliseconds since 1970. What has no time zone
// is read as UTC.
func interval(text string) (from, to int64, ok bool) {
	for _, l := range layouts {
		if len(text) == l.length {
			t, err := time.Parse(l.layout, text)
			return t.UnixMilli(), l.after(t).UnixMilli(), err == nil
		}
	}
	// A leap second is a second that exists, but not for package time.
	leap := false
	if len(text) > 19 && text[17:19] == "60" {
		leap, text = true, text[:17]+"59"+text[19:]
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return 0, 0, false
	}
	if leap {
		t = t.Add(time.Second)
	}
	width := int64(1)
	if !strings.Contains(text, ".") {
		width = 1000
	}
	return t.UnixMilli(), t.UnixMilli() + width, true
}

// Interval reads a FHIR date, dateTime or instant; see [DateRange].
func Interval(text string) (from, to int64, ok bool) {
	if len(text) > 40 {
		return 0, 0, false
	}
	return interval(text)
}

// sign and compareNumbers work on the digits, so that nothing is rounded. The
// exponents are bounded by checkNumbers.
func sign(n json.Number) int {
	r, ok := new(big.Rat).SetString(string(n))
	if !ok {
		return 0
	}
	return r.Sign()
}

func compareNumbers(a, b json.Number) int {
	x, okA := new(big.Rat).SetString(string(a))
	y, okB := new(big.Rat).SetString(string(b))
	if !okA || !okB {
		return 0
	}
	return x.Cmp(y)
}

func isMediaType(s string) bool {
	name, _, err := mime.ParseMediaType(s)
	return err == nil && strings.Contains(name, "/")
}

func isAbsolute(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.IsAbs()
}

// narrativeElements are the HTML elements that a narrative may have (FHIR R4,
// Narrative, txt-1): basic formatting, tables, lists, links and images.
var narrativeElements = strings.Fields(`a abbr acronym address b big blockquote br caption cite code col colgroup dd dfn div dl dt em
	h1 h2 h3 h4 h5 h6 hr i img li ol p pre q samp small span strong sub sup table tbody td tfoot th thead tr tt ul var`)

// narrativeAttributes are the attributes that they may have.
var narrativeAttributes = strings.Fields(`abbr accesskey align alt axis bgcolor border cellhalign cellpadding cellspacing cellvalign char
	charoff charset cite class colspan compact coords dir frame headers height href hreflang hspace id lang longdesc name nowrap rel rev
	rowspan rules scope shape span src start style summary tabindex title type valign value vspace width xmlns`)

// checkNarrative checks a narrative's XHTML (txt-1) and that it says something
// (txt-2).
func checkNarrative(text string) string {
	dec := xml.NewDecoder(strings.NewReader(text))
	dec.Entity = xml.HTMLEntity
	depth, says := 0, false
	for {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return "the narrative is not well-formed XHTML"
		}
		switch token := token.(type) {
		case xml.StartElement:
			if depth == 0 && (says || token.Name.Local != "div") {
				return "the narrative is one div"
			}
			if token.Name.Space != "http://www.w3.org/1999/xhtml" {
				return "the narrative's namespace is http://www.w3.org/1999/xhtml"
			}
			if why := checkNarrativeElement(token); why != "" {
				return why
			}
			if depth++; depth > 64 {
				return "the narrative is nested too deeply"
			}
			says = says || token.Name.Local == "img"
		case xml.EndElement:
			depth--
		case xml.CharData:
			blank := strings.TrimSpace(string(token)) == ""
			if depth == 0 && !blank {
				return "the narrative is one div"
			}
			says = says || !blank
		case xml.ProcInst, xml.Directive:
			return "the narrative has no processing instructions and declarations"
		}
	}
	if !says {
		return "the narrative says nothing (txt-2)"
	}
	return ""
}

func checkNarrativeElement(e xml.StartElement) string {
	if !slices.Contains(narrativeElements, e.Name.Local) {
		return "a narrative has no element " + strconv.Quote(clip(e.Name.Local))
	}
	for _, a := range e.Attr {
		if a.Name.Space != "" && a.Name.Space != "xml" && a.Name.Space != "http://www.w3.org/XML/1998/namespace" || !slices.Contains(narrativeAttributes, a.Name.Local) {
			return "a narrative has no attribute " + strconv.Quote(clip(a.Name.Local))
		}
		if a.Name.Local == "href" || a.Name.Local == "src" {
			scheme, _, _ := strings.Cut(strings.ToLower(strings.TrimSpace(a.Value)), ":")
			if strings.Contains(a.Value, ":") && !slices.Contains([]string{"http", "https", "mailto", "tel", "data", "urn"}, scheme) || strings.HasPrefix(scheme, "data") && e.Name.Local == "a" {
				return "a narrative has no links of that kind"
			}
		}
	}
	return ""
}

// maxInterval and minInterval stand for the ends of an open period.
const (
	minInterval = math.MinInt64 / 4
	maxInterval = math.MaxInt64 / 4
)
