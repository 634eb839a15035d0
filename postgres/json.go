package postgres

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// checkJSON refuses what jsonb cannot keep, before the server says so in its own words: U+0000 and
// lone surrogates in strings, and numbers beyond the type numeric. The text is valid JSON.
func checkJSON(raw json.RawMessage) error {
	if err := checkNumbers(raw); err != nil {
		return err
	}
	for i := 0; ; {
		n := bytes.IndexByte(raw[i:], '\\')
		if n < 0 {
			return nil
		}
		i += n
		if raw[i+1] != 'u' {
			i += 2
			continue
		}
		switch unit := hex(raw[i+2:]); {
		case unit == 0:
			return errors.New(`a string contains \u0000, which Postgres cannot keep; leave it out`)
		case unit >= 0xDC00 && unit < 0xE000:
			return fmt.Errorf(`a string contains \u%04x without the half before it; Postgres keeps only whole characters`, unit)
		case unit >= 0xD800 && unit < 0xDC00:
			if len(raw) < i+12 || raw[i+6] != '\\' || raw[i+7] != 'u' || hex(raw[i+8:])&0xFC00 != 0xDC00 {
				return fmt.Errorf(`a string contains \u%04x without the half after it; Postgres keeps only whole characters`, unit)
			}
			i += 6
		}
		i += 6
	}
}

// hex reads four digits of a valid escape.
func hex(raw []byte) uint64 {
	if len(raw) < 4 {
		return 1
	}
	n, err := strconv.ParseUint(string(raw[:4]), 16, 32)
	if err != nil {
		return 1 // not in valid JSON
	}
	return n
}

// Limits of Postgres' numeric: digits before and after the decimal point.
const (
	digitsBefore = 131072
	digitsAfter  = 16383
)

// checkNumbers looks only at texts that may hold a number that large.
func checkNumbers(raw []byte) error {
	if len(raw) <= digitsAfter && bytes.IndexByte(raw, 'e') < 0 && bytes.IndexByte(raw, 'E') < 0 {
		return nil
	}
	for i := 0; i < len(raw); {
		switch c := raw[i]; {
		case c == '"':
			for i++; raw[i] != '"'; i++ {
				if raw[i] == '\\' {
					i++
				}
			}
			i++
		case c == '-' || c >= '0' && c <= '9':
			end := i + 1
			for end < len(raw) && bytes.IndexByte([]byte("0123456789.eE+-"), raw[end]) >= 0 {
				end++
			}
			if !fits(string(raw[i:end])) {
				return fmt.Errorf("the number %.40s has more digits than Postgres can keep (%d before the point, %d after); write it as a string", raw[i:end], digitsBefore, digitsAfter)
			}
			i = end
		default:
			i++
		}
	}
	return nil
}

// mostExponent bounds what the server reads as an exponent at all, even of nought.
const mostExponent = 1<<30 - 1

func fits(number string) bool {
	mantissa, exponent, _ := strings.Cut(strings.ToLower(strings.TrimPrefix(number, "-")), "e")
	before, after, _ := strings.Cut(mantissa, ".")
	e := 0
	if exponent != "" {
		n, err := strconv.ParseInt(exponent, 10, 32)
		if err != nil || n >= mostExponent || n <= -mostExponent {
			return false
		}
		e = int(n)
	}
	digits := before + after
	zeros := len(digits) - len(strings.TrimLeft(digits, "0"))
	nought := zeros == len(digits)
	return (nought || len(before)-zeros+e <= digitsBefore) && len(after)-e <= digitsAfter
}
