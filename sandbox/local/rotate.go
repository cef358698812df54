package local

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/rein-sh/rein/egress/vault"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/secret"
)

var _ sandbox.SecretRotator = (*Provider)(nil)

// secretRequest is the body of POST /secret.
type secretRequest struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// maxSecretRequest bounds it, in bytes: six for one, escaped, of the longest value.
const maxSecretRequest = 128 << 10

// RotateSecret hands the keeper another value, over the socket that is its owner's
// alone.
func (p *Provider) RotateSecret(ctx context.Context, id, name string, value secret.Value) error {
	const op = "rotate a secret"
	return p.asLost(op, id, p.ask(ctx, op, id, http.MethodPost, "/secret", secretRequest{name, value.Reveal()}, nil))
}

// rotateSecret serves POST /secret.
func (s *controlServer) rotateSecret(w http.ResponseWriter, r *http.Request) {
	var req secretRequest
	if err := json.NewDecoder(io.LimitReader(r.Body, maxSecretRequest)).Decode(&req); err != nil {
		refuse(w, http.StatusBadRequest, sandbox.KindInvalid, errors.New("the secret is not one")) // err may quote it
		return
	}
	answer(w, s.keeper.rotateSecret(req))
}

// rotateSecret puts another value in the place of one, also while the sandbox is
// paused.
func (k *keeper) rotateSecret(req secretRequest) error {
	const op = "rotate a secret"
	if err := k.present(op); err != nil {
		return err
	}
	err := k.vault.Rotate(req.Name, secret.New(req.Name, req.Value))
	if e, ok := errors.AsType[*vault.RotateError](err); ok {
		return &sandbox.Error{Kind: sandbox.KindInvalid, Op: op, Subject: "secrets." + e.Name, Err: e, Hint: e.Hint}
	}
	return err
}
