package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/rein-sh/rein/approval"
	"github.com/rein-sh/rein/secret"
)

// webhookCommand DECISION starts a webhook at $WEBHOOK_URL that answers so with
// the key in $REIN_APPROVAL_KEY; "unsigned" approves without a signature, and
// "late" does not answer as long as it is waited for.
func webhookCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: webhook approve|deny|unsigned|late")
	}
	key := secret.New("webhook", ts.Getenv("REIN_APPROVAL_KEY"))
	decision := args[0]
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		nonce, stamp := r.Header.Get(approval.HeaderNonce), r.Header.Get(approval.HeaderTimestamp)
		if err != nil || r.Header.Get(approval.HeaderSignature) != approval.Sign(key, "request", stamp, nonce, body) {
			http.Error(w, "not signed", http.StatusForbidden)
			return
		}
		var q struct{ Question approval.Question }
		if err := json.Unmarshal(body, &q); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if decision == "late" {
			<-r.Context().Done()
			return
		}
		said := map[string]string{"id": q.Question.ID, "nonce": nonce, "decision": decision, "by": "test"}
		if decision == "unsigned" {
			said["decision"] = "approve"
		}
		answer, _ := json.Marshal(said) // strings always encode
		stamp = strconv.FormatInt(time.Now().Unix(), 10)
		if decision != "unsigned" {
			w.Header().Set(approval.HeaderTimestamp, stamp)
			w.Header().Set(approval.HeaderSignature, approval.Sign(key, "answer", stamp, nonce, answer))
		}
		_, _ = w.Write(answer)
	}))
	ts.Defer(server.Close)
	ts.Setenv("WEBHOOK_URL", server.URL)
}
