package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/rein-sh/rein/cmd/rein/config"
	"github.com/rein-sh/rein/internal/modelserver"
	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/secret"
	"github.com/spf13/cobra"
)

const modelServerHelp = `Serves a script as a model over HTTP, so that rein and other programs can be tried
without a key. It speaks OpenAI's Chat Completions and Responses, Anthropic's
Messages and Google's generateContent:

  rein model-server demo.yaml &
  rein run --model openai/demo --base-url http://127.0.0.1:8089/v1 --price 0,0 ...
  rein run --model anthropic/demo --base-url http://127.0.0.1:8089 --price 0,0 ...

It prints the base URL for each vendor on stdout once it listens, and ends with
SIGINT or SIGTERM: then it says how much it served.`

func (a *app) modelServerCommand() *cobra.Command {
	var listen, keyEnv string
	var names []string
	cmd := &cobra.Command{
		Use: "model-server SCRIPT", Short: "a scripted model on the vendors' wire", Long: modelServerHelp, Args: exactly("SCRIPT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if slices.Contains(names, "") {
				return usage("--model NAME, or leave it out", "--model has no name")
			}
			sc, err := loadScript(args[0])
			if err != nil {
				return err
			}
			var key secret.Value
			if keyEnv != "" {
				if key, err = a.readFrom(cmd.Context(), "model-server", flagged("--key-env"), config.Secret{Env: keyEnv}, false); err != nil {
					return err
				}
			}
			return a.serve(cmd.Context(), listen, modelserver.New(sc, modelserver.Options{Key: key, Models: names}))
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:8089", "`ADDRESS` to listen on; port 0 takes a free one")
	cmd.Flags().StringArrayVar(&names, "model", nil, "`NAME` of a model that is known (repeatable); others are refused as the vendor does (default every name is known)")
	cmd.Flags().StringVar(&keyEnv, "key-env", "", "`VARIABLE` of the environment with the key every request must present")
	return cmd
}

// serve runs the server until ctx ends.
func (a *app) serve(ctx context.Context, address string, handler *modelserver.Server) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return usage("--listen HOST:PORT; port 0 takes a free one", "cannot listen on %s: %s", address, err)
	}
	var addresses strings.Builder
	for _, u := range modelserver.BaseURLs("http://" + l.Addr().String()) {
		fmt.Fprintf(&addresses, "%-10s %s\n", u[0], u[1])
	}
	if _, err := fmt.Fprint(a.out, addresses.String()); err != nil {
		l.Close()
		return err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(l) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	handler.Close()
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	err = server.Shutdown(stop)
	if served := <-failed; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	served := handler.Seen().Served
	var total model.Usage
	for _, u := range served {
		total.Input, total.CachedInput, total.Output = total.Input+u.Input, total.CachedInput+u.CachedInput, total.Output+u.Output
	}
	_, wrote := fmt.Fprintf(a.out, "served %d replies: %d input tokens, %d of them cached, %d output tokens\n",
		len(served), total.Input, total.CachedInput, total.Output)
	return errors.Join(err, wrote)
}
