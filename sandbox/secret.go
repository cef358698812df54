package sandbox

import (
	"context"
	"fmt"

	"github.com/rein-sh/rein/audit"
	"github.com/rein-sh/rein/secret"
)

// SecretChange is the data of audit.KindSecretIntent and KindSecretRotated. No
// value is in it.
type SecretChange struct {
	Secret string `json:"secret"`
	// Of the outcome.
	Ending
}

// RotateSecret changes a secret of a live sandbox of a provider that can;
// KindUnsupported when this one cannot.
func RotateSecret(ctx context.Context, p Provider, id, name string, value secret.Value) error {
	if r, ok := p.(SecretRotator); ok {
		return r.RotateSecret(ctx, id, name, value)
	}
	return &Error{Kind: KindUnsupported, Op: "rotate a secret", Subject: id, Err: fmt.Errorf("provider %s cannot change the secrets of a live sandbox", p.Name())}
}

// RotateSecret puts another value behind the placeholder of a secret, recorded
// before and after. The value is masked from now on, as the one before it still is.
// See SecretRotator.
func (s *Sandbox) RotateSecret(ctx context.Context, name string, value secret.Value) error {
	const op = "rotate a secret"
	if err := s.usable(op); err != nil {
		return err
	}
	ctx, cancel := bounded(ctx, DefaultOpTimeout)
	defer cancel()
	s.opt.Masker.Add(value)
	if err := s.append(audit.KindSecretIntent, "", SecretChange{Secret: name}); err != nil {
		return err
	}
	start := s.opt.Now()
	err := asError(op, s.id, RotateSecret(ctx, s.provider, s.id, name, value))
	return also(err, s.append(audit.KindSecretRotated, "", SecretChange{Secret: name,
		Ending: Ending{OK: err == nil, DurationMS: s.since(start), Failure: failure(err)}}))
}
