package egress

import (
	"net/http"

	"github.com/rein-sh/rein/egress/policy"
)

// request is what is judged of one of HTTP.
type request struct{ host, method, path string }

// readings are all that a request can be taken for: what it says, and what it
// says in fields that some servers go by instead of its first line. A policy
// that allows some methods or paths has to allow each.
func readings(r *http.Request) ([]request, error) {
	methods, paths := policy.Overrides(r.Header)
	methods, paths = append([]string{r.Method}, methods...), append([]string{requestPath(r)}, paths...)
	const most = 8
	if len(methods)+len(paths) > most {
		return nil, faulty("a request says %d times how it is to be taken", len(methods)+len(paths))
	}
	var list []request
	for _, method := range methods {
		for _, path := range paths {
			list = append(list, request{r.Host, method, path})
		}
	}
	return list, nil
}

// judgeHTTP judges the readings of one request, by the flow's generation and
// the one in force. The error is a *refusal. Until answered, which takes the key
// that is returned, the request is judged by every policy that comes: its body, or what it was upgraded to, may
// go on for as long as the client likes.
func (f *flow) judgeHTTP(asked []request) (uint64, error) {
	g := f.gateway
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, r := range asked {
		v := f.granted(f.judgeHead(f.policy, r))
		if v.Action == policy.Allow && f.generation != g.generation {
			v = worse(v, f.granted(f.judgeHead(g.policyLocked(), r)))
		}
		if v.Action != policy.Allow {
			return 0, &refusal{v}
		}
		if v.Reported && !f.verdict.Reported {
			f.verdict = worse(f.verdict, v)
		}
	}
	f.last++
	if f.requests == nil {
		f.requests = map[uint64][]request{}
	}
	f.requests[f.last] = asked
	return f.last, nil
}

// judgeHead is p's verdict on one reading of a request.
func (f *flow) judgeHead(p *policy.Policy, r request) policy.Verdict {
	if f.verdict.Proto == policy.HTTPS {
		return f.ended(p.HTTPS(f.to.host(), f.to.port, r.host, r.method, r.path))
	}
	return p.HTTP(f.to.host(), f.to.port, r.host, r.method, r.path)
}

// answered is the end of a request that was judged.
func (f *flow) answered(key uint64) {
	f.gateway.mu.Lock()
	defer f.gateway.mu.Unlock()
	delete(f.requests, key)
}
