// Package record holds what both ends of the record protocol say to each
// other: ids, error codes, exact JSON, digests, keys, and the signed things
// that travel (proofs, receipts, location documents, publications).
//
// A patient's record lives on one Host at a time. A Directory says which Host
// that is, in signed documents with rising generations. Clients write to the
// Host with an operation id, so that a repeated write is done once, and get a
// signed receipt for each write. The packages beside this one are the
// parties: record/directory and its service, record/host, record/client;
// record/profile knows which resources are valid. docs/records.md describes the protocol for
// somebody who writes a party of their own.
//
// Everything here is pure: no network, no database. The only files touched
// are key files, by [LoadKey] and [Key.Save].
package record
