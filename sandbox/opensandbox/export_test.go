package opensandbox

import (
	"time"

	"github.com/rein-sh/rein/secret"
)

// SetLinger shortens how long a creation that nobody waits for is waited for.
func (p *Provider) SetLinger(d time.Duration) { p.linger = d }

var noKey secret.Value
