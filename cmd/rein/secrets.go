package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/rein-sh/rein/cmd/rein/config"
	"github.com/rein-sh/rein/egress/vault"
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
	return a.readSecret(ctx, name, "key:", k)
}

// readSecret is readKey of what the configuration has under another key.
func (a *app) readSecret(ctx context.Context, name, under string, k config.Key) (secret.Value, error) {
	var text string
	switch {
	case a.keyless:
		return secret.Value{}, nil
	case k.Env != "":
		text = a.env.get(k.Env)
		if text == "" {
			return secret.Value{}, usage("export "+k.Env+"=..., or name another place under "+under+" in the configuration",
				"no key for %s: the environment variable %s is not set", name, k.Env)
		}
	case k.File != "":
		var err error
		if text, err = readKeyFile(k.File); err != nil {
			return secret.Value{}, usage(hintOr(err, "check the path under file: in the configuration"), "no key for %s: %s", name, err)
		}
	case len(k.Command) > 0:
		out, err := a.keyCommand(ctx, k.Command)
		if err != nil {
			return secret.Value{}, usage("run the command by hand to see what it says", "no key for %s: %s: %s", name, k.Command[0], err)
		}
		text = out
	default:
		return secret.Value{}, nil
	}
	value := strings.TrimSpace(text)
	if why := notAKey(text, value); why != "" {
		return secret.Value{}, usage("the "+k.String()+" must be the key alone", "no key for %s: the %s %s", name, k, why)
	}
	return secret.New(name, value), nil
}

// notAKey says what keeps a text, trimmed to value, from being a key; "" is
// nothing. It shows none of it.
func notAKey(text, value string) string {
	switch {
	case len(text) > maxKeySize:
		return fmt.Sprintf("is larger than %d bytes", maxKeySize)
	case value == "":
		return "is empty"
	case strings.ContainsRune(value, 0):
		return "has a NUL byte"
	case strings.ContainsRune(value, '\n'):
		return fmt.Sprintf("has %d lines", strings.Count(value, "\n")+1)
	}
	return ""
}

// readKeyFile reads a regular file that not everybody can write. It reads one
// byte more than a key may have.
func readKeyFile(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a FIFO must not hold us
	if err != nil {
		return "", err
	}
	defer f.Close()
	st, err := f.Stat()
	switch {
	case err != nil:
		return "", err
	case !st.Mode().IsRegular():
		return "", withHint(fmt.Errorf("%s is not a regular file", path), "name a file; what a program prints is read with command:")
	case st.Mode().Perm()&0o002 != 0:
		return "", withHint(fmt.Errorf("anyone may write to %s", path), "chmod o-w "+path)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxKeySize+1))
	return string(data), err
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

// vaultSecrets reads the secrets of a target. They are masked from then on.
func (a *app) vaultSecrets(ctx context.Context, c config.Config, t config.Target) ([]vault.Secret, error) {
	list := c.SecretsOf(t)
	for i, s := range list {
		value, err := a.readSecret(ctx, s.Name, "secrets: "+s.Name+":", c.Secrets[s.Name].Key())
		if err != nil {
			return nil, err
		}
		list[i].Value = value
		a.providerKeys = append(a.providerKeys, value)
	}
	return list, nil
}

// secrets are those of a target, and the masker that knows them and more.
func (a *app) secrets(ctx context.Context, c config.Config, t config.Target, more ...secret.Value) ([]vault.Secret, *secret.Masker, error) {
	list, err := a.vaultSecrets(ctx, c, t)
	if err != nil {
		return nil, nil, err
	}
	m, err := a.masker(ctx, c, more...)
	return list, m, err
}

// masker knows every secret of this host that rein was told of: the model's
// key, the provider's, and those the configuration lists.
func (a *app) masker(ctx context.Context, c config.Config, more ...secret.Value) (*secret.Masker, error) {
	m := secret.NewMasker()
	for _, s := range c.Redaction.Secrets {
		v, err := a.readSecret(ctx, s.Name, "redaction: secrets:", s.Key())
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
