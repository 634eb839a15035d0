package sqltext

import (
	"reflect"
	"testing"
)

func TestRender(t *testing.T) {
	text := Parse("x", "-- Comment.\ninsert into t (a, b, c)\nvalues (:a, :b::text, :a + 1)")
	for _, c := range []struct {
		sql    string
		params []string
		render func() (string, []string)
	}{
		{"insert into t (a, b, c)\nvalues (?, ?::text, ? + 1)", []string{"a", "b", "a"}, func() (string, []string) { return text.Render(Question, 0) }},
		{"insert into t (a, b, c)\nvalues ($1, $2::text, $1 + 1)", []string{"a", "b"}, func() (string, []string) { return text.Render(Dollar, 0) }},
		{"insert into t (a, b, c)\nvalues (?1, ?2::text, ?1 + 1)", []string{"a", "b"}, func() (string, []string) { return text.RenderRows(1) }},
		{"insert into t (a, b, c)\nvalues (?1, ?2::text, ?1 + 1),\n(?3, ?4::text, ?3 + 1),\n(?5, ?6::text, ?5 + 1)", []string{"a", "b"}, func() (string, []string) { return text.RenderRows(3) }},
	} {
		if sql, params := c.render(); sql != c.sql || !reflect.DeepEqual(params, c.params) {
			t.Errorf("%q with %v, want %q with %v", sql, params, c.sql, c.params)
		}
	}
}

func TestRenderOptional(t *testing.T) {
	text := Parse("x", "select 1 from t\nwhere a = :a\n  and b = :b --? b\n  and c = :c --? c")
	for mask, want := range []string{"select 1 from t\nwhere a = ?1", "select 1 from t\nwhere a = ?1\nand b = ?2", "select 1 from t\nwhere a = ?1\nand c = ?2", "select 1 from t\nwhere a = ?1\nand b = ?2\nand c = ?3"} {
		if sql, _ := text.Render(Numbered, uint(mask)); sql != want {
			t.Errorf("%q, want %q", sql, want)
		}
	}
}
