package leak

import (
	"bufio"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Cage is a sandbox that asks models: their hosts are reached by the gateway's door
// in plain HTTP, and by TLS that ends in the gateway.
type Cage struct {
	// Part names what is tried: see the constants.
	Part string `json:"part"`
	// Door is where the gateway takes requests to the hosts.
	Door netip.AddrPort `json:"door"`
	// Hosts are those of models, each with a placeholder of its own. What one host
	// shows is tried with the first.
	Hosts []ModelHost `json:"hosts"`
	// Model may be asked.
	Model string `json:"model"`
	// Foreign is somebody else's key.
	Foreign string `json:"foreign"`
	// Dead was another sandbox's placeholder, which is no more.
	Dead string `json:"dead,omitempty"`
	// Upstream is the port of the host's loopback where the requests go.
	Upstream uint16  `json:"upstream"`
	Search   *Search `json:"search,omitempty"`
}

// The parts.
const (
	PartWait   = "wait"   // one request, which the server answers late
	PartSearch = "search" // is the key inside?
	PartWays   = "ways"   // ways around the gateway
	PartSpent  = "spent"  // the budget comes to its end
	PartDead   = "dead"   // a placeholder of a sandbox that is no more
)

// Outcomes of requests to hosts of models: what the gateway says in the vendor's
// words.
const (
	Asked     Outcome = "the vendor's error: it asks for what it must not have"
	NoModel   Outcome = "the vendor's error: no such model"
	Spent     Outcome = "the vendor's error: the budget is used up"
	Closed    Outcome = "the vendor's error: nobody keeps the budget"
	modelPath Outcome = "models.path"
	modelHost Outcome = "models.host"
	leaked    Outcome = "vault.leak"
	foreign   Outcome = "vault.foreign"
)

// VendorField is a field of every answer of the server that stands for the vendors;
// WelcomeWord is in what it says to who has the key.
const (
	VendorField = "Lab-Vendor"
	WelcomeWord = "welcome-with-the-key"
)

// ProbeField is a field of every request of a way; OrderField has what the server
// is to do besides: "late", or "echo" and a form.
const (
	ProbeField = "X-Lab"
	OrderField = "X-Lab-Order"
)

// Marker is in every request of a way, so that the server can tell whose arrived.
func Marker(token, name string) string {
	sum := sha256.Sum256([]byte(token + " " + name))
	return "m" + hex.EncodeToString(sum[:12])
}

// caged are the ways of a part.
func (a Aim) caged() []way {
	var list []way
	add := func(group string, ways ...[]way) {
		for _, some := range ways {
			for _, w := range some {
				if group != "" {
					w.group = group
				}
				list = append(list, w)
			}
		}
	}
	c := a.Cage
	switch c.Part {
	case PartWait:
		q := a.first().inquiry("")
		q.fields = []string{OrderField, "late"}
		late := a.door("a request that is answered late", []Outcome{Welcome}, q)
		late[0].patient = c.Search.Patience
		add("wait", late)
	case PartSearch:
		add("", c.Search.searching())
		add("root", []way{becomeRoot()})
	case PartSpent:
		add("budget", a.spending())
	case PartDead:
		add("dead", a.dying())
	case PartWays:
		add("model", a.modelControls())
		add("echo", a.modelEchoes())
		add("another's key", a.modelForeign())
		add("placeholder", a.modelPlaceholders())
		add("call", a.modelCalls())
		add("body", a.modelBodies())
		add("host", a.modelHosts())
		add("smuggle", a.modelSmuggling())
		add("beside", a.modelBeside())
		add("", a.names(), a.web(), a.inside())
	}
	return list
}

// inquiry is a request to a host of models.
type inquiry struct {
	method string // POST unless set
	host   ModelHost
	path   string
	fields []string // names and values
	body   string
	bare   bool // without the placeholder where it belongs
}

// mark stands for a way's marker in what it sends.
const mark = "%MARK%"

// lane is how a host is reached.
type lane struct {
	name      string
	door, old bool // by the door; with HTTP/1.1
}

var lanes = []lane{{"the door", true, true}, {"TLS", false, false}, {"TLS, HTTP/1.1", false, true}}

// door is a way of one request by the door.
func (a Aim) door(name string, want []Outcome, r inquiry) []way {
	return []way{a.by(lanes[0], name, want, r)}
}

// every is a way of one request by each route.
func (a Aim) every(name string, want []Outcome, r inquiry) (list []way) {
	for _, route := range lanes {
		list = append(list, a.by(route, name, want, r))
	}
	return list
}

func (a Aim) by(way lane, name string, want []Outcome, r inquiry) way {
	if r.method == "" {
		r.method = http.MethodPost
	}
	return by("", name+", by "+way.name, fmt.Sprintf("%s https://%s%s by %s, %.60q %.120s", r.method, r.host.Name, short(r.path), way.name, r.fields, r.body), want, func(ctx context.Context, p *probe) seen {
		got, err := p.ask(ctx, way, r)
		if err != nil {
			return cut(err)
		}
		return judgeModel(got)
	})
}

// ask makes a request.
func (p *probe) ask(ctx context.Context, by lane, r inquiry) (answer, error) {
	var got answer
	marker := Marker(p.aim.Token, p.name)
	address := "https://" + r.host.Name + r.path
	if by.door {
		address = "http://" + p.aim.Cage.Door.String() + "/" + r.host.Name + r.path
	}
	var body io.Reader
	if r.body != "" {
		body = strings.NewReader(strings.ReplaceAll(r.body, mark, marker))
	}
	req, err := http.NewRequestWithContext(ctx, r.method, address, body)
	if err != nil {
		return got, err
	}
	if r.body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set(ProbeField, marker)
	if !r.bare {
		r.fields = append(r.host.carries(r.host.Placeholder), r.fields...)
	}
	for i := 0; i+1 < len(r.fields); i += 2 {
		if r.fields[i] == "Host" {
			req.Host = r.fields[i+1]
			continue
		}
		req.Header.Add(r.fields[i], r.fields[i+1])
	}
	t := &http.Transport{DisableKeepAlives: true, DisableCompression: true, Protocols: new(http.Protocols)}
	t.Protocols.SetHTTP1(by.old)
	t.Protocols.SetHTTP2(!by.old)
	defer t.CloseIdleConnections()
	if got.Response, err = t.RoundTrip(req); err != nil {
		return got, err
	}
	defer got.Body.Close()
	all, err := io.ReadAll(io.LimitReader(got.Body, 256<<10))
	got.body = string(all)
	return got, err
}

// judgeModel says what an answer of a host of models is.
func judgeModel(got answer) seen {
	words := fmt.Sprintf("%d: %s", got.StatusCode, firstLine(got.body))
	if got.Header.Get(VendorField) != "" {
		if got.StatusCode == http.StatusOK && strings.Contains(got.body, WelcomeWord) {
			return seen{outcome: Welcome, words: words}
		}
		return open("the vendor answered: %s", words)
	}
	for _, o := range []struct {
		says string
		Outcome
	}{{"rein: the budget of this run", Spent}, {"is none that this run may ask", NoModel}, {"rein: the model may not be asked", NoModel}, {"rein: nobody keeps the budget", Closed}, {"rein: the request may not go on", Asked}} {
		if got.StatusCode >= 400 && strings.Contains(got.body, o.says) {
			return seen{outcome: o.Outcome, words: words}
		}
	}
	s := judge(got.StatusCode, got.Header, got.body)
	switch {
	case s.outcome == Open && got.StatusCode >= 400 && got.StatusCode < 600: // of the gateway's server, before it has read a request
		return seen{outcome: BadRequest, words: words}
	case s.outcome == Open:
		return open("nobody knows who answered: %s", words)
	}
	return s
}

// raw is a way of words that need be no proper HTTP/1.1, by the door and by TLS.
// The last answer counts. Words that hold %HOST% are for both: the prefix of the
// path by the door takes its place.
func (a Aim) raw(name string, want []Outcome, host ModelHost, words string) (list []way) {
	for _, route := range []lane{lanes[0], lanes[2]} {
		prefix := ""
		if route.door {
			prefix = "/" + host.Name
		}
		said := strings.ReplaceAll(words, "%HOST%", prefix)
		list = append(list, by("", name+", by "+route.name, fmt.Sprintf("to %s: %.160q", host.Name, said), want, func(ctx context.Context, p *probe) seen {
			var c net.Conn
			var err error
			if route.door {
				c, err = dial(ctx, "tcp", p.aim.Cage.Door.String())
			} else {
				var t *tls.Conn
				if t, err = p.connect(ctx, host.Name+":443", host.Name, "http/1.1"); err == nil {
					c = t
				}
			}
			if err != nil {
				return refused(err)
			}
			defer c.Close()
			return p.speakModel(c, measured(strings.ReplaceAll(said, mark, Marker(p.aim.Token, p.name))))
		}))
	}
	return list
}

// inLength stands for the length of all that follows a head.
const inLength = "%LENGTH%"

func measured(words string) string {
	head, body, _ := strings.Cut(words, "\r\n\r\n")
	return strings.ReplaceAll(head, inLength, strconv.Itoa(len(body))) + "\r\n\r\n" + body
}

// speakModel says words and reads all that is answered.
func (p *probe) speakModel(c net.Conn, words string) seen {
	if _, err := io.WriteString(c, words); err != nil {
		return refused(err)
	}
	in := bufio.NewReader(c)
	last := seen{outcome: Silent}
	for n := range 4 {
		r, err := http.ReadResponse(in, nil)
		if err != nil {
			if n == 0 {
				return refused(err)
			}
			return last
		}
		body, _ := io.ReadAll(io.LimitReader(r.Body, 64<<10)) // what there is of it is shown
		r.Body.Close()
		last = judgeModel(answer{Response: r, body: string(body)})
		_ = c.SetReadDeadline(time.Now().Add(further))
	}
	return last
}

// becomeRoot asks for the id of root, unless this is root already.
func becomeRoot() way {
	return by("", "root inside", "setuid(0), on a thread", []Outcome{Forbidden}, func(context.Context, *probe) seen {
		if os.Geteuid() == 0 {
			return notTried("this is root already: the search was root's")
		}
		return thread(func() seen {
			_, _, errno := syscall.RawSyscall(syscall.SYS_SETUID, 0, 0, 0)
			if errno != 0 {
				return refused(os.NewSyscallError("setuid", errno))
			}
			return open("it is root")
		})
	})
}
