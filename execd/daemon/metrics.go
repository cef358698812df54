package daemon

import (
	"bytes"
	"encoding/json"
	"net/http"
	"runtime"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rein-sh/rein/execd"
)

// Sampling of /metrics.
const (
	sampleSpan = 200 * time.Millisecond // the shortest span that a percentage is taken over
	sampleAge  = 30 * time.Second       // the longest
	watchEvery = 2 * time.Second
	clockTicks = 100 // of /proc times a second: USER_HZ, the same on every Linux that Go runs on
)

// meter measures what the sandbox uses: the processes that /proc shows, which
// are its own and never the host's. Memory is what processes hold for
// themselves; files in memory file systems are not counted.
type meter struct {
	mu   sync.Mutex
	at   time.Time
	used time.Duration // CPU time until then
}

// usage is the CPU time and memory of all processes. Time of processes that
// have ended is in their parents' account.
func usage() (cpu time.Duration, memory int64, err error) {
	list, err := processes()
	if err != nil {
		return 0, 0, err
	}
	buf := make([]byte, 1024)
	page := int64(unix.Getpagesize())
	var ticks int64
	for _, p := range list {
		dir := "/proc/" + strconv.Itoa(p.pid)
		if b, err := readInto(dir+"/stat", buf); err == nil {
			ticks += cpuTicks(b)
		}
		if b, err := readInto(dir+"/statm", buf); err == nil {
			memory += ownPages(b) * page
		}
	}
	return time.Duration(ticks) * time.Second / clockTicks, memory, nil
}

// cpuTicks adds utime, stime, cutime and cstime of /proc/N/stat.
func cpuTicks(stat []byte) int64 {
	end := bytes.LastIndexByte(stat, ')')
	if end < 0 {
		return 0
	}
	f := bytes.Fields(stat[end+1:])
	var sum int64
	for i := 11; i < 15 && i < len(f); i++ {
		if n, err := strconv.ParseInt(string(f[i]), 10, 64); err == nil {
			sum += n
		}
	}
	return sum
}

// ownPages is resident less shared of /proc/N/statm.
func ownPages(statm []byte) int64 {
	f := bytes.Fields(statm)
	if len(f) < 3 {
		return 0
	}
	resident, err1 := strconv.ParseInt(string(f[1]), 10, 64)
	shared, err2 := strconv.ParseInt(string(f[2]), 10, 64)
	if err1 != nil || err2 != nil {
		return 0
	}
	return max(0, resident-shared)
}

// read returns the metrics now. The CPU's share is of the time since the last
// reading, or of sampleSpan when there is none of use.
func (m *meter) read(s *Server) (execd.Metrics, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	cpu, memory, err := usage()
	if err != nil {
		return execd.Metrics{}, err
	}
	if age := time.Since(m.at); age < sampleSpan || age > sampleAge {
		m.at, m.used = time.Now(), cpu
		time.Sleep(sampleSpan)
		if cpu, memory, err = usage(); err != nil {
			return execd.Metrics{}, err
		}
	}
	now := time.Now()
	cpus := s.cfg.CPULimit
	if cpus <= 0 {
		cpus = float64(runtime.NumCPU())
	}
	const mib = 1 << 20
	r := execd.Metrics{CPUCount: cpus, MemTotalMiB: float64(s.memoryTotal()) / mib, Timestamp: now.UnixMilli()}
	r.CPUUsedPct = min(100, max(0, 100*(cpu-m.used).Seconds()/now.Sub(m.at).Seconds()/cpus))
	r.MemUsedMiB = min(float64(memory)/mib, r.MemTotalMiB)
	m.at, m.used = now, cpu
	return r, nil
}

// memoryTotal is the limit, or what the machine has.
func (s *Server) memoryTotal() int64 {
	if s.cfg.MemoryLimit > 0 {
		return s.cfg.MemoryLimit
	}
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return 0
	}
	return int64(info.Totalram) * int64(info.Unit)
}

// metrics answers GET /metrics.
func (s *Server) metrics(w http.ResponseWriter, _ *http.Request) {
	m, err := s.meter.read(s)
	if err != nil {
		fail(w, err)
		return
	}
	reply(w, m)
}

// watchMetrics answers GET /metrics/watch: one object a line, every two
// seconds, until the client leaves or the server closes.
func (s *Server) watchMetrics(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache")
	ctl := http.NewResponseController(w)
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		m, err := s.meter.read(s)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		b, err := json.Marshal(m)
		if err != nil {
			panic(err) // numbers
		}
		ctl.SetWriteDeadline(time.Now().Add(s.cfg.StallLimit))
		if _, err := w.Write(append(b, '\n')); err != nil || ctl.Flush() != nil {
			return
		}
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return
		case <-s.closing:
			return
		}
	}
}
