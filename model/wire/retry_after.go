package wire

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// maxRetryAfter bounds what a server may ask for; more is as good as never.
const maxRetryAfter = 24 * time.Hour

// retryAfter reads retry-after-ms (OpenAI and Azure), else Retry-After in
// seconds or as an HTTP date.
func retryAfter(h http.Header, now time.Time) time.Duration {
	for _, u := range []struct {
		name string
		unit time.Duration
	}{{"Retry-After-Ms", time.Millisecond}, {"Retry-After", time.Second}} {
		v := strings.TrimSpace(h.Get(u.name))
		n, err := strconv.ParseFloat(v, 64)
		if err != nil || math.IsNaN(n) {
			continue
		}
		return time.Duration(min(max(n*float64(u.unit), 0), float64(maxRetryAfter)))
	}
	at, err := http.ParseTime(h.Get("Retry-After"))
	if err != nil {
		return 0
	}
	return min(max(at.Sub(now), 0), maxRetryAfter)
}
