package profile

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/eda94727/holdfast/record"
)

// reference checks one Reference: it stays inside the record. What lies
// outside (a practitioner, an organization) is contained, or named by an
// identifier or in words.
func (w *walker) reference(row element, path string, o object) {
	text, ok := o["reference"].(string)
	if !ok {
		return
	}
	field := path + ".reference"
	target := ""
	switch {
	case text == "#":
		target = w.check.Type
		w.noteLocal(path, text)
	case strings.HasPrefix(text, "#"):
		w.noteLocal(path, text)
		if target = w.contained[text[1:]]; target == "" {
			w.fail(rankContent, record.InvalidResource, field, "ref-1", "there is no contained resource of this id")
			return
		}
	default:
		resourceType, id, ok := splitReference(text)
		if !ok {
			w.fail(rankContent, record.UnsupportedResourceContent, field, "", "only resources of the same record (Type/id) and contained ones (#id) can be referred to; name others by identifier or display")
			return
		}
		target = resourceType
		switch {
		case resourceType == "Patient" && id != w.check.Record:
			w.fail(rankPatient, record.WrongResourcePatient, field, "", "refers to another patient than the record's")
			return
		case !Supports(resourceType):
			w.fail(rankContent, record.UnsupportedResourceContent, field, "", "a record holds no %s; contain it, or name it by identifier or display", resourceType)
			return
		case resourceType != "Patient":
			w.references = append(w.references, Reference{Path: path, Type: resourceType, ID: id})
		}
	}
	if len(row.Targets) > 0 && !slices.Contains(row.Targets, target) {
		w.fail(rankContent, record.InvalidResource, field, "reference target", "refers to a %s; wanted %s", target, strings.Join(row.Targets, ", "))
	}
	if named, ok := o["type"].(string); ok && named != target {
		w.fail(rankContent, record.InvalidResource, path+".type", "reference type", "is not the type of what is referred to")
	}
}

// splitReference reads Type/id and Type/id/_history/version.
func splitReference(text string) (resourceType, id string, ok bool) {
	parts := strings.Split(text, "/")
	if len(parts) != 2 && (len(parts) != 4 || parts[2] != "_history" || !record.IsResourceID(parts[3])) {
		return "", "", false
	}
	if parts[0] == "" || strings.Trim(parts[0], "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz") != "" || !record.IsResourceID(parts[1]) {
		return "", "", false
	}
	return parts[0], parts[1], true
}

// noteLocal remembers who refers to which contained resource.
func (w *walker) noteLocal(path, text string) {
	if w.local == nil {
		w.local, w.paths = map[string]bool{}, map[string][]string{}
	}
	w.local[text] = true
	if text == "#" {
		if i := strings.Index(path, "]"); i > 0 && strings.HasPrefix(path, w.check.Type+".contained[") {
			w.paths[path[:i+1]] = append(w.paths[path[:i+1]], text)
		}
	}
}

// gatherContained lists the contained resources, so that references to them
// can be checked wherever they stand.
func (w *walker) gatherContained() {
	w.contained = map[string]string{}
	for i, o := range items(w.root, "contained") {
		path := fmt.Sprintf("%s.contained[%d]", w.check.Type, i)
		resourceType, _ := o["resourceType"].(string)
		if resourceType == "Patient" || !Supports(resourceType) && !slices.Contains(containedTypes, resourceType) {
			w.fail(rankContent, record.UnsupportedResourceContent, path, "", "a %q cannot be contained here", clip(resourceType))
			continue
		}
		id, _ := o["id"].(string)
		if w.contained[id] != "" {
			w.fail(rankContent, record.InvalidResource, path+".id", "", "two contained resources have one id")
		}
		w.contained[id] = resourceType
	}
	if list, ok := w.root["contained"].([]any); ok && len(list) == 0 {
		w.fail(rankContent, record.InvalidResource, w.check.Type+".contained", "ele-1", "an array has at least one value; leave it out")
	}
}

// checkContained checks each contained resource by its own type, and the
// invariants of contained resources (dom-2 to dom-5).
func (w *walker) checkContained() {
	contained := items(w.root, "contained")
	for i, o := range contained {
		path := fmt.Sprintf("%s.contained[%d]", w.check.Type, i)
		resourceType, _ := o["resourceType"].(string)
		if w.profile.schemas[resourceType] == nil || resourceType == "Patient" {
			continue // named as unsupported already
		}
		if err := w.profile.checkShape(resourceType, path, o); err != nil {
			var e *record.Error
			if !errors.As(err, &e) {
				e = &record.Error{Code: record.HostUnavailable, Field: path, Err: err}
			}
			w.faults = append(w.faults, fault{rankContent, e})
			continue
		}
		w.object(resourceType, path, o)
		meta, _ := o["meta"].(object)
		switch {
		case o["contained"] != nil:
			w.fail(rankContent, record.InvalidResource, path, "dom-2", "a contained resource contains no others")
		case meta["versionId"] != nil || meta["lastUpdated"] != nil:
			w.fail(rankContent, record.InvalidResource, path, "dom-4", "a contained resource has no meta.versionId and meta.lastUpdated")
		case meta["security"] != nil:
			w.fail(rankContent, record.InvalidResource, path, "dom-5", "a contained resource has no security label")
		}
	}
	for i, o := range contained {
		path := fmt.Sprintf("%s.contained[%d]", w.check.Type, i)
		id, _ := o["id"].(string)
		if !w.local["#"+id] && len(w.paths[path]) == 0 {
			w.fail(rankContent, record.InvalidResource, path, "dom-3", "a contained resource is referred to from elsewhere in the resource, or refers to it")
		}
	}
}
