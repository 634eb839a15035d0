package outbox

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"os"

	// Registers the VFS that encrypts the file.
	_ "github.com/ncruces/go-sqlite3/vfs/adiantum"

	"github.com/eda94727/holdfast/record"
)

// KeySize is the length of [Options.Key] in bytes.
const KeySize = 32

// defaultVFS encrypts over the operating system's files.
const defaultVFS = "adiantum"

// seal authenticates what stands in the file with the application's key. A nil
// seal, of a queue without a key, authenticates nothing.
//
// Encryption alone would not do: it hides content, and turns an altered block into
// noise, but a block of an earlier time, or a change by a program that has the file
// open, still reads as good data.
type seal struct {
	key      []byte
	instance string
}

// keys makes the file's key and the rows' of the application's.
func keys(key []byte) (file, rows []byte, err error) {
	if len(key) != KeySize {
		return nil, nil, failf(record.InvalidMessage, "key", "%d bytes; a key has %d, all of them random", len(key), KeySize)
	}
	if file, err = hkdf.Expand(sha256.New, key, "holdfast outbox 1: file", KeySize); err != nil {
		return nil, nil, fmt.Errorf("outbox: derive a key: %w", err)
	}
	if rows, err = hkdf.Expand(sha256.New, key, "holdfast outbox 1: rows", KeySize); err != nil {
		return nil, nil, fmt.Errorf("outbox: derive a key: %w", err)
	}
	return file, rows, nil
}

// uri is the part of the file's URI that opens it encrypted.
func uri(vfs string, fileKey []byte) string {
	return "vfs=" + vfs + "&hexkey=" + hex.EncodeToString(fileKey)
}

// block is what the encryption writes at once.
const block = 4096

// trim takes a part of a block from the end of a WAL, which a power cut may have left.
// It was never flushed, cannot be decrypted, and SQLite would refuse the file for it.
func trim(wal string) error {
	info, err := os.Stat(wal)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && info.Size()%block != 0 {
		err = os.Truncate(wal, info.Size()-info.Size()%block)
	}
	return err
}

// sum writes down what it is given without ambiguity: a text with its length.
type sum struct{ hash.Hash }

func (s sum) number(n int64) {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(n))
	s.Write(b[:])
}

func (s sum) text(t string) {
	s.number(int64(len(t)))
	s.Write([]byte(t))
}

func (s *seal) sum(kind string) sum {
	m := sum{hmac.New(sha256.New, s.key)}
	m.text(kind)
	m.text(s.instance)
	return m
}

// entry covers all of an entry, its place and its state included, so that a row can
// be neither edited, nor moved, nor put back to what it was in another state. It is
// nil without a key.
func (s *seal) entry(e *Entry) []byte {
	if s == nil {
		return nil
	}
	m := s.sum("entry")
	m.number(e.Sequence)
	m.number(e.Position)
	m.text(e.OperationID)
	m.text(e.Patient)
	m.text(string(e.Operation))
	m.number(int64(len(e.IntentJSON)))
	m.Write(e.IntentJSON)
	m.text(e.Digest)
	m.text(string(e.State))
	m.text(e.resultText)
	m.text(string(e.Code))
	m.text(e.Detail)
	m.number(e.Attempts)
	unsure := int64(0)
	if e.Unsure {
		unsure = 1
	}
	m.number(unsure)
	m.text(e.ReplacedBy)
	m.number(e.Created.UnixMilli())
	m.number(e.Changed.UnixMilli())
	return m.Sum(nil)
}

// check tells whether an entry is as it was written.
func (s *seal) check(e *Entry) bool {
	return s == nil || hmac.Equal(s.entry(e), e.mac)
}

func (s *seal) checkAudit(l *AuditLine) bool { return s == nil || hmac.Equal(s.audit(l), l.mac) }

// audit covers a line of the audit.
func (s *seal) audit(l *AuditLine) []byte {
	if s == nil {
		return nil
	}
	m := s.sum("audit")
	m.number(l.Time.UnixMilli())
	for _, t := range []string{l.OperationID, l.Action, l.Reason, l.By, string(l.State), l.Code, l.ReplacedBy} {
		m.text(t)
	}
	return m.Sum(nil)
}
