package egress

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/miekg/dns"
)

const (
	defaultResolvConf = "/etc/resolv.conf"
	defaultHosts      = "/etc/hosts"
	maxSystemFile     = 4 << 20
	maxServers        = 8
)

// newResolver reads the system's files.
func newResolver(o HostOptions) (*resolver, error) {
	conf, err := readSystemFile(cmp.Or(o.ResolvConf, defaultResolvConf))
	if err != nil {
		return nil, err
	}
	hosts, err := readSystemFile(cmp.Or(o.Hosts, defaultHosts))
	if err != nil {
		return nil, err
	}
	r := &resolver{hosts: parseHosts(hosts), exchange: exchange,
		slots: make(chan struct{}, maxLookups), services: make(chan struct{}, maxHTTPS), cache: map[string]*cached{}}
	if err := r.configure(conf); err != nil {
		return nil, err
	}
	if len(o.Resolvers) > 0 {
		r.servers = o.Resolvers
	}
	for _, s := range r.servers {
		if !s.IsValid() || s.Port() == 0 {
			return nil, fmt.Errorf("resolver %s is not an address and a port", s)
		}
	}
	return r, nil
}

// readSystemFile reads a file that may be missing.
func readSystemFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxSystemFile+1))
	if err == nil && len(b) > maxSystemFile {
		err = fmt.Errorf("%s is larger than %d bytes", name, maxSystemFile)
	}
	return b, err
}

// configure reads resolv.conf. Its search list is of no use: names are
// complete.
func (r *resolver) configure(conf []byte) error {
	c, err := dns.ClientConfigFromReader(bytes.NewReader(conf))
	if err != nil {
		return err
	}
	r.try = min(time.Duration(c.Timeout)*time.Second, maxTry)
	r.attempts = min(c.Attempts, maxAttempts)
	for _, s := range c.Servers {
		if a, err := netip.ParseAddr(s); err == nil && len(r.servers) < maxServers {
			r.servers = append(r.servers, netip.AddrPortFrom(a, 53))
		}
	}
	if len(r.servers) == 0 { // resolv.conf(5)
		r.servers = []netip.AddrPort{netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 53)}
	}
	return nil
}

// parseHosts reads a hosts file: lines of an address and its names.
func parseHosts(b []byte) map[string][]netip.Addr {
	hosts := map[string][]netip.Addr{}
	lines := bufio.NewScanner(bytes.NewReader(b))
	lines.Buffer(nil, maxSystemFile+1)
	for lines.Scan() {
		line, _, _ := strings.Cut(lines.Text(), "#")
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		addr, err := netip.ParseAddr(fields[0])
		if err != nil {
			continue
		}
		for _, name := range fields[1:] {
			name = strings.ToLower(strings.TrimSuffix(name, "."))
			if len(hosts[name]) < maxAddresses {
				hosts[name] = append(hosts[name], addr.Unmap())
			}
		}
	}
	return hosts
}
