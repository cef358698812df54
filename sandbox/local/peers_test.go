package local_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rein-sh/rein/egress"
	"github.com/rein-sh/rein/egress/policy"
	"github.com/rein-sh/rein/sandbox"
)

// listens answers whoever connects, at every address and by an abstract name.
const listens = `
use Socket qw(:DEFAULT inet_pton); use IO::Select;
socket(my $ip, PF_INET6, SOCK_STREAM, 0) or die; bind($ip, pack_sockaddr_in6(9000, inet_pton(AF_INET6, "::"))) or die; listen($ip, 9) or die;
socket(my $local, PF_UNIX, SOCK_STREAM, 0) or die; bind($local, pack_sockaddr_un("\0rein-peer")) or die; listen($local, 9) or die;
open(my $up, ">", "/tmp/up"); print {$up} "up\n"; close($up);
my $all = IO::Select->new($ip, $local);
while (1) { for my $l ($all->can_read) { accept(my $c, $l) or next; syswrite($c, "i am the peer\n"); close($c); } }`

// reaches says where somebody answers.
const reaches = `
use Socket qw(:DEFAULT inet_pton);
alarm 15;
for my $a (@ARGV) {
	my ($s, $to);
	if ($a eq "abstract") { socket($s, PF_UNIX, SOCK_STREAM, 0) or die; $to = pack_sockaddr_un("\0rein-peer"); }
	elsif ($a =~ /:/) { socket($s, PF_INET6, SOCK_STREAM, 0) or die; $to = pack_sockaddr_in6(9000, inet_pton(AF_INET6, $a)); }
	else { socket($s, PF_INET, SOCK_STREAM, 0) or die; $to = pack_sockaddr_in(9000, inet_aton($a)); }
	connect($s, $to) and sysread($s, my $said, 100) or next;
	print "$a: $said";
}`

// Sandboxes do not meet: what one listens on, at the address that all have, at
// those beside it and by an abstract name, answers to itself alone, whatever
// ranges the other's policy opens.
func TestPeersApart(t *testing.T) {
	own := []string{"127.0.0.1", "::1", egress.Sandbox4, egress.Sandbox6, "abstract"}
	try := strings.Join(append(own, egress.Gateway4, egress.Gateway6, "10.88.0.3"), " ")
	for _, runtime := range runtimes {
		t.Run(runtime, func(t *testing.T) {
			p := networked(t, runtime)
			link := policy.Document{Rules: []policy.Rule{
				{CIDR: "10.88.0.0/24", Ports: []int{9000}, Proto: "tcp"}, {CIDR: "fd72:6569:6e00::/64", Ports: []int{9000}, Proto: "tcp"}}}
			peer, other := connected(t, p, link, nil), connected(t, p, link, nil)
			_, err := peer.Run(t.Context(), sandbox.Command{Background: true, Timeout: time.Minute, Shell: "perl -e '" + listens + "'"})
			if err != nil {
				t.Fatal(err)
			}
			wrote(t, peer, "/tmp/up", "up\n")
			answered := func(s *sandbox.Sandbox) string {
				return string(run(t, s, fmt.Sprintf("perl -e '%s' %s", reaches, try)).Stdout.Head)
			}
			want := ""
			for _, a := range own {
				want += a + ": i am the peer\n"
			}
			if got := answered(peer); got != want {
				t.Errorf("itself: %q, want %q", got, want)
			}
			if got := answered(other); got != "" {
				t.Errorf("another sandbox: %q", got)
			}
			for _, s := range []*sandbox.Sandbox{peer, other} {
				if err := s.Kill(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
