package vault

import (
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/rein-sh/rein/secret"
)

// A placeholder stands for what it looks like, and for nothing else: a program
// inside judges keys by that.
func TestRotateToAnotherShape(t *testing.T) {
	t.Parallel()
	const uuid, hex = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0", "0123456789abcdef0123456789abcdef"
	bearer := Binding{Host: "api.example.org", As: Bearer}
	for _, c := range []struct{ name, before, after, says string }{
		{"the same", ghKey, ghKey, ""},
		{"another of the kind", ghKey, "ghp_0000aaaaBBBB1111ccccDDDD2222eeeeFFFF", ""},
		{"of dashes and letters elsewhere", "aB3-xY9_kLmN0pQr", "Zz_9qW-1eRtYuI0p", ""},
		{"longer", ghKey, ghKey + "0", "has 41 bytes, and its placeholder 40"},
		{"shorter", ghKey, ghKey[:39], "has 39 bytes"},
		{"empty", ghKey, "", "is empty"},
		{"of another beginning", ghKey, "ghs_0000aaaaBBBB1111ccccDDDD2222eeeeFFFF", "does not begin with ghp_"},
		{"of a beginning", "Xk9p0000aaaaBBBB1111ccccDDDD2222eeeeFFFF", ghKey, "another kind of key"},
		{"a control character", ghKey, ghKey[:39] + "\n", "control character"},
		{"nothing to tell it by", ghKey, "ghp_" + strings.Repeat("-", 36), "letters and digits"},
		{"hexadecimal", hex, "fedcba98765432100123456789abcdef", ""},
		{"of digits", hex, strings.Repeat("01234567", 4), ""},
		{"no hexadecimal", hex, "0123456789abcdef0123456789abcdeg", "not hexadecimal"},
		{"of capitals", hex, strings.ToUpper(hex), "not hexadecimal"},
		{"a UUID", uuid, "a5b4c3d2-e1f0-0f1e-2d3c-4b5a69788796", ""},
		{"no UUID", uuid, "a5b4c3d2e-1f0-0f1e-2d3c-4b5a69788796", "not hexadecimal"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			v := vaultOf(t, one(c.before, bearer))
			inside := v.Environment()["KEY"]
			err := v.Rotate("key", secret.New("key", c.after))
			want := c.after
			if c.says != "" {
				want = c.before
				e, ok := errors.AsType[*RotateError](err)
				if !ok || !strings.Contains(e.Reason, c.says) || c.after != "" && strings.Contains(err.Error(), c.after) {
					t.Errorf("%v, want one that says %q and not the value", err, c.says)
				}
			} else if err != nil {
				t.Fatal(err)
			}
			r, _ := http.NewRequest("GET", "https://api.example.org/", nil)
			out, _, err := carried(v, Target{"api.example.org", 443}, r)
			if err != nil || out.Header.Get("Authorization") != "Bearer "+want {
				t.Errorf("given %v, %v", out, err)
			}
			if got := v.Environment()["KEY"]; got != inside {
				t.Error("the placeholder has changed")
			}
		})
	}
	if err := vaultOf(t, one(ghKey, bearer)).Rotate("other", secret.New("other", ghKey)); err == nil {
		t.Error("a secret that there is not was rotated")
	}
	if err := (*Vault)(nil).Rotate("key", secret.New("key", ghKey)); err == nil {
		t.Error("a sandbox without secrets has one")
	}
}

// Requests under way while a secret is rotated have one value or the other, and
// those that come after it the new one.
func TestRotateUnderRequests(t *testing.T) {
	t.Parallel()
	v := vaultOf(t, one(ghKey, Binding{Host: "api.example.org", As: Bearer}))
	values := []string{ghKey, "ghp_0000aaaaBBBB1111ccccDDDD2222eeeeFFFF"}
	ask := func() string {
		r, _ := http.NewRequest("GET", "https://api.example.org/", nil)
		out, _, err := carried(v, Target{"api.example.org", 443}, r)
		if err != nil {
			return err.Error()
		}
		return strings.TrimPrefix(out.Header.Get("Authorization"), "Bearer ")
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	for range 4 {
		wg.Go(func() {
			for range 200 {
				if got := ask(); got != values[0] && got != values[1] {
					t.Errorf("given %q", got)
				}
			}
		})
	}
	for i := range 100 {
		value := values[i%2]
		if err := v.Rotate("key", secret.New("key", value)); err != nil {
			t.Error(err)
		}
		if got := ask(); got != value {
			t.Errorf("given %q after it was rotated", got)
		}
	}
}
