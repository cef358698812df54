package opensandbox

import "time"

// SetLinger shortens how long a creation that nobody waits for is waited for.
func (p *Provider) SetLinger(d time.Duration) { p.linger = d }
