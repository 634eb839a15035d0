package host

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/eda94727/holdfast/record"
	"github.com/eda94727/holdfast/record/internal/db/dbtest"
)

// found lists the ids of a search, following its next links.
func (a *app) found(path string) (ids []string, pages int) {
	a.t.Helper()
	for path != "" {
		got := a.get(path)
		var v struct {
			Type  string
			Link  []struct{ Relation, URL string }
			Entry []struct {
				FullURL  string
				Resource struct{ ID string }
			}
		}
		if err := json.Unmarshal([]byte(got.body), &v); err != nil || got.status != 200 || v.Type != "searchset" {
			a.t.Fatalf("%s: %d %s", path, got.status, got.body)
		}
		path = ""
		for _, l := range v.Link {
			if l.Relation == "next" {
				path = strings.TrimPrefix(l.URL, a.server.URL)
			}
		}
		for _, e := range v.Entry {
			if !strings.HasSuffix(e.FullURL, "/"+e.Resource.ID) {
				a.t.Errorf("%s is %s", e.FullURL, e.Resource.ID)
			}
			ids = append(ids, e.Resource.ID)
		}
		pages++
	}
	return ids, pages
}

func TestSearch(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, database string) {
		a := newRig(t, database).app("patient/*.cruds")
		category := func(code string) string {
			return `,"category":[{"coding":[{"system":"http://terminology.hl7.org/CodeSystem/observation-category","code":"` + code + `"}]}]`
		}
		lab := a.create(a.obs(category("laboratory") + `,"effectiveDateTime":"2020-05-01","identifier":[{"system":"http://x","value":"a,b|c"}]`))
		vital := a.create(a.obs(category("vital-signs") + `,"effectiveDateTime":"2021-05-01T10:00:00+02:00"`))
		open := a.create(a.obs(`,"effectivePeriod":{"start":"2022"}`))
		gone := a.create(a.obs(category("laboratory")))
		a.do("DELETE", "/fhir/Observation/"+gone, "", headers{"If-Match": `"1"`})
		cond := a.create(`{"resourceType":"Condition","code":{"text":"x"},"subject":{"reference":"Patient/` + a.record + `"},"recordedDate":"2020"}`)
		all := []string{lab, vital, open}
		for query, want := range map[string][]string{
			"":                                 all,
			"?patient=" + a.record:             all,
			"?subject=Patient/" + a.record:     all,
			"?patient=" + record.NewID():       nil,
			"?category=laboratory":             {lab},
			"?category=laboratory,vital-signs": {lab, vital},
			"?category=http://terminology.hl7.org/CodeSystem/observation-category|laboratory": {lab},
			"?category=http://terminology.hl7.org/CodeSystem/observation-category|":           {lab, vital},
			"?category=|laboratory":                        nil,
			"?category=http://x|laboratory":                nil,
			"?category=laboratory&category=vital-signs":    nil,
			"?code=718-7&status=final&_count=10":           all,
			"?code=http://loinc.org|718-7":                 all,
			"?status=amended":                              nil,
			`?identifier=http://x|a\,b\|c`:                 {lab},
			"?identifier=a":                                nil,
			"?_id=" + lab + "," + vital:                    {lab, vital},
			"?_id=" + gone:                                 nil,
			"?_id=" + lab + "&category=vital-signs":        nil,
			"?date=2020-05-01":                             {lab},
			"?date=2020-05":                                {lab},
			"?date=ge2021":                                 {vital, open},
			"?date=gt2020-05-01":                           {vital, open},
			"?date=lt2021":                                 {lab},
			"?date=le2021-05":                              {lab, vital},
			"?date=sa2020":                                 {vital, open},
			"?date=eb2021":                                 {lab},
			"?date=ne2020-05-01":                           {vital, open},
			"?date=ge2020&date=lt2021-01-01":               {lab},
			"?date=2020-05-01,2021-05-01T08:00:00Z":        {lab, vital},
			"?category=laboratory,vital-signs&date=lt2021": {lab},
			"?_lastUpdated=ge2020":                         all,
			"?_lastUpdated=lt2020":                         nil,
			"?_format=json":                                all,
		} {
			got, _ := a.found("/fhir/Observation" + query)
			if !slices.Equal(got, want) {
				t.Errorf("%s: got %v, want %v", query, got, want)
			}
		}
		if got, _ := a.found("/fhir/Condition?recorded-date=2020"); !slices.Equal(got, []string{cond}) {
			t.Errorf("%v", got)
		}
		post := a.do("POST", "/fhir/Observation/_search", "category=laboratory", headers{"Content-Type": "application/x-www-form-urlencoded"})
		if post.status != 200 || strings.Count(post.body, "fullUrl") != 1 {
			t.Errorf("%d %s", post.status, post.body)
		}
		// What changes leaves the index.
		a.do("PUT", "/fhir/Observation/"+lab, a.withID(a.obs(category("vital-signs")), lab), headers{"If-Match": `"1"`})
		if got, _ := a.found("/fhir/Observation?category=laboratory"); got != nil {
			t.Errorf("%v", got)
		}
		if got, _ := a.found("/fhir/Patient/" + a.record + "/$everything"); len(got) != 5 {
			t.Errorf("everything: %v", got)
		}
		for _, bad := range []string{"?x=1", "?category=", "?category=|", "?category=a|b|c", "?date=x", "?date=xx2020", "?date=ap2020", "?_count=0", "?_count=x", "?_after=x", "?_after=-1", "?_id=a/b",
			"?_lastUpdated=x", "?_sort=date", "?category:not=x", "?code=" + strings.Repeat("x", 2000), "?" + strings.Repeat("status=final&", 20), "?_id=" + strings.Repeat("a,", 60) + "a", "?patient.name=x"} {
			a.expect(bad, a.get("/fhir/Observation"+bad), 400, record.InvalidMessage)
		}
		a.expect("patient of a Patient", a.get("/fhir/Patient?patient="+a.record), 400, record.InvalidMessage)
	})
}

func TestPaging(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, database string) {
		a := newRig(t, database).app("patient/*.cruds")
		var want []string
		for i := range 7 {
			want = append(want, a.create(a.obs(fmt.Sprintf(`,"category":[{"coding":[{"code":"c%d"},{"code":"all"}]}]`, i%2))))
		}
		for _, path := range []string{"/fhir/Observation?_count=3", "/fhir/Observation?_count=3&category=all", "/fhir/Observation?_count=3&category=c0,c1,all", "/fhir/Observation?_count=3&status=final&category=c0,c1"} {
			if got, pages := a.found(path); !slices.Equal(got, want) || pages != 3 {
				t.Errorf("%s: %v in %d pages", path, got, pages)
			}
		}
		if got, pages := a.found("/fhir/Patient/" + a.record + "/$everything?_count=4"); len(got) != 8 || pages != 2 {
			t.Errorf("everything: %v in %d pages", got, pages)
		}
	})
}

func TestMetadata(t *testing.T) {
	a := newRig(t, dbtest.SQLite(t)).app("patient/*.r")
	got := a.do("GET", "/fhir/metadata", "", headers{"Authorization": "", "DPoP": ""})
	var v struct {
		ResourceType, FHIRVersion string
		Rest                      []struct{ Resource []struct{ Type string } }
	}
	if json.Unmarshal([]byte(got.body), &v); got.status != 200 || v.ResourceType != "CapabilityStatement" || v.FHIRVersion != "4.0.1" || len(v.Rest[0].Resource) != 10 {
		t.Errorf("%d %s", got.status, got.body)
	}
	for _, path := range []string{"/.well-known/oauth-authorization-server", "/fhir/.well-known/smart-configuration", "/oauth/jwks"} {
		if got := a.get(path); got.status != 200 || !json.Valid([]byte(got.body)) {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
}

// No search makes SQL out of a user's text, and none costs without bound.
func FuzzSearch(f *testing.F) {
	for _, seed := range []string{"category=laboratory&date=ge2020", "code=a|b,c", "_id=1&_count=2", "identifier=\\,|", "_lastUpdated=lt2020-01-01T00:00:00Z", "status=' or 1=1 --"} {
		f.Add(seed)
	}
	patient := record.NewID()
	f.Fuzz(func(t *testing.T, text string) {
		values, err := url.ParseQuery(text)
		if err != nil {
			return
		}
		q, err := parseSearch("Observation", patient, values)
		if err != nil {
			if record.CodeOf(err) != record.InvalidMessage {
				t.Fatalf("%v", err)
			}
			return
		}
		sql := q.sql()
		if len(q.args) > 2*maxSearchValues+4 || len(sql) > 40000 {
			t.Fatalf("%d values, %d bytes", len(q.args), len(sql))
		}
		// Whatever the text, the statement has only letters that we put there.
		if strings.Trim(sql, "abcdefghijklmnopqrstuvwxyz0123456789_.,:()=<>+ ") != "" {
			t.Fatalf("a user's text in %s", sql)
		}
	})
}
