package modelserver

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"sync"

	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/model/script"
)

// maxSigned bounds the signatures a server remembers; the oldest are forgotten.
const maxSigned = 4096

// signed is what vendors call signatures, encrypted content and the like: the
// proof that goes with thinking, and must come back with the calls it led to.
//
// A reply has thought when the script's usage says so. Its proof follows from
// what the reply says, so that equal replies have equal ones; which were given
// out is all that is remembered.
type signed struct {
	mu    sync.Mutex
	given map[string]bool
	order []string
}

// sign returns what a reply has thought and the proof of it.
func (s *signed) sign(in *ask, turn *script.Turn) (thought, proof string) {
	r := turn.Reply
	if r.Usage.Reasoning == 0 || r.Stop == model.StopLength || r.Stop == model.StopRefusal {
		return "", ""
	}
	thought = "Next is the step " + turn.Step + "."
	if !in.signs {
		return thought, ""
	}
	proof = proofOf(r.Message)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.given[proof] {
		if len(s.order) == maxSigned {
			delete(s.given, s.order[0])
			s.order = s.order[1:]
		}
		if s.given == nil {
			s.given = map[string]bool{}
		}
		s.given[proof] = true
		s.order = append(s.order, proof)
	}
	return thought, proof
}

// skipsProof stands for the signature of a reply that a client took from another
// model, as ai.google.dev/gemini-api/docs/thought-signatures has it.
const skipsProof = "skip_thought_signature_validator"

// check refuses messages whose proof is missing or not theirs.
func (s *signed) check(in *ask) *refusal {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, m := range in.req.Messages {
		if m.Role != model.RoleAssistant {
			continue
		}
		want, got := proofOf(m), in.proofs[i]
		switch {
		case got == skipsProof:
		case got != "" && got != want:
			return invalid("The thinking of messages[%d] is not what was signed: it must come back unchanged, with the reply it was part of.", i)
		case got == "" && s.given[want] && in.signs && len(m.Calls) > 0:
			return invalid("The calls of messages[%d] are without the signed thinking (thinking block, reasoning item or thought_signature) that led to them.", i)
		}
	}
	return nil
}

func proofOf(m model.Message) string {
	h := sha256.New()
	enc := json.NewEncoder(h)
	_ = enc.Encode(m.Text) // strings always encode
	for _, c := range m.Calls {
		_ = enc.Encode([]any{c.Name, canonical(c.Arguments)})
	}
	return base64.StdEncoding.EncodeToString(h.Sum(nil))
}

// canonical is a call's arguments as an object. Where a protocol has no place
// for arguments that are none, they are wrapped in one.
func canonical(arguments string) object {
	var args object
	if json.Unmarshal([]byte(arguments), &args) != nil || args == nil {
		return object{"INVALID_JSON": arguments}
	}
	return args
}
