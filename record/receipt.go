package record

import (
	"time"
)

// Receipt is what a Host signs for each write that it has done. Beside the
// operation it says what became of it, and its place in the record's chain of
// receipts.
type Receipt struct {
	// Host is the id of the Host that did the write.
	Host string `json:"iss"`
	// Record is the patient's record.
	Record string `json:"record"`
	// Client is the application that asked for it.
	Client string `json:"client"`
	// Operation is the operation id.
	Operation string `json:"op"`
	// Fingerprint is the request's; see [Fingerprint].
	Fingerprint string `json:"fp"`
	// Method is the request's method.
	Method string `json:"method"`
	// Type, ID and Version name the resource version that the write made.
	Type    string `json:"type"`
	ID      string `json:"id"`
	Version int64  `json:"version"`
	// Status is the answer's HTTP status.
	Status int `json:"status"`
	// Seq counts the record's writes from 1, without gaps, over all Hosts.
	Seq int64 `json:"seq"`
	// Prev is the [ReceiptHash] of the receipt before; "" for the first.
	Prev string `json:"prev"`
	// IssuedAt is when the write was committed, in seconds since 1970.
	IssuedAt int64 `json:"iat"`
}

// SignReceipt signs r with the Host's key and sets its Host.
func SignReceipt(host *Key, r Receipt) (string, error) {
	r.Host = host.ID()
	return signJWS(host, typReceipt, r)
}

// VerifyReceipt checks a receipt's form and that the Host with the given id
// signed it. The error is an *[Error] with [InvalidReceipt].
func VerifyReceipt(receipt, hostID string) (Receipt, error) {
	const field = "Operation-Receipt"
	if receipt == "" {
		return Receipt{}, failf(InvalidReceipt, field, "there is no receipt")
	}
	r, err := ReadReceipt(receipt)
	if err == nil && r.Host != hostID {
		err = failf(InvalidReceipt, field, "signed by %s, not by %s", quoteShort(r.Host), quoteShort(hostID))
	}
	if err != nil {
		return Receipt{}, err
	}
	return r, nil
}

// ReadReceipt checks a receipt's form and its signature with the key in its own
// header; Host is that key's id. It is for those who decide about the Host
// afterwards, such as for a record that has lived on several. The error is an
// *[Error] with [InvalidReceipt].
func ReadReceipt(receipt string) (Receipt, error) { return (*KeyCache)(nil).ReadReceipt(receipt) }

// ReadReceipt is the function [ReadReceipt] for those who read many of the same
// Host.
func (c *KeyCache) ReadReceipt(receipt string) (Receipt, error) {
	const field = "Operation-Receipt"
	payload, key, err := c.open(receipt, typReceipt, maxReceipt)
	if err != nil {
		return Receipt{}, failf(InvalidReceipt, field, "%v", err)
	}
	var r Receipt
	if err := DecodeJSON(payload, payloadLimits, &r); err != nil {
		return Receipt{}, failf(InvalidReceipt, field, "%v", errBadClaim)
	}
	switch {
	case r.Host != key.ID():
		return Receipt{}, failf(InvalidReceipt, field, "iss is not the Host that signed it")
	case !IsID(r.Record) || !IsID(r.Operation) || !IsResourceID(r.ID):
		return Receipt{}, failf(InvalidReceipt, field, "an id is malformed")
	case r.Version < 1 || r.Seq < 1 || r.IssuedAt < 1 || r.Status < 200 || r.Status > 299:
		return Receipt{}, failf(InvalidReceipt, field, "a number is out of range")
	case (r.Seq == 1) != (r.Prev == ""):
		return Receipt{}, failf(InvalidReceipt, field, "only the first receipt of a record has no prev")
	}
	return r, nil
}

// ReceiptHash returns what the next receipt of the record carries as prev: the
// base64url SHA-256 of the receipt as it was signed.
func ReceiptHash(receipt string) string { return hashString(receipt) }

// Covers reports whether r is the receipt of this very operation: same record,
// client, operation and fingerprint. The error is an *[Error] with
// [InvalidReceipt] that names the difference.
func (r Receipt) Covers(recordID, client, operation, fingerprint string) error {
	for _, c := range [...]struct{ name, got, want string }{
		{"record", r.Record, recordID}, {"client", r.Client, client},
		{"op", r.Operation, operation}, {"fp", r.Fingerprint, fingerprint},
	} {
		if c.got != c.want {
			return failf(InvalidReceipt, "Operation-Receipt", "%s is %s, not %s: it is the receipt of something else, or the request was altered on the way", c.name, quoteShort(c.got), quoteShort(c.want))
		}
	}
	return nil
}

// Time returns when the write was committed.
func (r Receipt) Time() time.Time { return time.Unix(r.IssuedAt, 0).UTC() }
