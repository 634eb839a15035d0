package host

import (
	"slices"
	"strings"

	"github.com/eda94727/holdfast/record"
	"github.com/eda94727/holdfast/record/profile"
)

// The permissions of SMART App Launch 2.0 scopes.
const (
	permCreate = 'c'
	permRead   = 'r'
	permUpdate = 'u'
	permDelete = 'd'
	permSearch = 's'
)

// scope is one SMART v2 scope: patient/Observation.cruds.
type scope struct {
	resourceType string // or *
	permissions  string
}

// parseScopes reads a list of scopes separated by spaces. The error is an
// *[record.Error] with [record.InvalidMessage].
func parseScopes(text string) ([]scope, error) {
	bad := func(one string) error {
		if len(one) > 80 {
			one = one[:80]
		}
		return &record.Error{Code: record.InvalidMessage, Field: "scope", Detail: "not a SMART v2 scope such as patient/Observation.rs or patient/*.cruds: " + one}
	}
	if len(text) > 4096 {
		return nil, bad("longer than 4096 bytes")
	}
	var list []scope
	for _, one := range strings.Fields(text) {
		rest, ok := strings.CutPrefix(one, "patient/")
		resourceType, permissions, dot := strings.Cut(rest, ".")
		if !ok || !dot || resourceType != "*" && !profile.Supports(resourceType) || !isPermissions(permissions) {
			return nil, bad(one)
		}
		list = append(list, scope{resourceType, permissions})
	}
	if len(list) == 0 {
		return nil, bad("there is none")
	}
	return list, nil
}

// isPermissions wants each of c, r, u, d, s at most once and in this order.
func isPermissions(s string) bool {
	rest := "cruds"
	for _, c := range []byte(s) {
		i := strings.IndexByte(rest, c)
		if i < 0 {
			return false
		}
		rest = rest[i+1:]
	}
	return s != ""
}

// allows reports whether the scopes permit something on a type; * asks for all
// types at once.
func allows(list []scope, resourceType string, permission byte) bool {
	return slices.ContainsFunc(list, func(s scope) bool {
		return (s.resourceType == "*" || s.resourceType == resourceType) && strings.IndexByte(s.permissions, permission) >= 0
	})
}

// intersect returns what both lists permit, as the text of scopes.
func intersect(a, b []scope) string {
	var result []string
	seen := map[string]bool{}
	for _, x := range a {
		for _, y := range b {
			resourceType := x.resourceType
			switch {
			case x.resourceType == "*":
				resourceType = y.resourceType
			case y.resourceType != "*" && y.resourceType != x.resourceType:
				continue
			}
			permissions := strings.Map(func(c rune) rune {
				if strings.ContainsRune(x.permissions, c) && strings.ContainsRune(y.permissions, c) {
					return c
				}
				return -1
			}, "cruds")
			if one := "patient/" + resourceType + "." + permissions; permissions != "" && !seen[one] {
				seen[one] = true
				result = append(result, one)
			}
		}
	}
	return strings.Join(result, " ")
}
