// Package outbox keeps writes to patients' records in one SQLite file until
// their Hosts have taken them: in order, once, whatever happens in between.
//
// [Outbox.Enqueue] answers when the write is on disk. [Outbox.Flush] sends what
// waits, or [Outbox.Run] does so by itself. Writes of one patient (a lane) go
// strictly one after the other, each with its own operation id and the very
// bytes that were enqueued; lanes go side by side, and a lane that is stuck stops
// no other. An answer that was lost is settled by sending the same operation
// again: the Host answers it with the receipt of the first time.
//
// A file has one owner: one process, with one application's key. It may hold the
// application's own tables too.
//
// docs/outbox.md has the rules (O1 to M6), by which the tests are named.
package outbox
