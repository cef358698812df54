package opensandbox

import (
	"time"

	"github.com/rein-sh/rein/secret"
)

// SetLinger shortens how long a creation that nobody waits for is waited for.
func (p *Provider) SetLinger(d time.Duration) { p.linger = d }

// SetPlanting shortens how long rein's execd may take to be in a sandbox, and
// to answer there.
func (p *Provider) SetPlanting(whole, start time.Duration) { p.planting, p.starting = whole, start }

var noKey secret.Value
