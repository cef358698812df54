package sandboxtest

import (
	"fmt"
	"strings"
	"time"

	"github.com/rein-sh/rein/sandbox"
)

// networkCases are about a sandbox that may reach nothing. The addresses are
// those reserved for documentation (RFC 5737, RFC 3849), so that a sandbox
// that is not closed reaches nobody either.
func networkCases() []Case {
	deny := caps(sandbox.CapExec, sandbox.CapProcesses, sandbox.CapNetworkDeny)
	record := append(caps(sandbox.CapNetworkRecord), deny...)
	refuse := append(caps(sandbox.CapNetworkRefuse), deny...)
	return []Case{
		{Name: "network/nothing is reached", Needs: deny, Programs: []string{"bash"}, run: nothingReached},
		{Name: "network/TCP reset at once", Needs: refuse, Programs: []string{"bash"}, run: tcpRefused},
		{Name: "network/TCP over IPv6 refused at once", Needs: refuse, Programs: []string{"bash"}, run: tcp6Refused},
		{Name: "network/UDP unreachable at once", Needs: refuse, Programs: []string{"perl"}, run: udpRefused},
		{Name: "network/DNS refused at once", Needs: refuse, Programs: []string{"getent"}, run: dnsRefused},
		{Name: "network/host not reachable", Needs: deny, Programs: []string{"bash"}, run: hostRefused},
		{Name: "network/loopback works", Needs: deny, Programs: []string{"perl"}, run: loopback},
		{Name: "network/attempts recorded", Needs: record, Programs: []string{"bash"}, run: recorded},
		{Name: "network/names recorded", Needs: record, Programs: []string{"getent"}, run: namesRecorded},
		{Name: "network/refusals folded", Needs: record, Programs: []string{"bash"}, fresh: true, run: folded},
	}
}

// dial is a shell text that exits 0 if a TCP connection is made.
func dial(host string, port int) string {
	return fmt.Sprintf("exec 3<> /dev/tcp/%s/%d", host, port)
}

// nothingReached tries for a moment each what a sandbox must not reach,
// whether it is refused or left without an answer.
func nothingReached(e *env) {
	for _, shell := range []string{
		dial("192.0.2.1", 80), dial("192.0.2.1", 65000), dial("2001:db8::1", 443), dial("203.0.113.9", 853),
		"getent ahosts refused.example.com",
	} {
		if r := e.command(sandbox.Command{Shell: shell, Timeout: 2 * time.Second}); r.OK() {
			e.Errorf("%s: connected", shell)
		}
	}
}

func tcpRefused(e *env) {
	for _, port := range []int{80, 443, 22, 65000} {
		e.within(2*time.Second, func() {
			r := e.run(dial("192.0.2.1", port))
			if r.OK() || !strings.Contains(stderr(r), "refused") {
				e.Errorf("port %d: %s", port, describe(r))
			}
		})
	}
}

func tcp6Refused(e *env) {
	e.within(2*time.Second, func() {
		if r := e.run(dial("2001:db8::1", 443)); r.OK() {
			e.Errorf("connected: %s", describe(r))
		}
	})
}

func udpRefused(e *env) {
	e.within(3*time.Second, func() {
		r := e.run(`perl -MSocket -e '
			socket(S, PF_INET, SOCK_DGRAM, 0) or die $!;
			connect(S, sockaddr_in(5000, inet_aton("192.0.2.1"))) or do { print "refused\n"; exit };
			send(S, "x", 0) or do { print "refused\n"; exit };
			# Waited for by select: in gVisor an error does not end a recv that waits.
			vec(my $ready = "", fileno(S), 1) = 1;
			select($ready, undef, undef, 2) or do { print "silence\n"; exit };
			print defined recv(S, $b, 1, 0) ? "answer\n" : "refused\n"'`)
		e.equal("a datagram's fate", stdout(r), "refused\n")
	})
}

func dnsRefused(e *env) {
	e.within(4*time.Second, func() {
		if r := e.run("getent ahosts refused.example.com"); r.OK() {
			e.Errorf("a name was resolved: %s", describe(r))
		}
	})
}

// hostRefused tries what a host often has: its loopback as gateways show it,
// and the addresses of clouds' metadata services.
func hostRefused(e *env) {
	for _, target := range []string{"169.254.169.254", "10.88.0.1", "host.docker.internal"} {
		for _, port := range []int{80, 22} {
			e.within(4*time.Second, func() {
				if r := e.command(sandbox.Command{Shell: dial(target, port), Timeout: 2 * time.Second}); r.OK() {
					e.Errorf("connected to %s:%d", target, port)
				}
			})
		}
	}
}

func loopback(e *env) {
	r := e.run(`perl -MSocket -e '
		socket(L, PF_INET, SOCK_STREAM, 0) or die $!;
		bind(L, sockaddr_in(0, INADDR_LOOPBACK)) or die $!;
		listen(L, 1) or die $!;
		my ($port) = sockaddr_in(getsockname(L));
		if (!fork) { socket(C, PF_INET, SOCK_STREAM, 0); connect(C, sockaddr_in($port, INADDR_LOOPBACK)) or die $!; syswrite(C, "hello\n"); exit }
		accept(A, L) or die $!;
		print scalar <A>'`)
	e.equal("said over loopback", stdout(r), "hello\n")
}

// tried finds the record of a target in a result.
func (e *env) tried(r sandbox.Result, what string, match func(sandbox.NetworkRecord) bool) sandbox.NetworkRecord {
	e.Helper()
	for _, n := range r.Network {
		if match(n) {
			if n.Verdict != "deny" || n.Reason == "" || n.Count < 1 || n.Seq == 0 || n.Time.IsZero() {
				e.Errorf("the record of %s is %+v", what, n)
			}
			return n
		}
	}
	e.Errorf("no record of %s in %+v", what, r.Network)
	return sandbox.NetworkRecord{}
}

func recorded(e *env) {
	r := e.run(dial("198.51.100.7", 8443))
	e.tried(r, "the connection", func(n sandbox.NetworkRecord) bool {
		return n.Proto == "tcp" && n.Address == "198.51.100.7" && n.Port == 8443
	})
	r = e.run("true")
	for _, n := range r.Network { // other cases share the sandbox
		if n.Address == "198.51.100.7" {
			e.Error("an attempt is reported with a later call too")
		}
	}
	log, err := e.suite.provider.(sandbox.NetworkRecorder).NetworkRecords(e.Context(), e.ID(), 0)
	e.must(err)
	if log.Head == "" || log.Last == 0 || len(log.Records) == 0 {
		e.Errorf("the network record is %+v", log)
	}
}

func namesRecorded(e *env) {
	r := e.run("getent ahosts recorded.example.org")
	e.tried(r, "the name", func(n sandbox.NetworkRecord) bool {
		return n.Proto == "dns" && strings.TrimSuffix(n.Name, ".") == "recorded.example.org"
	})
}

func folded(e *env) {
	e.command(sandbox.Command{Timeout: time.Minute,
		Shell: "for i in $(seq 200); do (" + dial("203.0.113.9", 25) + ") 2> /dev/null; done; true"})
	records, attempts := 0, 0
	// A record that folds is written when its minute is over.
	e.eventually(80*time.Second, "all 200 attempts are counted", func() bool {
		log, err := e.suite.provider.(sandbox.NetworkRecorder).NetworkRecords(e.Context(), e.ID(), 0)
		e.must(err)
		records, attempts = 0, 0
		for _, n := range log.Records {
			if n.Address == "203.0.113.9" {
				records++
				attempts += n.Count
			}
		}
		return attempts >= 200
	})
	e.equal("attempts counted", attempts, 200)
	if records > 45 { // 20 a minute and one that folds, over two minutes at most
		e.Errorf("200 attempts made %d records", records)
	}
}
