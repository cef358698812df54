package gemini

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/rein-sh/rein/internal/retryafter"
	"github.com/rein-sh/rein/model"
	"github.com/rein-sh/rein/model/wire"
)

// detail is what Google tells about an error, a google.rpc.Status: see
// cloud.google.com/apis/design/errors and ai.google.dev/gemini-api/docs/troubleshooting.
type detail struct {
	Message string `json:"message"`
	Status  string `json:"status"`
	Details []struct {
		Reason     string `json:"reason"`     // of an ErrorInfo
		RetryDelay string `json:"retryDelay"` // of a RetryInfo
		Violations []struct {
			QuotaID string `json:"quotaId"` // of a QuotaFailure
		} `json:"violations"`
	} `json:"details"`
}

func parseDetail(body []byte) detail {
	type outer struct {
		Error detail `json:"error"`
	}
	var one outer
	var many []outer // as it is without alt=sse
	// Whatever is not there or not of its type stays empty.
	if json.Unmarshal(body, &many) == nil && len(many) > 0 {
		return many[0].Error
	}
	_ = json.Unmarshal(body, &one)
	return one.Error
}

func refusal(status int, body []byte) wire.Refusal {
	d := parseDetail(body)
	r := wire.Refusal{Code: d.Status, Message: d.Message}
	words := strings.ToLower(d.Message)
	switch {
	case status == http.StatusForbidden && strings.Contains(words, "unregistered callers"):
		r.Kind = model.KindAuth // there was no key
	case status == http.StatusBadRequest && (strings.Contains(words, "maximum number of tokens") || strings.Contains(words, "token count")):
		r.Kind = model.KindContext
	case status == http.StatusBadRequest && d.Status == "FAILED_PRECONDITION":
		r.Kind = model.KindForbidden // not from this country, or not without billing
	}
	for _, info := range d.Details {
		if info.Reason != "" {
			r.Code = info.Reason
		}
		if strings.HasPrefix(info.Reason, "API_KEY_") { // such as INVALID, with status 400
			r.Kind = model.KindAuth
		}
		r.RetryAfter = max(r.RetryAfter, retryafter.Span(info.RetryDelay))
		for _, v := range info.Violations {
			if strings.Contains(v.QuotaID, "PerDay") { // nothing a retry could wait for
				r.Kind, r.Reset = model.KindQuota, nextDay(time.Now())
			}
		}
	}
	return r
}

// nextDay is when quotas of a day are there again: at midnight in California,
// as ai.google.dev/gemini-api/docs/rate-limits says. Zero where this host knows
// no time zones.
func nextDay(now time.Time) time.Time {
	there, err := time.LoadLocation("America/Los_Angeles")
	if err != nil {
		return time.Time{}
	}
	y, m, d := now.In(there).Date()
	return time.Date(y, m, d+1, 0, 0, 0, 0, there).UTC()
}
