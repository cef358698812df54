package wire_test

import (
	"math"
	"testing"

	"github.com/rein-sh/rein/model/wire"
)

// What a vendor claims cannot make a sum negative, and so count as nothing.
func TestUsageAddsUp(t *testing.T) {
	t.Parallel()
	const most = math.MaxInt64
	u := wire.Usage(most, most, most, most)
	if sum := u.Input + u.Output; !u.Known || u.Input <= 1e9 || u.Output <= 1e9 || sum < u.Input || 1000*sum < sum {
		t.Errorf("%+v", u)
	}
	if u.CachedInput > u.Input || u.Reasoning > u.Output {
		t.Errorf("a part is more than its whole: %+v", u)
	}
	if u := wire.Usage(-1, 0, most, 0); u.Known {
		t.Errorf("%+v", u)
	}
}
