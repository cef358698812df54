package vault_test

import (
	"testing"

	"github.com/rein-sh/rein/egress/vault"
	"github.com/rein-sh/rein/secret"
)

// Whoever has a host's key knows the placeholders of its sandboxes, and neither the
// keys nor those of another host.
func TestRecognize(t *testing.T) {
	const value = "ghp_f4Kq81ZtRw02LmNxPa7uVy3Bd5Ce6Gh9JkQs"
	secrets := []vault.Secret{{Name: "gh", Value: secret.New("gh", value), Variable: "GH", Use: []vault.Binding{{Host: "a.example", As: vault.Bearer}}}}
	key := vault.Key{1}
	known := vault.Recognize(key, secrets)
	for range 3 {
		v, faults := vault.New(key, secrets)
		if len(faults) > 0 {
			t.Fatal(faults)
		}
		if placeholder := v.Environment()["GH"]; !known([]byte(placeholder)) || known([]byte(placeholder[1:])) {
			t.Errorf("%q is not known", placeholder)
		}
	}
	v, _ := vault.New(vault.Key{2}, secrets)
	if other := v.Environment()["GH"]; known([]byte(other)) || known([]byte(value)) || known(nil) {
		t.Error("what is no placeholder of this host is known as one")
	}
}
