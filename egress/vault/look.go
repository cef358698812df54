package vault

import (
	"bytes"
	"errors"
	"io"

	"github.com/rein-sh/rein/secret"
)

// Look looks through the whole body of a request before any of it goes out: every
// form of it that may be sent then. Where nothing is replaced in it, it is not
// looked through again. The error is a *Refusal: it has a placeholder that may not
// be there. One whose secret goes to that target anyway may, as it is: it is worth
// nothing there, and whoever prints an environment and tells what was printed is no
// thief.
func (g *Grant) Look(body []byte) error {
	if g == nil {
		return nil
	}
	if len(g.replace) == 0 {
		strange, bound := g.vault.strange[g.to]
		if !bound {
			strange = g.vault.placeholders
		}
		if len(strange.Find(body)) > 0 {
			return leaked()
		}
		g.looked = true
		return nil
	}
	var r io.Reader = bytes.NewReader(body)
	for _, e := range g.replace {
		r = newReplacer(r, e)
	}
	_, err := io.Copy(io.Discard, g.vault.placeholders.Guard(r))
	if _, ok := errors.AsType[*secret.FoundError](err); ok {
		return leaked()
	}
	return err
}

func leaked() *Refusal {
	return refuse(RuleLeak, "the placeholder of a secret is in the body of a request to where that secret may not go")
}

// Changes reports whether bodies are changed by what is bound to the request.
func (g *Grant) Changes() bool { return g != nil && len(g.replace) > 0 }

// Decode undoes the content codings that fields name, as those of answers are
// undone. The error says what cannot be.
func (v *Vault) Decode(fields []string, body io.ReadCloser) (io.ReadCloser, error) {
	return v.decode(fields, body)
}
