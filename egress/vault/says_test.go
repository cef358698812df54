package vault_test

import (
	"testing"

	"github.com/rein-sh/rein/egress/vault"
)

func TestBindingSays(t *testing.T) {
	for want, b := range map[string]vault.Binding{
		"a.example.org on port 443, as bearer": {Host: "a.example.org", As: vault.Bearer},
		"a.example.org on ports 443, 8443, as header X-Key, methods GET, PUT, paths /x, /y/*": {Host: "a.example.org", Ports: []int{443, 8443},
			As: vault.Header, Name: "X-Key", Methods: []string{"GET", "PUT"}, Paths: []string{"/x", "/y/*"}},
		"a.example.org on port 443, as substitute in header, body": {Host: "a.example.org", As: vault.Substitute, In: []vault.Place{vault.InHeader, vault.InBody}},
	} {
		if got := b.Says(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
