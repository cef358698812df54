package main

import (
	"context"
	"crypto/tls"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/rein-sh/rein/egress/policy"
	"github.com/rein-sh/rein/egress/vault"
	"github.com/rein-sh/rein/internal/clients"
	"github.com/rein-sh/rein/sandbox"
	"github.com/rein-sh/rein/sandbox/local"
	"github.com/rein-sh/rein/secret"
)

// The targets where TLS ends in the gateway: speed, and what a request waits
// longer for its first byte on a connection that is kept, than where TLS passes.
const (
	wantEndedMbps = 200
	maxEndedExtra = 2 * time.Millisecond
	endedRequests = 400
	endedStreams  = 200
	endedBytes    = 256 << 20 // of one download and one upload

	uploaded = 1 << 30 // at once

	webMode, streamsMode, uploadMode = "web-client", "streams-client", "upload-client"

	throughName, endedName, secretName = "through.bench.test", "ended.bench.test", "secret.bench.test"
	secretVariable                     = "BENCH_KEY"
)

// streamed are the bytes of each of many streams at once: the second ten times
// the first, so that what grows with them shows.
var streamed = []int64{1 << 20, 10 << 20}

// endedWays are what is measured, from the fastest that there could be.
var endedWays = []struct {
	name, host string
	h2, secret bool
}{
	{"TLS passes through, HTTP/1.1", throughName, false, false},
	{"TLS passes through, HTTP/2", throughName, true, false},
	{"TLS ends, HTTP/1.1", endedName, false, false},
	{"TLS ends, HTTP/2", endedName, true, false},
	{"with a secret, text looked through, HTTP/1.1", secretName, false, true},
	{"with a secret, text looked through, HTTP/2", secretName, true, true},
}

// terminated measures requests over TLS that ends in the gateway, beside TLS
// that passes through it.
func terminated(ctx context.Context, c config) error {
	authority, err := clients.NewAuthority(pkix.Name{CommonName: "rein bench"})
	if err != nil {
		return err
	}
	port, stop, err := webServer(authority)
	if err != nil {
		return err
	}
	defer stop()
	slowest, extra := 0.0, time.Duration(0)
	var memory []string
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\nrequests over TLS\tdownload\tupload\tfirst byte p50\tp99\n")
	for _, r := range runtimes {
		b, end, err := c.webBox(ctx, r.runtime, port, authority)
		if err != nil {
			return err
		}
		first := map[bool]time.Duration{} // where TLS passes through, by HTTP/2
		for _, y := range endedWays {
			f, err := b.web(ctx, y.host, port, y.h2, y.secret)
			if err != nil {
				return errors.Join(fmt.Errorf("%s: %s: %w", r.name, y.name, err), end())
			}
			fmt.Fprintf(w, "%s: %s\t%.0f Mbit/s\t%.0f Mbit/s\t%v\t%v\n", r.name, y.name, f.down*1000, f.up*1000, f.p50.Round(time.Microsecond), f.p99.Round(time.Microsecond))
			switch {
			case y.host == throughName:
				first[y.h2] = f.p50
			case r.name == reinRunc:
				extra = max(extra, f.p50-first[y.h2])
				if slow := min(f.down, f.up) * 1000; slowest == 0 || slow < slowest {
					slowest = slow
				}
			}
		}
		line, err := b.streams(ctx, stateOf(c, r.runtime), port)
		if err = errors.Join(err, end()); err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
		memory = append(memory, r.name+": "+line)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Printf("target: %d Mbit/s or more where TLS ends, with runc: %.0f\n", wantEndedMbps, slowest)
	fmt.Printf("target: under %v more to the first byte than where TLS passes through, p50, with runc: %v\n", maxEndedExtra, extra.Round(time.Microsecond))
	fmt.Printf("target: memory that does not grow with what %d streams carry; the keeper's peak above what it had before:\n", endedStreams)
	for _, line := range memory {
		fmt.Println("  " + line)
	}
	return nil
}

// webServer serves the client's requests in TLS, on the loopback.
func webServer(authority *clients.Authority) (port int, stop func(), err error) {
	cert, err := authority.Certify(throughName, endedName, secretName)
	if err != nil {
		return 0, nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, nil, err
	}
	s := &http.Server{Handler: http.HandlerFunc(serveWeb), TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2", "http/1.1"}}}
	done := make(chan struct{})
	go func() { defer close(done); _ = s.ServeTLS(l, "", "") }() // until it is closed
	return l.Addr().(*net.TCPAddr).Port, func() { s.Close(); <-done }, nil
}

// serveWeb takes what is sent to it, and answers with as many bytes of text as
// the query says.
func serveWeb(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body) // the client counts
	n, err := strconv.ParseInt(r.FormValue("n"), 10, 64)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/plain")
	w.Header().Set("Content-Length", strconv.FormatInt(n, 10))
	_, _ = io.CopyN(w, letters{}, n) // the client counts
}

// letters are text.
type letters struct{}

func (letters) Read(b []byte) (int, error) {
	const line = "what a server says is looked through for what nobody inside may have.\n"
	for i := 0; i < len(b); i += len(line) {
		copy(b[i:], line)
	}
	return len(b), nil
}

// webBox is a sandbox that may reach the server by its three names.
func (c config) webBox(ctx context.Context, runtime string, port int, authority *clients.Authority) (b box, end func() error, err error) {
	resolver, stop, err := resolverTo(netip.MustParseAddr("127.0.0.1"))
	if err != nil {
		return b, nil, err
	}
	limits := policy.Limits{PerSecond: 100000, Bytes: 1 << 50, MaxUploadBytes: 1 << 50}
	o := local.Options{Egress: reinEgress(resolver, authority.PEM)}
	ports := []int{port}
	b, err = c.clientBox(ctx, runtime, o, sandbox.Spec{
		Network: policy.Document{Limits: limits, Rules: []policy.Rule{{Host: throughName, Ports: ports, Proto: "tls"}, {Host: endedName, Ports: ports, Proto: "https"},
			{Host: secretName, Ports: ports, Proto: "https"}, {CIDR: "127.0.0.1/32", Ports: ports, Proto: "tls"}}},
		Secrets: []vault.Secret{{Name: "bench", Value: secret.New("bench", "rein_BenchBenchBenchBenchBenchBench0123"), Variable: secretVariable,
			Use: []vault.Binding{{Host: secretName, Ports: ports, As: vault.Bearer}}}}})
	if err != nil {
		return b, nil, errors.Join(err, stop())
	}
	return b, func() error { return errors.Join(b.end(context.WithoutCancel(ctx)), stop()) }, nil
}

// web has the client in the sandbox measure requests to a host.
func (b box) web(ctx context.Context, host string, port int, h2, secret bool) (f passage, err error) {
	out, err := b.client(ctx, webMode, fmt.Sprintf("https://%s:%d/", host, port), strconv.FormatBool(h2), strconv.FormatBool(secret))
	if err != nil {
		return f, err
	}
	var said timings
	if err := json.Unmarshal([]byte(out), &said); err != nil {
		return f, fmt.Errorf("the client said %q: %w", out, err)
	}
	rate := func(d time.Duration) float64 { return float64(endedBytes) * 8 / float64(d) }
	return passage{rate(said.Down), rate(said.Up), said.P50, said.P99}, nil
}

// streams follows the keeper's memory while the client has many streams at once.
func (b box) streams(ctx context.Context, stateDir string, port int) (string, error) {
	pid, err := keeper(stateDir, b.sb.ID())
	if err != nil {
		return "", err
	}
	watched := watch{what: "keeper", pid: pid}
	var said []string
	grown := func(what, mode string, n int64) error {
		if err := watched.start(); err != nil {
			return err
		}
		if _, err := b.client(ctx, mode, fmt.Sprintf("https://%s:%d/", secretName, port), strconv.FormatInt(n, 10)); err != nil {
			return err
		}
		peak, err := watched.grown()
		said = append(said, fmt.Sprintf("%.0f MiB with %s", float64(peak)/(1<<20), what))
		return err
	}
	for _, n := range streamed {
		if err := grown(fmt.Sprintf("%d MiB carried", endedStreams*n>>20), streamsMode, n); err != nil {
			return "", err
		}
	}
	err = grown(fmt.Sprintf("one upload of %d MiB", uploaded>>20), uploadMode, uploaded)
	return strings.Join(said, ", "), err
}

// timings are what the client inside found.
type timings struct{ Down, Up, P50, P99 time.Duration }

// webClient is this program inside: it prints timings of requests to a URL.
func webClient(args []string) error {
	if len(args) != 3 {
		return errors.New("the client takes a URL, and whether HTTP/2 and a secret are used")
	}
	c := newWebClient(args[1] == "true", args[2] == "true")
	defer c.CloseIdleConnections()
	ctx := context.Background()
	var t timings
	var err error
	if _, err = c.get(ctx, args[0], 1); err != nil { // the connection is there from here on
		return err
	}
	start := time.Now()
	if _, err = c.get(ctx, args[0], endedBytes); err != nil {
		return err
	}
	t.Down, start = time.Since(start), time.Now()
	if _, err = c.do(ctx, http.MethodPost, args[0]+"?n=1", io.LimitReader(letters{}, endedBytes), 1); err != nil {
		return err
	}
	t.Up = time.Since(start)
	var firsts []time.Duration
	for range endedRequests {
		first, err := c.get(ctx, args[0], 100)
		if err != nil {
			return err
		}
		firsts = append(firsts, first)
	}
	slices.Sort(firsts)
	t.P50, t.P99 = firsts[endedRequests/2], firsts[endedRequests*99/100]
	return json.NewEncoder(os.Stdout).Encode(t)
}

// streamsClient is this program inside: it has many downloads at once.
func streamsClient(args []string) error {
	return withLength(args, func(c web, url string, n int64) error {
		faults := make([]error, endedStreams)
		var all sync.WaitGroup
		for i := range faults {
			all.Go(func() { _, faults[i] = c.get(context.Background(), url, n) })
		}
		all.Wait()
		return errors.Join(faults...)
	})
}

// uploadClient is this program inside: it sends one long body.
func uploadClient(args []string) error {
	return withLength(args, func(c web, url string, n int64) error {
		_, err := c.do(context.Background(), http.MethodPost, url+"?n=1", io.LimitReader(letters{}, n), 1)
		return err
	})
}

// withLength has a client that is connected do what its arguments, a URL and a
// length, are for.
func withLength(args []string, do func(c web, url string, n int64) error) error {
	if len(args) != 2 {
		return errors.New("the client takes a URL and a length")
	}
	n, err := strconv.ParseInt(args[1], 10, 64)
	if err != nil {
		return err
	}
	c := newWebClient(true, true)
	defer c.CloseIdleConnections()
	if _, err := c.get(context.Background(), args[0], 1); err != nil {
		return err
	}
	return do(c, args[0], n)
}

type web struct {
	*http.Client
	secret bool
}

func newWebClient(h2, secret bool) web {
	t := &http.Transport{Protocols: new(http.Protocols), ForceAttemptHTTP2: h2, DisableCompression: true}
	t.Protocols.SetHTTP1(!h2)
	t.Protocols.SetHTTP2(h2)
	return web{&http.Client{Transport: t}, secret}
}

func (c web) get(ctx context.Context, url string, n int64) (first time.Duration, err error) {
	return c.do(ctx, http.MethodGet, fmt.Sprintf("%s?n=%d", url, n), nil, n)
}

// do makes a request that is answered with n bytes, and says when the first of
// the answer came.
func (c web) do(ctx context.Context, method, url string, body io.Reader, n int64) (first time.Duration, err error) {
	start := time.Now()
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotFirstResponseByte: func() { first = time.Since(start) }})
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return 0, err
	}
	if c.secret {
		req.Header.Set("Authorization", "Bearer "+os.Getenv(secretVariable))
	}
	res, err := c.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	got, err := io.Copy(io.Discard, res.Body)
	if err == nil && (res.StatusCode != http.StatusOK || got != n) {
		err = fmt.Errorf("%s: %s, %d bytes and not %d", url, res.Status, got, n)
	}
	return first, err
}
