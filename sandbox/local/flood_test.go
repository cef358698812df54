package local_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rein-sh/rein/sandbox"
)

// floods is a program that begins connections as fast as it can, to what is
// allowed and to what is not, asks for names that do not exist and sends
// datagrams to nobody. It writes down its rounds.
const floods = `
use Socket; use Fcntl; use IO::Handle;
my ($name, $port) = @ARGV; my $rounds = 0;
my @to = (pack_sockaddr_in($port, inet_aton($name)), pack_sockaddr_in(81, inet_aton($name)), pack_sockaddr_in(443, inet_aton("203.0.113.9")));
open(my $log, ">", "/tmp/rounds") or die; $log->autoflush(1);
while (1) {
	my @open;
	for my $i (1 .. 90) {
		socket(my $s, PF_INET, SOCK_STREAM, 0) or last;
		fcntl($s, F_SETFL, O_NONBLOCK);
		connect($s, $to[$i % 3]);
		push @open, $s;
	}
	socket(my $u, PF_INET, SOCK_DGRAM, 0) or next;
	send($u, "x" x 1000, 0, $to[2]) for 1 .. 20;
	send($u, "\0\1\1\0\0\1\0\0\0\0\0\0\1x" . chr(length($rounds)) . $rounds . "\0\0\1\0\1", 0, pack_sockaddr_in(53, inet_aton("8.8.8.8"))) for 1 .. 10;
	$rounds++; print {$log} "$rounds\n";
}`

// A sandbox that floods its network takes nothing from another one, whose
// connections are made meanwhile, nor from who owns it.
func TestFloodHarmsNobody(t *testing.T) {
	for _, runtime := range runtimes {
		t.Run(runtime, func(t *testing.T) {
			p, port := networked(t, runtime), echo(t)
			hostile, other := connected(t, p, to(port, "yes.test"), nil), connected(t, p, to(port, "yes.test"), nil)
			_, err := hostile.Run(t.Context(), sandbox.Command{Background: true, Timeout: time.Minute,
				Shell: fmt.Sprintf("perl -e '%s' yes.test %d", floods, port)})
			if err != nil {
				t.Fatal(err)
			}
			rounds := func() int64 {
				c, err := hostile.ReadFile(t.Context(), "/tmp/rounds", sandbox.ReadOptions{Max: 1 << 20})
				if err != nil {
					return 0 // not yet
				}
				return c.Size
			}
			eventually(t, "it floods", func() bool { return rounds() > 0 })
			before := rounds()
			r := run(t, other, fmt.Sprintf("for i in $(seq 20); do exec 3<> /dev/tcp/yes.test/%d && head -n 1 <&3 && exec 3>&- || exit 1; done", port))
			if !r.OK() || strings.Count(string(r.Stdout.Head), "hello\n") != 20 {
				t.Errorf("the other one: %+v %q %q", r.Outcome, r.Stdout.Head, r.Stderr.Head)
			}
			eventually(t, "it still floods", func() bool { return rounds() > before })
			eventually(t, "it is refused by its limits", func() bool {
				log, err := p.NetworkRecords(t.Context(), hostile.ID(), 0)
				if err != nil {
					t.Fatal(err)
				}
				for _, n := range log.Records {
					if strings.HasPrefix(n.Rule, "limit:") {
						return true
					}
				}
				return false
			})
			for _, s := range []*sandbox.Sandbox{hostile, other} {
				if err := s.Kill(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
