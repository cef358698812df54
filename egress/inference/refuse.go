package inference

import "net/http"

// Refuse is the vendor's own answer that has its clients end by themselves, and
// not try again.
func Refuse(api API, s Stop, stream bool) (status int, header http.Header, body []byte) {
	return http.StatusForbidden, http.Header{"Content-Type": {"application/json"}}, []byte(`{"error":{"message":"rein: refused"}}`)
}
