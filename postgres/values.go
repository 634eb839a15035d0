package postgres

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/eda94727/holdfast"
)

// arguments are the statement's parameters as every driver takes them in every mode: the SQL casts
// each one, lists are Postgres array literals.
func (s *statement) arguments(row *holdfast.Row) []any {
	args := make([]any, len(s.params))
	for i, p := range s.params {
		args[i] = argument(row.At(p))
	}
	return args
}

func argument(field any, nullable bool) any {
	switch f := field.(type) {
	case *string:
		if nullable && *f == "" {
			return nil
		}
		return *f
	case *holdfast.Status:
		return string(*f)
	case *int:
		return int64(*f)
	case *int64:
		return *f
	case *bool:
		return *f
	case *json.RawMessage:
		if *f == nil {
			return nil
		}
		return string(*f)
	case **float64:
		if *f == nil {
			return nil
		}
		return **f
	case *time.Time:
		if nullable && f.IsZero() {
			return nil
		}
		return f.UnixMilli()
	case *[]string:
		var l list
		for _, s := range *f {
			l.add(s)
		}
		return l.String()
	}
	panic(fmt.Sprintf("postgres: cannot bind %T", field))
}

// manyArguments gives each parameter the list of that field over all rows.
func (s *statement) manyArguments(rows []*holdfast.Row) []any {
	args := make([]any, len(s.params))
	for i, p := range s.params {
		var l list
		for _, row := range rows {
			l.add(argument(row.At(p)))
		}
		args[i] = l.String()
	}
	return args
}

// list writes a Postgres array literal.
type list struct{ b strings.Builder }

var escapeElement = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

func (l *list) add(v any) {
	if l.b.Len() == 0 {
		l.b.WriteByte('{')
	} else {
		l.b.WriteByte(',')
	}
	switch v := v.(type) {
	case nil:
		l.b.WriteString("NULL")
	case int64:
		l.b.WriteString(strconv.FormatInt(v, 10))
	case string:
		l.b.WriteByte('"')
		escapeElement.WriteString(&l.b, v)
		l.b.WriteByte('"')
	default:
		panic(fmt.Sprintf("postgres: cannot list %T", v))
	}
}

func (l *list) String() string {
	if l.b.Len() == 0 {
		return "{}"
	}
	return l.b.String() + "}"
}

// plain answers a column as text: some modes of the driver ask for the binary form of some types. It
// may use scratch.
func plain(f *pgconn.FieldDescription, raw, scratch []byte) ([]byte, error) {
	if raw == nil || f.Format == pgx.TextFormatCode {
		return raw, nil
	}
	switch {
	case f.DataTypeOID == pgtype.TextOID, f.DataTypeOID == pgtype.VarcharOID, f.DataTypeOID == pgtype.JSONOID:
		return raw, nil
	case f.DataTypeOID == pgtype.JSONBOID && len(raw) > 0 && raw[0] == 1: // the version, then the text
		return raw[1:], nil
	case f.DataTypeOID == pgtype.BoolOID && len(raw) == 1:
		return strconv.AppendBool(scratch, raw[0] == 1), nil
	case f.DataTypeOID == pgtype.Int4OID && len(raw) == 4:
		return strconv.AppendInt(scratch, int64(int32(binary.BigEndian.Uint32(raw))), 10), nil
	case f.DataTypeOID == pgtype.Int8OID && len(raw) == 8:
		return strconv.AppendInt(scratch, int64(binary.BigEndian.Uint64(raw)), 10), nil
	case f.DataTypeOID == pgtype.Float8OID && len(raw) == 8:
		return strconv.AppendFloat(scratch, math.Float64frombits(binary.BigEndian.Uint64(raw)), 'g', -1, 64), nil
	}
	return nil, fmt.Errorf("unexpected binary value of type %d", f.DataTypeOID)
}

// scan fills a field from the text that the server writes; nil is NULL.
func scan(field any, text []byte) (err error) {
	switch f := field.(type) {
	case *string:
		*f = string(text)
	case *holdfast.Status:
		*f = status(text)
	case *int:
		*f, err = strconv.Atoi(string(text))
	case *int64:
		*f = 0
		if text != nil {
			*f, err = strconv.ParseInt(string(text), 10, 64)
		}
	case *bool:
		*f = len(text) > 0 && text[0] == 't'
	case *json.RawMessage:
		*f = nil
		if text != nil {
			*f = append(json.RawMessage{}, text...)
		}
	case **float64:
		*f = nil
		if text != nil {
			var v float64
			v, err = strconv.ParseFloat(string(text), 64)
			*f = &v
		}
	case *time.Time:
		*f = time.Time{}
		if text != nil {
			var ms int64
			ms, err = strconv.ParseInt(string(text), 10, 64)
			*f = time.UnixMilli(ms)
		}
	default:
		err = fmt.Errorf("cannot scan into %T", field)
	}
	return err
}

// status answers the constant for a known status, so that no text is kept for it.
func status(text []byte) holdfast.Status {
	for _, s := range [...]holdfast.Status{holdfast.Queued, holdfast.Running, holdfast.Succeeded, holdfast.Failed, holdfast.Canceled} {
		if string(text) == string(s) {
			return s
		}
	}
	return holdfast.Status(text)
}
