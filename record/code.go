package record

import "net/http"

// Code is a word of the protocol that says why something failed. Codes are
// themselves errors, so errors.Is(err, record.VersionConflict) asks whether
// err is or wraps an [Error] with that code.
type Code string

// Error returns the code itself.
func (c Code) Error() string { return string(c) }

// The codes of the protocol. The table in this file gives each its HTTP
// status and its [Class].
const (
	VersionConflict               Code = "version_conflict"
	OperationIDConflict           Code = "operation_id_conflict"
	OperationInProgress           Code = "operation_in_progress"
	InvalidMessage                Code = "invalid_message"
	InvalidResource               Code = "invalid_resource"
	InvalidResourceID             Code = "invalid_resource_id"
	InvalidResourceCode           Code = "invalid_resource_code"
	InvalidResourceStatus         Code = "invalid_resource_status"
	InvalidLabCategory            Code = "invalid_lab_category"
	WrongResourcePatient          Code = "wrong_resource_patient"
	UnsupportedResourceContent    Code = "unsupported_resource_content"
	UnsupportedResourceType       Code = "unsupported_resource_type"
	ExternalValidationRejected    Code = "external_validation_rejected"
	NotFound                      Code = "not_found"
	ResourceDeleted               Code = "resource_deleted"
	InvalidToken                  Code = "invalid_token"
	WrongTokenHolder              Code = "wrong_token_holder"
	AuthorizationExpired          Code = "authorization_expired"
	AuthorizationExpiredOrRevoked Code = "authorization_expired_or_revoked"
	InsufficientScope             Code = "insufficient_scope"
	RepresentativeNotAuthorized   Code = "representative_not_authorized"
	UseDPoPNonce                  Code = "use_dpop_nonce"
	RecordMoved                   Code = "record_moved"
	RecordFrozen                  Code = "record_frozen"
	RateLimited                   Code = "rate_limited"
	HostUnavailable               Code = "host_unavailable"
	InvalidReceipt                Code = "invalid_receipt"
	TransportUnavailable          Code = "transport_unavailable"
	InvalidDiscovery              Code = "invalid_discovery"
	WrongDiscoveryPatient         Code = "wrong_discovery_patient"
	StaleDiscoveryGeneration      Code = "stale_discovery_generation"
	DirectoryEquivocation         Code = "directory_equivocation"
	DiscoveryExpired              Code = "discovery_expired"
	PublicationConflict           Code = "publication_conflict"
	PublisherNotAuthorized        Code = "publisher_not_authorized"
)

// Class says what a writer does with a write that failed with a code.
type Class int

const (
	// Pending: nothing is wrong with the write; the same write is sent again
	// later. Every code that is not in the table is pending.
	Pending Class = iota
	// Conflicted: the write met another one; a person or a program decides.
	Conflicted
	// Rejected: the same write would fail again until something is changed.
	Rejected
)

// String returns "pending", "conflicted" or "rejected".
func (c Class) String() string {
	switch c {
	case Conflicted:
		return "conflicted"
	case Rejected:
		return "rejected"
	default:
		return "pending"
	}
}

// CodeInfo is one row of the table of codes.
type CodeInfo struct {
	Code Code
	// Status is the HTTP status that a Host or Directory answers with; 0 for
	// a code that only clients make.
	Status int
	// Class is what a writer does with the write.
	Class Class
	// Issue is the FHIR R4 issue type of the code (OperationOutcome.issue.code).
	Issue string
	// Meaning is one sentence for a person.
	Meaning string
}

// codeTable is the one list of codes. Codes that a rule of the profile raises
// have the status of a broken rule, 422; the Host answers 400 instead where
// the shape of the resource is wrong (see [Error.Shape]).
var codeTable = []CodeInfo{
	{VersionConflict, http.StatusPreconditionFailed, Conflicted, "conflict", "The resource has a newer version than the write was based on."},
	{OperationIDConflict, http.StatusUnprocessableEntity, Conflicted, "duplicate", "The operation id was used for another write."},
	{OperationInProgress, http.StatusConflict, Pending, "lock-error", "The same operation is still being worked on."},
	{InvalidMessage, http.StatusBadRequest, Rejected, "structure", "The request is not well formed."},
	{InvalidResource, http.StatusUnprocessableEntity, Rejected, "invariant", "The resource breaks a rule of FHIR R4 or of the profile."},
	{InvalidResourceID, http.StatusUnprocessableEntity, Rejected, "value", "The resource's id is missing, malformed, taken or not the one addressed."},
	{InvalidResourceCode, http.StatusUnprocessableEntity, Rejected, "code-invalid", "The resource's code is missing or outside its required binding."},
	{InvalidResourceStatus, http.StatusUnprocessableEntity, Rejected, "code-invalid", "The resource's status is missing or outside its required binding."},
	{InvalidLabCategory, http.StatusUnprocessableEntity, Rejected, "business-rule", "The laboratory observation does not have the category laboratory."},
	{WrongResourcePatient, http.StatusUnprocessableEntity, Rejected, "business-rule", "The resource belongs to, or refers to, another patient."},
	{UnsupportedResourceContent, http.StatusUnprocessableEntity, Rejected, "not-supported", "The resource holds something that the profile does not take."},
	{UnsupportedResourceType, http.StatusNotFound, Rejected, "not-supported", "The profile does not have this resource type."},
	{ExternalValidationRejected, http.StatusUnprocessableEntity, Rejected, "business-rule", "The Host's external validator refused the resource."},
	{NotFound, http.StatusNotFound, Rejected, "not-found", "There is no such resource in this record."},
	{ResourceDeleted, http.StatusGone, Rejected, "deleted", "The resource was deleted."},
	{InvalidToken, http.StatusUnauthorized, Rejected, "login", "The access token or its proof is not valid."},
	{WrongTokenHolder, http.StatusUnauthorized, Rejected, "login", "The access token is bound to another key."},
	{AuthorizationExpired, http.StatusUnauthorized, Rejected, "expired", "The access token has expired."},
	{AuthorizationExpiredOrRevoked, http.StatusUnauthorized, Rejected, "expired", "The grant behind the access token has ended."},
	{InsufficientScope, http.StatusForbidden, Rejected, "forbidden", "The access token's scopes do not allow this."},
	{RepresentativeNotAuthorized, http.StatusForbidden, Rejected, "forbidden", "The representative has no grant for this record."},
	{UseDPoPNonce, http.StatusUnauthorized, Pending, "login", "The proof must carry the server's current nonce."},
	{RecordMoved, http.StatusMisdirectedRequest, Pending, "processing", "The record lives on another Host; the Directory says which."},
	{RecordFrozen, http.StatusServiceUnavailable, Pending, "transient", "The record is being moved."},
	{RateLimited, http.StatusTooManyRequests, Pending, "throttled", "Too many requests."},
	{HostUnavailable, http.StatusServiceUnavailable, Pending, "transient", "The Host cannot answer now."},
	{InvalidReceipt, 0, Pending, "security", "The answer does not carry a valid receipt of this operation."},
	{TransportUnavailable, 0, Pending, "transient", "The Host could not be reached or did not speak the protocol."},
	{InvalidDiscovery, 0, Pending, "security", "The location document is not valid."},
	{WrongDiscoveryPatient, 0, Pending, "security", "The location document is about another record or address."},
	{StaleDiscoveryGeneration, http.StatusConflict, Pending, "security", "The location document is older than one already verified."},
	{DirectoryEquivocation, 0, Pending, "security", "The Directory signed two different documents for one generation."},
	{DiscoveryExpired, 0, Pending, "security", "The location document has expired."},
	{PublicationConflict, http.StatusConflict, Pending, "conflict", "The publication does not follow the current generation."},
	{PublisherNotAuthorized, http.StatusForbidden, Rejected, "forbidden", "The publication is not signed by the Hosts that it concerns."},
}

var codeIndex = func() map[Code]CodeInfo {
	index := make(map[Code]CodeInfo, len(codeTable))
	for _, row := range codeTable {
		index[row.Code] = row
	}
	return index
}()

// Codes returns the table of codes, in the order of the specification.
func Codes() []CodeInfo { return append([]CodeInfo(nil), codeTable...) }

// Info returns the code's row of the table. ok is false for a code that the
// protocol does not know; its row then is pending, status 500.
func (c Code) Info() (info CodeInfo, ok bool) {
	info, ok = codeIndex[c]
	if !ok {
		info = CodeInfo{Code: c, Status: http.StatusInternalServerError, Class: Pending, Issue: "exception", Meaning: "Unknown code."}
	}
	return info, ok
}

// Class returns what a writer does with a write that failed with this code.
func (c Code) Class() Class {
	info, _ := c.Info()
	return info.Class
}
