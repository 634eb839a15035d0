package postgres

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/eda94727/holdfast/internal/pgtest"
)

// TestCheckJSONAgreesWithServer: nothing that passes is refused by the server, and what is refused
// the server refuses too, so that no payload is turned away without need.
func TestCheckJSONAgreesWithServer(t *testing.T) {
	conn, err := pgx.Connect(t.Context(), pgtest.DSN(t))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	nested := func(n int, open, shut string) string { return strings.Repeat(open, n) + strings.Repeat(shut, n) }
	texts := []string{
		`"\u0000"`, `"\\u0000"`, `"\\\u0000"`, `"\\\\u0000"`, `{"\u0000":1}`, `{"a":["x\u0000y"]}`, `"\u0001"`,
		`"\ud800"`, `"\udc00"`, `"\ud83e\udd86"`, `"\uD83E\uDD86"`, `"\ud83e \udd86"`, `"\ud83e\ud83e\udd86"`, `"\udd86\ud83e"`, `"\ud83e\n"`, `"\ud83e\\udd86"`,
		`"\\ud800"`, `"\\\ud800"`, `"🦆"`, `"\"\\\/\b\f\n\r\t"`,
		`1e131071`, `1e131072`, `10e131071`, `0.1e131072`, `0.01e131073`, `1e-16383`, `1e-16384`, `0.1e-16382`, `0.1e-16383`, `1.50e-16381`, `1.50e-16382`,
		`-1e131071`, `-1e131072`, `1E+131071`, `1E+131072`, `1e200000`, `1e-20000`, `1e999999999`, `1e-999999999`, `1e99999999999999999999`, `1e-99999999999999999999`,
		`0e5`, `0e131072`, `0e200000`, `0e-16383`, `0e-16384`, `0.0e10`, `0e999999999`, `0e99999999999999999999`, `-0`, `-0.0`,
		strings.Repeat("9", 131072), strings.Repeat("9", 131073), "0." + strings.Repeat("3", 16383), "0." + strings.Repeat("3", 16384), "1" + strings.Repeat("0", 131071) + "." + strings.Repeat("3", 16383),
		`"1e999999"`, `{"e":1,"1e999999":"1e999999"}`, `{"a\"":1e200000}`, `[1,2e3,-4.5E-6]`,
		nested(1000, "[", "]"), nested(3000, "[", "]"), nested(9999, "[", "]"), nested(4999, `{"a":[`, `]}`), nested(9998, "[", "]") + " ",
	}
	for _, text := range texts {
		short := text
		if len(short) > 60 {
			short = fmt.Sprintf("%.40s… (%d bytes)", text, len(text))
		}
		if !json.Valid([]byte(text)) {
			t.Errorf("%s is no JSON, so this is no test", short)
			continue
		}
		_, server := conn.Exec(t.Context(), "select $1::text::jsonb::text", text)
		ours := checkJSON(json.RawMessage(text))
		if (server == nil) != (ours == nil) {
			t.Errorf("%s: ours %v, the server's %v", short, ours, server)
		}
	}
}
