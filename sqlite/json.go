package sqlite

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// maxDepth is how deep JSON may nest in SQLite (JSON_MAX_DEPTH, fixed when SQLite is compiled).
const maxDepth = 1000

// checkDepth refuses valid JSON that nests deeper than SQLite takes.
func checkDepth(raw json.RawMessage) error {
	if bytes.Count(raw, []byte("["))+bytes.Count(raw, []byte("{")) <= maxDepth {
		return nil
	}
	depth, text := 0, false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case text && c == '\\':
			i++
		case c == '"':
			text = !text
		case text:
		case c == '[' || c == '{':
			if depth++; depth > maxDepth {
				return fmt.Errorf("it nests deeper than %d levels, SQLite's limit", maxDepth)
			}
		case c == ']' || c == '}':
			depth--
		}
	}
	return nil
}
