package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/rein-sh/rein/cmd/rein/config"
	"github.com/rein-sh/rein/internal/mcpserver"
	"github.com/rein-sh/rein/secret"
	"github.com/spf13/cobra"
)

// httpFlags are those of "rein mcp" about HTTP.
type httpFlags struct {
	address, tokenEnv, tokenFile string
	hosts, origins               []string
}

func (f *httpFlags) flags(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.address, "http", "", "serve over HTTP at `HOST:PORT` instead; port 0 takes a free one")
	fl.StringVar(&f.tokenEnv, "http-token-env", "", "`VARIABLE` with the token that clients need (default: one is made, and printed)")
	fl.StringVar(&f.tokenFile, "http-token-file", "", "`FILE` with that token")
	fl.StringArrayVar(&f.hosts, "http-host", nil, "`NAME` of this host that requests may be for, besides its loopback's (repeatable)")
	fl.StringArrayVar(&f.origins, "http-origin", nil, "`ORIGIN` of web pages that may make requests, such as https://example.org (repeatable)")
}

func (f *httpFlags) check() error {
	if f.address == "" {
		if f.tokenEnv != "" || f.tokenFile != "" || len(f.hosts)+len(f.origins) > 0 {
			return usage("rein mcp --http 127.0.0.1:8377", "flags of HTTP are for --http")
		}
		return nil
	}
	if f.tokenEnv != "" && f.tokenFile != "" {
		return usage("leave one out", "there are two tokens")
	}
	host, _, err := net.SplitHostPort(f.address)
	if err != nil {
		return usage("rein mcp --http 127.0.0.1:8377", "--http %s is no HOST:PORT", f.address)
	}
	addr, err := netip.ParseAddr(host)
	if host != "localhost" && (err != nil || !addr.IsLoopback()) && f.tokenEnv == "" && f.tokenFile == "" {
		return usage("--http-token-env or --http-token-file", "--http %s can be reached from elsewhere, and nobody there has the token that would be made; what is sent is not encrypted", f.address)
	}
	return nil
}

// url is where a host asks, as far as that is known before it is served.
func (f *httpFlags) url() string { return "http://" + f.address + mcpserver.Path }

// token is what clients need; made says that it is a new one.
func (f *httpFlags) token(ctx context.Context, a *app) (v secret.Value, made bool, err error) {
	const hint = "write a token of 16 characters or more"
	if f.tokenEnv == "" && f.tokenFile == "" {
		return secret.New("mcp-token", strings.ToLower(rand.Text())), true, nil
	}
	v, err = a.readFrom(ctx, "rein mcp", naming{"--http-token-env VARIABLE", "check --http-token-file"}, config.Secret{Env: f.tokenEnv, File: f.tokenFile}, true)
	if err != nil {
		return v, false, err
	}
	if len(v.Reveal()) < 16 {
		return v, false, usage(hint, "the token of %s is too short", f.tokenEnv+f.tokenFile)
	}
	return v, false, nil
}

// serveMCP serves over HTTP until ctx ends.
func (a *app) serveMCP(ctx context.Context, s *mcpserver.Server, f *mcpFlags) error {
	token, made, err := f.http.token(ctx, a)
	if err != nil {
		return err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", f.http.address)
	if err != nil {
		return usage("name another address with --http", "listen: %s", err)
	}
	server := &http.Server{
		Handler:           s.Handler(mcpserver.HTTPOptions{Token: token, Hosts: f.http.hosts, Origins: f.http.origins}),
		ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	fmt.Fprintf(a.out, "http://%s%s\n", l.Addr(), mcpserver.Path)
	if made {
		fmt.Fprintf(a.out, "%s\n", token.Reveal())
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() }) // Serve says so
	defer stop()
	err = server.Serve(l)
	s.Close()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
