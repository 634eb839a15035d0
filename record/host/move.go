package host

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/eda94727/holdfast/record"
	"github.com/eda94727/holdfast/record/internal/db"
)

// The steps of a move, as they stand in the leaving Host's database. Until
// published it can be taken back; from then on it only goes forward.
const (
	stepFrozen    = "frozen"    // nothing is written to the record any more
	stepAccepted  = "accepted"  // the new Host has everything and has signed
	stepPublished = "published" // the Directory names the new Host
	// At the receiving Host:
	stepExpected = "expected" // its operator waits for the record
	stepImported = "imported" // it has everything, and waits for the Directory
)

const (
	moveOut = "out"
	moveIn  = "in"
)

// Progress tells how far a move is: the step that begins, and how many of the
// record's versions are sent.
type Progress func(step string, sent, total int64)

// move is a row of the table of moves.
type move struct {
	direction, step, publication string
	peer                         record.HostRef
}

func getMove(tx db.Tx, recordID string) (m move, found bool, err error) {
	var peer string
	found, err = db.One(tx, "move_get", db.Args{"record": recordID}, &m.direction, &m.step, &peer, &m.publication)
	if err == nil && found && peer != "" {
		err = json.Unmarshal([]byte(peer), &m.peer)
	}
	return m, found, err
}

func (h *Host) putMove(tx db.Tx, recordID string, m move) error {
	peer, err := json.Marshal(m.peer)
	if err != nil {
		return err
	}
	_, err = tx.Exec("move_put", db.Args{"record": recordID, "direction": m.direction, "step": m.step, "peer": string(peer), "publication": m.publication, "now": h.now().UnixMilli()})
	return err
}

// Move moves a record to another Host, whose operator has called [Host.Expect]
// for it: it freezes the record, sends everything, publishes the new generation
// with both signatures, and has the new Host take over. Each step is on disk
// before the next begins, so calling it again after a crash or an error goes on
// where it stopped; [Host.CancelMove] takes the move back as long as it is not
// published. progress may be nil.
func (h *Host) Move(ctx context.Context, recordID string, to record.HostRef, progress Progress) error {
	if h.config.Directory == nil {
		return errors.New("host: a Host without a Directory cannot move records")
	}
	if err := to.Check(); err != nil {
		return fmt.Errorf("host: move: %w", err)
	}
	if to.ID == h.ID() {
		return &record.Error{Code: record.InvalidMessage, Field: "to", Detail: "the record is here already"}
	}
	if !h.moving.begin(recordID) {
		return errMoving
	}
	defer h.moving.end(recordID)
	if progress == nil {
		progress = func(string, int64, int64) {}
	}
	m, total, err := h.freeze(ctx, recordID, to)
	for err == nil {
		progress(m.step, 0, total)
		if err = h.step(m.step); err != nil {
			break
		}
		switch m.step {
		case stepFrozen:
			m, err = h.sendRecord(ctx, recordID, m, func(sent int64) { progress(stepFrozen, sent, total) })
		case stepAccepted:
			m, err = h.publishMove(ctx, recordID, m)
		case stepPublished:
			if err = h.activatePeer(ctx, recordID, m); err == nil {
				return h.db.Write(ctx, "end a move", func(tx db.Tx) error {
					_, err := tx.Exec("move_delete", db.Args{"record": recordID})
					return err
				})
			}
		default:
			err = fmt.Errorf("host: the move of %s is at an unknown step %q", recordID, m.step)
		}
	}
	if errors.Is(err, errMoveDone) {
		return nil
	}
	return fmt.Errorf("host: move %s: %w", recordID, err)
}

var (
	errMoving   = &record.Error{Code: record.RecordFrozen, Detail: "the record is being moved by this process"}
	errMoveDone = errors.New("the record was moved already")
)

// freeze begins the move, or finds it.
func (h *Host) freeze(ctx context.Context, recordID string, to record.HostRef) (m move, total int64, err error) {
	err = h.db.Write(ctx, "freeze a record", func(tx db.Tx) error {
		var r Record
		found, err := findRecord(tx, recordID, &r)
		if err := noRecord(recordID, found, err); err != nil {
			return err
		}
		total = r.Writes
		var moving bool
		if m, moving, err = getMove(tx, recordID); err != nil {
			return err
		}
		switch {
		case moving && m.direction == moveOut && m.peer == to:
			return nil
		case moving && m.direction == moveOut:
			return &record.Error{Code: record.RecordFrozen, Field: "to", Detail: "the record is being moved to another Host, " + m.peer.ID}
		case r.State == stateMoved:
			return errMoveDone
		case r.State != stateActive:
			return &record.Error{Code: record.RecordFrozen, Detail: "the record is " + r.State}
		}
		m = move{direction: moveOut, step: stepFrozen, peer: to}
		if err := h.setState(tx, recordID, stateFrozen); err != nil {
			return err
		}
		return h.putMove(tx, recordID, m)
	})
	return m, total, err
}

func (h *Host) setState(tx db.Tx, recordID, state string) error {
	rk, _, err := recordKey(tx, recordID)
	if err != nil {
		return err
	}
	_, err = tx.Exec("record_state", db.Args{"rk": rk, "state": state})
	return err
}

// recordKey returns a record's row and state, 0 if it is not here.
func recordKey(tx db.Tx, recordID string) (rk int64, state string, err error) {
	var address, last string
	var seq, created int64
	_, err = db.One(tx, "record_get", db.Args{"record": recordID}, &rk, &state, &address, &seq, &last, &created)
	return rk, state, err
}

// sendRecord exports the record to the new Host and gets its signature.
func (h *Host) sendRecord(ctx context.Context, recordID string, m move, sent func(int64)) (move, error) {
	d := h.config.Directory
	now, err := d.locate(ctx, recordID)
	if err != nil {
		return m, err
	}
	if now.Host.ID != h.ID() {
		return m, &record.Error{Code: record.PublicationConflict, Detail: "the Directory says that the record lives on " + now.Host.ID}
	}
	p := h.publication(recordID, now.Generation+1, now.Hash(), m.peer, "moved")
	transfer, err := record.SignTransfer(h.config.Key, record.Transfer{Publication: p, To: m.peer.ID})
	if err != nil {
		return m, err
	}
	reader, writer := io.Pipe()
	go func() { writer.CloseWithError(h.export(ctx, recordID, m.peer.ID, writer, sent)) }()
	defer reader.Close() // ends the export if the answer came early
	theirs, err := h.callPeer(ctx, http.MethodPost, m.peer, recordID, "", transfer, reader)
	if err != nil {
		return m, err
	}
	if err := h.step("signed"); err != nil {
		return m, err
	}
	ours, err := record.SignPublication([]*record.Key{h.config.Key}, p)
	if err != nil {
		return m, err
	}
	signed, err := record.MergeSignatures(ours, theirs)
	if err != nil {
		return m, err
	}
	if _, signers, err := record.VerifyPublication(signed); err != nil || len(signers) != 2 || signers[1] != m.peer.ID {
		return m, &record.Error{Code: record.InvalidMessage, Field: "publication", Detail: "the new Host's signature is not good", Err: err}
	}
	m.step, m.publication = stepAccepted, signed
	return m, h.db.Write(ctx, "a move was accepted", func(tx db.Tx) error { return h.putMove(tx, recordID, m) })
}

// publishMove publishes, or finds that it was published. A publication that has
// grown too old goes back to the new Host for a fresh signature.
func (h *Host) publishMove(ctx context.Context, recordID string, m move) (move, error) {
	d := h.config.Directory
	p, _, err := record.VerifyPublication(m.publication)
	if err != nil {
		return m, err
	}
	now, err := d.locate(ctx, recordID)
	if err != nil {
		return m, err
	}
	if now.Host.ID == h.ID() {
		if h.now().Unix() >= p.Expires {
			m.step, m.publication = stepFrozen, ""
			return m, h.db.Write(ctx, "sign a move again", func(tx db.Tx) error { return h.putMove(tx, recordID, m) })
		}
		if err := d.publish(ctx, p, m.publication); err != nil {
			return m, err
		}
	} else if now.Host.ID != m.peer.ID {
		return m, &record.Error{Code: record.PublicationConflict, Detail: "the Directory says that the record lives on " + now.Host.ID}
	}
	if err := h.step("directory knows"); err != nil {
		return m, err
	}
	m.step = stepPublished
	err = h.db.Write(ctx, "a move was published", func(tx db.Tx) error {
		if err := h.setState(tx, recordID, stateMoved); err != nil {
			return err
		}
		return h.putMove(tx, recordID, m)
	})
	if err == nil {
		h.config.Log.InfoContext(ctx, "record moved", "record", recordID, "to", m.peer.ID, "generation", p.Generation)
	}
	return m, err
}

func (h *Host) activatePeer(ctx context.Context, recordID string, m move) error {
	_, err := h.callPeer(ctx, http.MethodPost, m.peer, recordID, "/activate", "", nil)
	return err
}

// CancelMove takes a move back: the record is written here again. It fails once
// the move is published.
func (h *Host) CancelMove(ctx context.Context, recordID string) error {
	if !h.moving.begin(recordID) {
		return errMoving
	}
	defer h.moving.end(recordID)
	var m move
	err := h.db.Read(ctx, func(tx db.Tx) error {
		var found bool
		var err error
		if m, found, err = getMove(tx, recordID); err == nil && (!found || m.direction != moveOut) {
			err = &record.Error{Code: record.NotFound, Field: "record", Detail: "the record is not being moved"}
		}
		return err
	})
	if err != nil {
		return err
	}
	// The Directory's word decides, not ours: the publication may have arrived
	// although its answer did not.
	now, err := h.config.Directory.locate(ctx, recordID)
	if err != nil {
		return fmt.Errorf("host: cancel the move of %s: %w", recordID, err)
	}
	if m.step == stepPublished || now.Host.ID != h.ID() {
		return &record.Error{Code: record.RecordMoved, Field: "record", Address: now.Address, Detail: "the move is published and only goes forward: move again to end it"}
	}
	err = h.db.Write(ctx, "cancel a move", func(tx db.Tx) error {
		if err := h.setState(tx, recordID, stateActive); err != nil {
			return err
		}
		_, err := tx.Exec("move_delete", db.Args{"record": recordID})
		return err
	})
	if err != nil {
		return err
	}
	transfer, err := record.SignTransfer(h.config.Key, record.Transfer{Publication: h.publication(recordID, now.Generation+1, now.Hash(), m.peer, "canceled"), To: m.peer.ID})
	if err == nil {
		_, err = h.callPeer(ctx, http.MethodDelete, m.peer, recordID, "", transfer, nil)
	}
	if err != nil { // it keeps a copy that it cannot serve; its operator can drop it
		h.config.Log.WarnContext(ctx, "the other Host did not hear that the move is canceled", "record", recordID, "error", err)
	}
	return nil
}

// ResumeMoves goes on with all moves that this Host has begun; call it when the
// Host starts. It returns the errors of those that cannot go on now.
func (h *Host) ResumeMoves(ctx context.Context) error {
	peers := map[string]record.HostRef{}
	err := h.db.Read(ctx, func(tx db.Tx) error {
		clear(peers)
		return tx.Query("move_list", nil, func(row db.Row) error {
			var recordID, direction, step, peer string
			if err := row.Scan(&recordID, &direction, &step, &peer); err != nil || direction != moveOut {
				return err
			}
			var to record.HostRef
			if err := json.Unmarshal([]byte(peer), &to); err != nil {
				return err
			}
			peers[recordID] = to
			return nil
		})
	})
	for recordID, to := range peers {
		err = errors.Join(err, h.Move(ctx, recordID, to, nil))
	}
	return err
}

// transferHeader carries the signed transfer.
const transferHeader = "Record-Transfer"

// callPeer asks another Host something about a record that moves.
func (h *Host) callPeer(ctx context.Context, method string, peer record.HostRef, recordID, action, transfer string, body io.Reader) (string, error) {
	request, err := http.NewRequestWithContext(ctx, method, peer.Issuer+"/transfers/"+recordID+action, body)
	if err != nil {
		return "", err
	}
	if transfer != "" {
		request.Header.Set(transferHeader, transfer)
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/x-ndjson")
	}
	var client http.Client
	if h.config.Directory.HTTP != nil {
		client = *h.config.Directory.HTTP
	}
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	answer, err := client.Do(request)
	if err != nil {
		return "", &record.Error{Code: record.TransportUnavailable, Field: peer.Issuer, Err: err}
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(io.LimitReader(answer.Body, 64<<10))
	if err != nil {
		return "", &record.Error{Code: record.TransportUnavailable, Field: peer.Issuer, Err: err}
	}
	if answer.StatusCode/100 == 2 {
		return strings.TrimSpace(string(data)), nil
	}
	var p problem
	if record.DecodeJSON(data, record.Limits{}, &p) == nil && p.Code != "" {
		return "", &record.Error{Code: p.Code, Field: peer.ID, Detail: "the other Host says: " + clip(p.Detail, 500)}
	}
	return "", &record.Error{Code: record.TransportUnavailable, Field: peer.Issuer, Detail: "the other Host answered " + answer.Status}
}

func hexDigest(sum []byte) string { return hex.EncodeToString(sum) }
