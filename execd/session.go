package execd

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

// Bounds of sessions. One that nothing is run in for SessionIdle is forgotten.
const (
	MaxSessions     = 64
	MaxSessionState = 256 << 10 // bytes of directory and variables that a command may leave
	SessionIdle     = time.Hour
	// DefaultSessionTimeout ends a command in a session that gives none.
	DefaultSessionTimeout = 24 * time.Hour
)

// SessionRequest is the body of POST /session.
type SessionRequest struct {
	// Cwd is where the first command starts; it is created when missing. Empty
	// means execd's working directory.
	Cwd string `json:"cwd,omitempty"`
	// Envs adds to the environment; rein's addition.
	Envs map[string]string `json:"envs,omitempty"`
}

// SessionID is the answer to it.
type SessionID struct {
	ID string `json:"session_id"`
}

// SessionState is what a command left to the next one of its session.
type SessionState struct {
	// Cwd is where the next command starts.
	Cwd string `json:"cwd"`
	// Kept says that the command's directory and exported variables are those of
	// the session now. Reason says why not: it was killed, replaced its shell
	// (exec), has a trap on EXIT of its own, or left more than MaxSessionState.
	Kept   bool   `json:"kept"`
	Reason string `json:"reason,omitempty"`
}

// CreateSession makes a session: commands that share a working directory and
// exported variables, one at a time. CodeTooMany beyond MaxSessions.
func (c *Client) CreateSession(ctx context.Context, req SessionRequest) (string, error) {
	var id SessionID
	if err := c.call(ctx, http.MethodPost, "/session", nil, req, &id); err != nil {
		return "", err
	}
	if id.ID == "" {
		return "", fmt.Errorf("execd: the answer to POST /session names no session")
	}
	return id.ID, nil
}

// RunInSession is Run in a session. Cwd and Envs stay with the session;
// Background, UID and GID are refused. CodeSessionNotFound when there is no such
// session any more, CodeConflict while another command runs in it. A command
// without Rein.ID ends with its connection.
func (c *Client) RunInSession(ctx context.Context, session string, req RunRequest, each func(Event)) (Outcome, error) {
	return c.run(ctx, "/session/"+url.PathEscape(session)+"/run", req, each)
}

// DeleteSession ends a session, and the command that runs in it.
func (c *Client) DeleteSession(ctx context.Context, session string) error {
	return c.call(ctx, http.MethodDelete, "/session/"+url.PathEscape(session), nil, nil, nil)
}
