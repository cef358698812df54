package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// output runs a program to its end.
func output(ctx context.Context, env []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", filepath.Base(name), strings.Join(args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return strings.TrimSpace(stdout.String()), nil
}

// programs is a machine whose verbs are programs to run.
type programs struct {
	env          []string
	run, destroy []string
}

func (p programs) command(ctx context.Context) error {
	_, err := output(ctx, p.env, p.run[0], p.run[1:]...)
	return err
}

func (p programs) end(ctx context.Context) error {
	if len(p.destroy) == 0 {
		return nil
	}
	_, err := output(ctx, p.env, p.destroy[0], p.destroy[1:]...)
	return err
}

// dockerSubject is a container of a running daemon.
func dockerSubject(c config, name, network string) subject {
	env := []string{"DOCKER_HOST=" + c.docker}
	return subject{name: name, create: func(ctx context.Context) (machine, error) {
		id, err := output(ctx, env, "docker", "run", "-d", "--network", network, c.image, "sleep", "1000")
		return programs{env, []string{"docker", "exec", id, "true"}, []string{"docker", "rm", "-f", id}}, err
	}}
}

// dockers are the containers that can be compared here. The targets are for
// those without network, the quicker ones, although a sandbox of rein has one.
func dockers(ctx context.Context, c config) []subject {
	all := []subject{dockerSubject(c, docker, "none")}
	env := []string{"DOCKER_HOST=" + c.docker}
	if _, err := output(ctx, env, "docker", "run", "--rm", "--network", "bridge", c.image, "true"); err == nil {
		all = append(all, dockerSubject(c, docker+", bridge", "bridge"))
	} // else the kernel of this host has no bridges
	return all
}

// bwrapSubject has new namespaces for each command and no machine.
func bwrapSubject() subject {
	return subject{name: "bwrap", fleeting: true, create: func(context.Context) (machine, error) {
		return programs{run: []string{"bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", "/", "/",
			"--dev", "/dev", "--proc", "/proc", "true"}}, nil
	}}
}

// runcSubject is a bare container from runc's own default bundle.
func runcSubject(ctx context.Context, c config) (subject, error) {
	bundle := filepath.Join(c.stateDir, "bundle")
	if err := os.Mkdir(bundle, 0o700); err != nil {
		return subject{}, err
	}
	if _, err := output(ctx, nil, "runc", "spec", "--bundle", bundle); err != nil {
		return subject{}, err
	}
	file := filepath.Join(bundle, "config.json")
	data, err := os.ReadFile(file)
	if err != nil {
		return subject{}, err
	}
	var spec map[string]any
	if err := json.Unmarshal(data, &spec); err != nil {
		return subject{}, err
	}
	process := spec["process"].(map[string]any)
	process["terminal"], process["args"] = false, []string{"sleep", "1000"}
	spec["root"] = map[string]any{"path": c.rootfs, "readonly": true}
	if data, err = json.Marshal(spec); err != nil {
		return subject{}, err
	}
	if err := os.WriteFile(file, data, 0o600); err != nil {
		return subject{}, err
	}
	root := filepath.Join(c.stateDir, "runc")
	made := 0
	return subject{name: "runc run -d / exec", create: func(ctx context.Context) (machine, error) {
		made++
		id := fmt.Sprintf("rein-bench-%d-%d", os.Getpid(), made)
		// The container keeps runc's output open, so it gets none to keep.
		cmd := exec.CommandContext(ctx, "runc", "--root", root, "run", "--detach", "--bundle", bundle, id)
		if err := cmd.Run(); err != nil {
			return nil, fmt.Errorf("runc run: %w", err)
		}
		return programs{nil, []string{"runc", "--root", root, "exec", id, "true"}, []string{"runc", "--root", root, "delete", "--force", id}}, nil
	}}, nil
}

// available reports whether a program is there.
func available(name string) bool {
	_, err := exec.LookPath(name)
	return err == nil
}
