package host

import (
	"bufio"
	"context"
	"crypto/sha256"
	"hash"
	"io"

	"github.com/go-json-experiment/json"

	"github.com/eda94727/holdfast/record"
	"github.com/eda94727/holdfast/record/internal/db"
)

// exportPage is how many versions are read at once; with it the memory of an
// export is bounded.
const exportPage = 200

// line is one line of an exported record: JSON, one object a line.
type line struct {
	// Kind is version, client, grant or manifest.
	Kind     string       `json:"kind"`
	Version  *versionLine `json:"version,omitzero"`
	Client   *clientLine  `json:"client,omitzero"`
	Grant    *grantLine   `json:"grant,omitzero"`
	Manifest string       `json:"manifest,omitzero"`
}

// versionLine is a version with its receipt. Content is the resource's text, as
// a string, so that no byte of it changes; it is absent for a deletion.
type versionLine struct {
	Type    string  `json:"type"`
	ID      string  `json:"id"`
	Version int64   `json:"version"`
	Updated int64   `json:"updated_ms"`
	Content *string `json:"content,omitzero"`
	Receipt string  `json:"receipt"`
}

type clientLine struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

type grantLine struct {
	ID             string `json:"id"`
	Client         string `json:"client"`
	Representative string `json:"representative,omitzero"`
	Scope          string `json:"scope"`
	Until          int64  `json:"until,omitzero"`
	Revoked        int64  `json:"revoked,omitzero"`
	Created        int64  `json:"created"`
}

// exporter writes lines and keeps their digest and counts.
type exporter struct {
	w        *bufio.Writer
	digest   hash.Hash
	manifest record.Manifest
}

func (e *exporter) line(l line) error {
	raw, err := json.Marshal(l)
	if err != nil {
		return err
	}
	raw = append(raw, '\n')
	e.digest.Write(raw)
	_, err = e.w.Write(raw)
	return err
}

// export writes the whole record, with a signed manifest at its end. The record
// is frozen, so that reading it page by page sees one state.
func (h *Host) export(ctx context.Context, recordID, to string, out io.Writer, sent func(int64)) error {
	e := &exporter{w: bufio.NewWriterSize(out, 64<<10), digest: sha256.New(), manifest: record.Manifest{To: to, Record: recordID}}
	var rk int64
	err := h.db.Read(ctx, func(tx db.Tx) (err error) {
		rk, _, err = recordKey(tx, recordID)
		return err
	})
	for after := int64(0); err == nil; {
		var page []versionLine
		last := after
		err = h.db.Read(ctx, func(tx db.Tx) error {
			page, last = page[:0], after
			return tx.Query("export_versions", db.Args{"rk": rk, "after": after, "limit": exportPage}, func(row db.Row) error {
				var v versionLine
				var deleted bool
				var content []byte
				var client, op, fp string
				if err := row.Scan(&v.Type, &v.ID, &v.Version, &last, &deleted, &v.Updated, &content, &client, &op, &fp, &v.Receipt); err != nil {
					return err
				}
				if !deleted {
					text := string(content)
					v.Content = &text
				}
				page = append(page, v)
				return nil
			})
		})
		for i := range page {
			if err == nil {
				err = e.line(line{Kind: "version", Version: &page[i]})
			}
			e.manifest.Versions++
			e.manifest.LastHash = record.ReceiptHash(page[i].Receipt)
		}
		if err != nil || len(page) == 0 {
			break
		}
		after = last
		sent(e.manifest.Versions)
		if err = h.step("sending"); err != nil {
			break
		}
	}
	if err != nil {
		return err
	}
	return h.exportRest(ctx, recordID, rk, e)
}

// exportRest writes clients, grants and the manifest.
func (h *Host) exportRest(ctx context.Context, recordID string, rk int64, e *exporter) error {
	var clients []clientLine
	err := h.db.Read(ctx, func(tx db.Tx) error {
		clients = nil
		return tx.Query("export_clients", db.Args{"rk": rk}, func(row db.Row) error {
			var c clientLine
			err := row.Scan(&c.ID, &c.Name)
			clients = append(clients, c)
			return err
		})
	})
	if err != nil {
		return err
	}
	for i := range clients {
		if err := e.line(line{Kind: "client", Client: &clients[i]}); err != nil {
			return err
		}
		e.manifest.Clients++
	}
	grants, err := h.Grants(ctx, recordID)
	if err != nil {
		return err
	}
	for _, g := range grants {
		one := grantLine{g.ID, g.Client, g.Representative, g.Scope, unix(g.Until), unix(g.Revoked), unix(g.Created)}
		if err := e.line(line{Kind: "grant", Grant: &one}); err != nil {
			return err
		}
		e.manifest.Grants++
	}
	e.manifest.Digest, e.manifest.IssuedAt = hexDigest(e.digest.Sum(nil)), h.now().Unix()
	manifest, err := record.SignManifest(h.config.Key, e.manifest)
	if err != nil {
		return err
	}
	if err := e.line(line{Kind: "manifest", Manifest: manifest}); err != nil {
		return err
	}
	return e.w.Flush()
}
