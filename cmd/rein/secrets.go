package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/rein-sh/rein/cmd/rein/config"
	"github.com/rein-sh/rein/secret"
)

// Bounds of reading a secret.
const (
	keyTimeout = 30 * time.Second
	maxKeySize = 64 << 10
)

// readKey reads a secret from where the configuration says the host has it.
// Only this process ever sees it.
func (a *app) readKey(ctx context.Context, name string, k config.Key) (secret.Value, error) {
	var text string
	switch {
	case k.Env != "":
		text = a.env.get(k.Env)
		if text == "" {
			return secret.Value{}, usage("export "+k.Env+"=..., or name another place under key: in the configuration",
				"no key for %s: the environment variable %s is not set", name, k.Env)
		}
	case k.File != "":
		data, err := os.ReadFile(k.File)
		if err != nil {
			return secret.Value{}, usage("rein config show prints where keys are looked for", "no key for %s: %s", name, err)
		}
		text = string(data)
	case len(k.Command) > 0:
		out, err := a.keyCommand(ctx, k.Command)
		if err != nil {
			return secret.Value{}, usage("run the command by hand to see what it says", "no key for %s: %s: %s", name, k.Command[0], err)
		}
		text = out
	default:
		return secret.Value{}, nil
	}
	text = strings.TrimSpace(text)
	if text == "" || len(text) > maxKeySize || strings.ContainsAny(text, "\n\x00") {
		return secret.Value{}, usage("rein config show prints where keys are looked for",
			"no key for %s: the %s must give one line", name, k)
	}
	return secret.New(name, text), nil
}

// keyCommand runs the host's own program for a secret. Its standard error goes
// to the user, since it may ask for a password there.
func (a *app) keyCommand(ctx context.Context, argv []string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, keyTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.WaitDelay = time.Second
	for k, v := range a.env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = a.in, &out, a.err.Writer
	err := cmd.Run()
	if ctx.Err() != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return "", fmt.Errorf("no answer within %s", keyTimeout)
	}
	return out.String(), err
}

// masker knows every secret of this host that rein was told of: the model's
// key, the provider's, and those the configuration lists.
func (a *app) masker(ctx context.Context, c config.Config, more ...secret.Value) (*secret.Masker, error) {
	m := secret.NewMasker()
	for _, s := range c.Redaction.Secrets {
		v, err := a.readKey(ctx, s.Name, s.Key())
		if err != nil {
			return nil, err
		}
		m.Add(v)
	}
	for _, v := range append(more, a.providerKeys...) {
		if !v.IsZero() {
			m.Add(v)
		}
	}
	return m, nil
}
