package vault

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// usual are the fields that carry credentials somewhere. A field of another name
// that a server takes one from can be named by a binding.
var usual = []string{
	"Authorization", "Proxy-Authorization", "X-Api-Key", "Api-Key", "Apikey", "X-Auth-Token", "X-Access-Token", "X-Auth-Key",
	"Private-Token", "Job-Token", "Deploy-Token", "X-Goog-Api-Key", "X-Amz-Security-Token", "X-Vault-Token", "X-Github-Token",
	"X-Functions-Key", "Ocp-Apim-Subscription-Key", "X-Figma-Token", "Dd-Api-Key", "X-Consul-Token", "Circle-Token",
	"X-Authorization", "X-Auth", "Auth-Token", "Access-Token", "X-Token", "X-Api-Token", "X-Api-Secret", "X-Access-Key", "X-Session-Token",
	"X-Gitlab-Token", "X-Nuget-Apikey", "X-Jfrog-Art-Api", "X-Shopify-Access-Token", "Xi-Api-Key", "X-Rapidapi-Key", "X-Subscription-Token",
	"X-Algolia-Api-Key", "Dd-Application-Key", "X-Sentry-Auth", "X-Ms-Authorization-Auxiliary", "X-Goog-Iam-Authorization-Token", "Apca-Api-Secret-Key",
	// Whose account a request is for, besides its key.
	"Openai-Organization", "Openai-Project", "X-Goog-User-Project", "Anthropic-Organization-Id", "Anthropic-Workspace-Id",
}

// usualParameters are those of queries, in lower case.
var usualParameters = []string{
	"access_token", "api_key", "apikey", "api-key", "key", "token", "auth_token", "private_token", "job_token", "oauth_token",
	"x-amz-credential", "x-amz-signature", "x-amz-security-token", "awsaccesskeyid", "signature", "sig", "x-goog-signature", "x-goog-credential",
	"api_secret", "apisecret", "app_key", "appkey", "application_key", "sentry_key", "id_token", "refresh_token", "client_assertion", "user_token", "personal_token",
	"x-oss-credential", "x-oss-signature", "x-oss-security-token", "x-tos-credential", "x-tos-signature", "x-tos-security-token", "q-ak", "q-signature", "googleaccessid",
	"auth", "authorization", "api_token", "apitoken", "x-api-key", "subscription-key", "client_secret", "session_token", "bearer_token", "jwt", "ossaccesskeyid",
}

// elsewhere are the fields by which some servers and those before them take a
// request for one to another host than Host says.
var elsewhere = []string{"Forwarded", "X-Forwarded-Host", "X-Forwarded-Server", "X-Host", "X-Original-Host", "X-Http-Host-Override"}

// inProtocol are what names of subprotocols of WebSocket have that are
// credentials: browsers can send no others.
var inProtocol = []string{"bearer", "authorization", "api-key", "apikey", "api_key", "token"}

// plainField is the name of a field as servers may read it that tell only
// letters and digits apart (RFC 3875 4.1.18).
func plainField(name string) string {
	return http.CanonicalHeaderKey(strings.Map(func(r rune) rune {
		if r >= 0x80 || kindOf(byte(r)) == 0 {
			return '-'
		}
		return r
	}, name))
}

// plainParameter is the name of a parameter as servers may read it: PHP's are the
// freest. It ends at a bracket or a NUL.
func plainParameter(name string) string {
	if end := strings.IndexAny(name, "[\x00"); end > 0 {
		name = name[:end]
	}
	return strings.NewReplacer(".", "_", " ", "_").Replace(strings.ToLower(strings.TrimSpace(name)))
}

// IsCredential reports whether a field is one in which credentials stand, by its
// name: one of the usual, or one that ends as such names do.
func IsCredential(name string) bool {
	plain := plainField(name)
	if plain == "Cookie" || slices.Contains(usual, plain) {
		return true
	}
	last := plain[strings.LastIndexByte(plain, '-')+1:]
	return slices.Contains([]string{"Auth", "Authorization", "Token", "Key", "Apikey", "Secret", "Password", "Otp", "Credential", "Credentials", "Jwt"}, last)
}

// likely are the ends of names of fields that hold credentials and nothing else.
var likely = []string{"-Auth", "-Authorization", "-Apikey", "-Api-Key", "-Api-Token", "-Api-Secret", "-Auth-Token", "-Access-Token", "-Secret", "-Secret-Key",
	"-Password", "-Credential", "-Credentials", "-Jwt"}

// spellings judges fields that are known to some servers by another name, or that
// lead them to another host.
func (q *request) spellings(slots []string) error {
	known := map[string]bool{}
	for _, slot := range slots {
		known[plainField(slot)] = true
	}
	for name := range q.header {
		plain := plainField(name)
		if slices.Contains(elsewhere, plain) {
			q.drop(name)
		}
		if known[plain] && !slices.Contains(slots, name) {
			return refuse(RuleForeign, "the field %s is one that some servers take for %s", clip(name), plain)
		}
	}
	for _, value := range q.header["Sec-Websocket-Protocol"] {
		lower := strings.ToLower(value)
		if slices.ContainsFunc(inProtocol, func(s string) bool { return strings.Contains(lower, s) }) && !q.substituted(value, InHeader) {
			return refuse(RuleForeign, "the subprotocol of a WebSocket holds a credential, and no secret is bound to it for %s", q.to)
		}
	}
	return nil
}

// mayHold reports whether a field can be made one that holds a secret: those that
// frame a request or lead it somewhere cannot.
func mayHold(name string) bool {
	switch name {
	case "", "Host", "Cookie", "Connection", "Content-Length", "Transfer-Encoding", "Trailer", "Te", "Upgrade", "Expect", "Content-Type",
		"Content-Encoding", "Proxy-Authorization":
		return false
	}
	return !strings.ContainsFunc(name, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("!#$%&'*+-.^_`|~", r))
	})
}

// slots are the fields of requests to the target in which credentials stand.
func (q *request) slots() []string {
	list := slices.Clone(usual)
	for _, b := range q.vault.hosts[q.to] {
		if b.As == Header && !slices.Contains(list, b.Name) {
			list = append(list, b.Name)
		}
	}
	for name := range q.header {
		plain := plainField(name)
		if !slices.Contains(list, name) && slices.ContainsFunc(likely, func(end string) bool { return strings.HasSuffix(plain, end) }) {
			list = append(list, name)
		}
	}
	return list
}

// unescape undoes percent-encoding, and leaves what is none: a malformed escape
// somewhere hides nothing elsewhere.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if c, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil {
				b.WriteByte(byte(c))
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// Take takes what stands where credentials usually do out of a request to where no
// secret is bound, and returns what was named: nobody's account is reached.
func Take(out *http.Request) (names []string) {
	for name := range out.Header {
		if IsCredential(name) && name != "Idempotency-Key" { // which is a request's, and nobody's
			delete(out.Header, name)
			names = append(names, name)
		}
	}
	parts := strings.Split(out.URL.RawQuery, "&")
	keep := slices.DeleteFunc(slices.Clone(parts), func(part string) bool {
		for one := range strings.SplitSeq(part, ";") { // some servers cut it there
			name, _, _ := strings.Cut(one, "=")
			if plain, err := url.QueryUnescape(name); err == nil {
				name = plain
			}
			if slices.Contains(usualParameters, plainParameter(name)) {
				return true
			}
		}
		return false
	})
	if len(keep) < len(parts) {
		out.URL.RawQuery = strings.Join(keep, "&")
		names = append(names, "the query")
	}
	return names
}
