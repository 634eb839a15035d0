package main

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/eda94727/holdfast/record"
)

// recordExit is the exit code of a failure that the record protocol has a code for.
func recordExit(code record.Code) int {
	if exit := outboxExit(code); exit != 0 {
		return exit
	}
	switch code {
	case record.InvalidMessage:
		return exitUsage
	case record.NotFound, record.ResourceDeleted:
		return exitNotFound
	case record.OperationInProgress, record.RecordFrozen, record.RecordMoved, record.PublicationConflict:
		return exitState
	}
	switch code.Class() {
	case record.Conflicted:
		return exitState
	case record.Rejected:
		return exitFailed
	}
	return exitDatabase // nobody answers, or not as the protocol wants it
}

// recordRemedy says what to do about it.
func recordRemedy(err error) string {
	var w writeError
	if errors.As(err, &w) && record.CodeOf(err).Class() == record.Pending {
		return fmt.Sprintf("it may be done or not; the same command with --operation %s does it once, and tells", w.operation)
	}
	var d databaseError
	if errors.As(err, &d) {
		return "check the address in --db or " + d.kind.env + ", that the database is there, and that it is this " + d.kind.noun + "'s"
	}
	if errors.Is(err, syscall.EADDRINUSE) {
		return "another program listens there; choose another port by --listen"
	}
	if hint := outboxRemedy(record.CodeOf(err)); hint != "" {
		return hint
	}
	switch code := record.CodeOf(err); code {
	case record.VersionConflict:
		return "read the resource again, and send the write with --version of what you read"
	case record.OperationIDConflict:
		return "leave --operation out: another write has this id"
	case record.InvalidToken, record.AuthorizationExpiredOrRevoked, record.InsufficientScope, record.RepresentativeNotAuthorized:
		return `the record's Host decides: "holdfast host grants" shows what was granted, "holdfast host grant" grants`
	case record.TransportUnavailable:
		return `check that it runs and can be reached, and that its certificate is believed: --ca of "holdfast record init" and "holdfast host"`
	case record.PublisherNotAuthorized:
		return `the Directory's operator admits Hosts: "holdfast directory admit"; the receiving one expects records: "holdfast host expect"`
	case record.RecordFrozen:
		return "the record is being moved; try again when the move has ended, or was taken back"
	case record.RecordMoved:
		return `the record lives on another Host: "holdfast record where" tells which`
	case record.StaleDiscoveryGeneration, record.DirectoryEquivocation, record.InvalidDiscovery, record.WrongDiscoveryPatient:
		return "do not trust what the Directory says until its operator has explained it; nothing was changed"
	case record.DiscoveryExpired:
		return "check this machine's clock; if it is right, the Directory does not sign anew, or somebody answers in its place"
	}
	return ""
}
