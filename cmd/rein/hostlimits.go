package main

import "github.com/rein-sh/rein/cmd/rein/config"

// hostNotices is what of the host's own limits of the network a target does not
// keep.
func hostNotices(t config.Target, e config.Egress) []string {
	if t.Provider != config.RemoteProvider || e.Limits == (config.EgressLimits{}) && e.HostLimits == (config.HostLimits{}) {
		return nil
	}
	return []string{"egress: limits and host_limits bound the sandboxes of this host: nobody bounds what this target's take of the network"}
}
