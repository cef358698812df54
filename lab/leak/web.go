package leak

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// proxyPort is where the gateway would take HTTP_PROXY.
const proxyPort = 3128

// targets are where the ways of HTTP and TCP lead, each with a word for it: the
// sink on the host's own addresses, the sink's port at the gateway (which other
// stacks in user space take for the host's loopback), and addresses outside.
func (a Aim) targets() (list []struct{ word, at string }) {
	add := func(word string, at netip.AddrPort) {
		list = append(list, struct{ word, at string }{word, at.String()})
	}
	for _, s := range a.Sinks {
		add("the host's own "+s.Addr().String(), s)
	}
	for _, g := range a.Gateway {
		add("the gateway for the host's loopback, "+family(g), netip.AddrPortFrom(g, a.Loopback))
	}
	add("outside by IPv4", netip.MustParseAddrPort("192.0.2.1:80"))
	add("outside by IPv6", netip.MustParseAddrPort("[2001:db8::1]:80"))
	return list
}

func family(a netip.Addr) string {
	if a.Is4() {
		return "IPv4"
	}
	return "IPv6"
}

// web are the ways of HTTP and TLS, by name, by address and through proxies.
func (a Aim) web() []way {
	var list []way
	for _, t := range a.targets() {
		list = append(list,
			request("http to "+t.word, "http://"+t.at+"/", []Outcome{Reset, Unreachable}, "", ""),
			request("https to "+t.word, "https://"+t.at+"/", []Outcome{Reset, Unreachable}, "", ""))
	}
	name := a.Token + "." + outside
	list = append(list,
		request("http by name", "http://"+name+"/", []Outcome{NoName}, "", ""),
		request("https by name", "https://"+name+"/", []Outcome{NoName}, "", ""),
		request("http with a user in the address", "http://localhost@"+name+"/", []Outcome{NoName}, "", ""),
		request("http by an international name", "http://xn--"+a.Token+"-gva."+outside+"/", []Outcome{NoName}, "", ""),
		request("websocket by name", "ws://"+name+"/", []Outcome{NoName}, "", ""),
		request("dns over https, by name", "https://dns.google/resolve?name="+name, []Outcome{NoName}, "", ""),
		request("dns over https at 1.1.1.1", "https://1.1.1.1/dns-query?dns=AAAB", []Outcome{Reset, Unreachable}, "", ""),
		request("dns over https at 2606:4700:4700::1111", "https://[2606:4700:4700::1111]/dns-query?dns=AAAB", []Outcome{Reset, Unreachable}, "", ""),
		request("http with a Host of somebody else", "http://"+a.targets()[0].at+"/", []Outcome{Reset, Unreachable}, "pypi.org", ""),
		request("websocket to an address", "ws://"+a.targets()[0].at+"/", []Outcome{Reset, Unreachable}, "", ""),
	)
	return append(list, a.proxies(name)...)
}

// proxies are the ways that ask somebody to pass it on.
func (a Aim) proxies(name string) []way {
	refusal := []Outcome{Reset, Unreachable, Page}
	gateway := netip.AddrPortFrom(a.Gateway[0], proxyPort).String()
	target := a.targets()[0].at
	return []way{
		request("http_proxy at the gateway, by name", "http://"+name+"/", refusal, "", gateway),
		request("http_proxy at the gateway, by address", "http://"+target+"/", refusal, "", gateway),
		connectBy("CONNECT at the gateway, by name", gateway, name+":443"),
		connectBy("CONNECT at the gateway, by address", gateway, target),
		connectBy("CONNECT at the gateway, to the host's loopback", gateway, fmt.Sprintf("127.0.0.1:%d", a.Loopback)),
		connectBy("CONNECT at the gateway, to localhost", gateway, fmt.Sprintf("localhost:%d", a.Loopback)),
		connectBy("CONNECT at the gateway, to the gateway", gateway, net.JoinHostPort(a.Gateway[0].String(), strconv.Itoa(proxyPort))),
		connectBy("CONNECT at the gateway, to metadata", gateway, "169.254.169.254:80"),
		request("http_proxy of the host", "http://"+name+"/", refusal, "", target),
	}
}

// request is a way of HTTP: a POST with the byte in its path, a header and the
// body. host, when set, is the Host header, and proxy who is asked instead.
func request(name, address string, want []Outcome, host, proxy string) way {
	tried := "POST " + short(address)
	if host != "" {
		tried += " with Host: " + host
	}
	if proxy != "" {
		tried += " through http_proxy=" + proxy
	}
	return by("http", name, tried, want, func(ctx context.Context, p *probe) seen { return p.post(ctx, address, host, proxy) })
}

func (p *probe) post(ctx context.Context, address, host, proxy string) seen {
	websocket := strings.HasPrefix(address, "ws")
	address = "http" + strings.TrimPrefix(strings.TrimPrefix(address, "ws"), "http")
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, strings.NewReader(p.message()))
	if err != nil {
		return open("cannot be built: %v", err)
	}
	req.Header.Set("X-Byte", p.message())
	if websocket {
		req.Method, req.Body = http.MethodGet, nil
		req.Header.Set("Connection", "Upgrade")
		req.Header.Set("Upgrade", "websocket")
		req.Header.Set("Sec-WebSocket-Version", "13")
		req.Header.Set("Sec-WebSocket-Key", "cmVpbiBsYWIgYTQgcmVpbg==")
	}
	if host != "" {
		req.Host = host
	}
	t := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true, ResponseHeaderTimeout: patience,
		DialContext: (&net.Dialer{Timeout: patience}).DialContext}
	if proxy != "" {
		t.Proxy = func(*http.Request) (*url.URL, error) { return url.Parse("http://" + proxy) }
	}
	defer t.CloseIdleConnections()
	answer, err := t.RoundTrip(req)
	if err != nil {
		return refused(err)
	}
	defer answer.Body.Close()
	return judgePage(answer)
}

// judgePage says what an HTTP answer is: a refusal, or an answer of somebody.
func judgePage(r *http.Response) seen {
	body, _ := io.ReadAll(io.LimitReader(r.Body, 400)) // what there is of it is shown
	words := fmt.Sprintf("%s: %s", r.Status, firstLine(string(body)))
	switch r.StatusCode {
	case http.StatusForbidden, http.StatusUnauthorized, http.StatusProxyAuthRequired:
		return seen{outcome: Page, words: words}
	case http.StatusBadRequest, http.StatusMethodNotAllowed, http.StatusLengthRequired, http.StatusExpectationFailed, http.StatusMisdirectedRequest, http.StatusRequestHeaderFieldsTooLarge, http.StatusHTTPVersionNotSupported:
		return seen{outcome: BadRequest, words: words}
	}
	return seen{outcome: Open, words: words}
}

// connectBy asks a proxy for a tunnel.
func connectBy(name, proxy, target string) way {
	return by("http", name, "CONNECT "+short(target)+" at "+proxy, []Outcome{Reset, Unreachable, Page, BadRequest}, func(ctx context.Context, p *probe) seen {
		c, err := dial(ctx, "tcp", proxy)
		if err != nil {
			return refused(err)
		}
		defer c.Close()
		return p.tunnelThrough(c, target)
	})
}

// tunnelThrough asks for a tunnel on c and, when it gets one, sends the byte.
func (p *probe) tunnelThrough(c net.Conn, target string) seen {
	if _, err := fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", target, target); err != nil {
		return refused(err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: http.MethodConnect})
	if err != nil {
		return refused(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode == http.StatusOK {
		_, _ = io.WriteString(c, p.message()) // the sink would show it
	}
	return judgePage(answer)
}

// dial connects, and bounds all that is done with the connection.
func dial(ctx context.Context, network, at string) (net.Conn, error) {
	c, err := (&net.Dialer{Timeout: patience}).DialContext(ctx, network, at)
	if err != nil {
		return nil, err
	}
	return c, c.SetDeadline(time.Now().Add(patience))
}

// firstLine is the beginning of a text, on one line.
func firstLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	return s[:min(len(s), 160)]
}
