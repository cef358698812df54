package egress

import (
	"errors"
	"net/http"
	"strings"

	"github.com/rein-sh/rein/egress/policy"
)

// request is what is judged of one of HTTP.
type request struct {
	host, method, path, query string
	body, upgrade             bool
}

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
			list = append(list, request{host: r.Host, method: method, path: path, query: r.URL.RawQuery,
				body: r.ContentLength != 0, upgrade: isWebSocket(r.Header)})
		}
	}
	return list, nil
}

// judge returns the key for answered, and whether the request may pass for
// reading alone.
func (w *web) judge(r *http.Request) (key uint64, reads bool, refused *refusal) {
	asked, err := readings(r)
	if err == nil && r.ProtoMajor == 2 {
		err = checkStream(r)
	}
	if err != nil {
		return 0, false, &refusal{policy.Verdict{Rule: ruleHTTP, Reason: err.Error()}}
	}
	if methods, paths := policy.Overrides(r.Header); w.f.model != nil && len(methods)+len(paths) > 0 {
		return 0, false, &refusal{policy.Verdict{Rule: ruleModelPath, Reason: "a field of the request names another method or path"}}
	}
	key, reads, err = w.f.judgeHTTP(asked)
	if errors.As(err, &refused) {
		return 0, false, refused
	}
	reason := ""
	switch {
	case r.Method == http.MethodConnect:
		reason = "CONNECT is for the gateway's proxy, on its own address"
	case r.URL.Scheme != "" && r.URL.Scheme != w.scheme:
		reason = clip("the target of the request has the scheme " + r.URL.Scheme)
	default:
		return key, reads, nil
	}
	return key, false, &refusal{policy.Verdict{Rule: ruleHTTP, Reason: reason}}
}

// requestPath is the path as it is sent.
func requestPath(r *http.Request) string {
	if path, ok := rawPath(r); ok {
		return path
	}
	return r.URL.EscapedPath()
}

// rawPath returns the path as it came, when it can be sent like that: net/http
// takes one that begins with two slashes for a host.
func rawPath(r *http.Request) (string, bool) {
	path, _, _ := strings.Cut(r.RequestURI, "?")
	return path, strings.HasPrefix(path, "/") && !strings.HasPrefix(path, "//")
}

// judgeHTTP judges the readings of one request, by the flow's generation and
// the one in force. The error is a *refusal. Until answered, which takes the key
// that is returned, the request is judged by every policy that comes: its body, or what it was upgraded to, may
// go on for as long as the client likes. reads says that it may pass for reading
// alone.
func (f *flow) judgeHTTP(asked []request) (key uint64, reads bool, err error) {
	g := f.gateway
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, r := range asked {
		v := f.granted(f.judgeHead(f.policy, r))
		if v.Action == policy.Allow && f.generation != g.generation {
			now := f.granted(f.judgeHead(g.policyLocked(), r))
			v, reads = worse(v, now), reads || now.Reads
		}
		if v.Action != policy.Allow {
			return 0, false, &refusal{v}
		}
		reads = reads || v.Reads
		if v.Reported && !f.verdict.Reported {
			f.verdict = worse(f.verdict, v)
		}
	}
	f.last++
	if f.requests == nil {
		f.requests = map[uint64][]request{}
	}
	f.requests[f.last] = asked
	return f.last, reads, nil
}

// judgeHead is p's verdict on one reading of a request.
func (f *flow) judgeHead(p *policy.Policy, r request) policy.Verdict {
	if f.model != nil {
		return f.judgeModel(p, r)
	}
	head := policy.Request{Stage: policy.AtHTTP, Proto: policy.TCP, Name: f.to.name, Addr: f.to.addr, Port: f.to.port,
		Host: r.host, Method: r.method, Path: r.path, Query: r.query, Body: r.body, Upgrade: r.upgrade}
	if f.verdict.Proto == policy.HTTPS {
		head.Secure = true
		return f.ended(p.Decide(head))
	}
	return p.Decide(head)
}

// answered is the end of a request that was judged.
func (f *flow) answered(key uint64) {
	f.gateway.mu.Lock()
	defer f.gateway.mu.Unlock()
	delete(f.requests, key)
}
