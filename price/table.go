package price

import (
	_ "embed"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Row is a model's price, with where it was read.
type Row struct {
	Vendor, Model string
	Price         Price
	// From is the first day of the price; zero: always.
	From time.Time
	// Read is the day on which Source said so.
	Read   time.Time
	Source string
}

// Table is a list of prices. It does not change, and may be used concurrently.
type Table struct{ rows []Row }

//go:embed prices.csv
var published string

// Published reads the table that this package carries: what OpenAI, Anthropic
// and Google asked on the days it names.
func Published() (*Table, error) { return Read(strings.NewReader(published)) }

// Rows are all prices, in the table's order.
func (t *Table) Rows() []Row { return slices.Clone(t.rows) }

// snapshot is how vendors name a version of a model: -20251001 or -2026-03-05.
var snapshot = regexp.MustCompile(`-(20\d{6}|20\d\d-\d\d-\d\d)$`)

// Find returns the price in force at that time of a vendor's model, or of the
// model it is a dated version of.
func (t *Table) Find(vendor, model string, at time.Time) (Row, bool) {
	for _, name := range []string{model, snapshot.ReplaceAllString(model, "")} {
		var found *Row
		for i := range t.rows {
			r := &t.rows[i]
			if r.Vendor == vendor && r.Model == name && !r.From.After(at) && (found == nil || r.From.After(found.From)) {
				found = r
			}
		}
		if found != nil {
			return *found, true
		}
	}
	return Row{}, false
}

// Columns of a table, in order.
var columns = []string{"vendor", "model", "input", "cached", "write", "output", "over",
	"long_input", "long_cached", "long_write", "long_output", "from", "read", "source"}

// maxRows bounds a table that is read.
const maxRows = 10_000

// Read reads a table: comma-separated lines with the columns of prices.csv,
// lines that begin with # apart. An error names the line.
func Read(r io.Reader) (*Table, error) {
	c := csv.NewReader(r)
	c.Comment, c.FieldsPerRecord = '#', len(columns)
	head, err := c.Read()
	if err != nil {
		return nil, fmt.Errorf("prices: %w", err)
	}
	if !slices.Equal(head, columns) {
		return nil, fmt.Errorf("prices: line 1: the columns are %s", strings.Join(columns, ","))
	}
	t := &Table{}
	for {
		fields, err := c.Read()
		if errors.Is(err, io.EOF) {
			return t, nil
		}
		if err != nil {
			return nil, fmt.Errorf("prices: %w", err)
		}
		line, _ := c.FieldPos(0)
		row, err := parse(fields)
		if err != nil {
			return nil, fmt.Errorf("prices: line %d: %w", line, err)
		}
		if t.has(row) {
			return nil, fmt.Errorf("prices: line %d: %s/%s has that price already", line, row.Vendor, row.Model)
		}
		if len(t.rows) == maxRows {
			return nil, fmt.Errorf("prices: line %d: more than %d rows", line, maxRows)
		}
		t.rows = append(t.rows, row)
	}
}

func (t *Table) has(row Row) bool {
	return slices.ContainsFunc(t.rows, func(r Row) bool {
		return r.Vendor == row.Vendor && r.Model == row.Model && r.From.Equal(row.From)
	})
}

// parse reads the fields of a row.
func parse(f []string) (Row, error) {
	p := parser{fields: f}
	r := Row{Vendor: p.word(0), Model: p.word(1), From: p.day(11, false), Read: p.day(12, true), Source: f[13]}
	r.Price = Price{Input: p.rate(2, true), Cached: p.rate(3, false), CacheWrite: p.rate(4, false), Output: p.rate(5, true)}
	// OpenAI's usage has no count of what was written to its cache.
	r.Price.WritesUntold = r.Vendor == "openai" && r.Price.CacheWrite > 0
	long := Price{Input: p.rate(7, false), Cached: p.rate(8, false), CacheWrite: p.rate(9, false), Output: p.rate(10, false)}
	if f[6] != "" || long != (Price{}) {
		n, err := strconv.ParseInt(f[6], 10, 64)
		if err != nil || n <= 0 || long.Input == 0 || long.Output == 0 {
			p.fail("over, long_input and long_output go together")
		}
		if long.Input < r.Price.Input || long.Output < r.Price.Output {
			p.fail("a long request costs no less than a short one")
		}
		r.Price.Over, r.Price.Long = n, &long
	}
	if u, err := url.Parse(r.Source); err != nil || u.Scheme != "https" || u.Host == "" {
		p.fail(fmt.Sprintf("source: %q is no https address", r.Source))
	}
	return r, p.err
}

// parser reads fields and keeps the first fault.
type parser struct {
	fields []string
	err    error
}

func (p *parser) fail(reason string) {
	if p.err == nil {
		p.err = errors.New(reason)
	}
}

func (p *parser) word(i int) string {
	if p.fields[i] == "" || strings.TrimSpace(p.fields[i]) != p.fields[i] {
		p.fail(fmt.Sprintf("%s: %q is no name", columns[i], p.fields[i]))
	}
	return p.fields[i]
}

func (p *parser) rate(i int, required bool) float64 {
	if p.fields[i] == "" && !required {
		return 0
	}
	n, err := strconv.ParseFloat(p.fields[i], 64)
	if err != nil || !(n >= 0 && n <= MaxRate) {
		p.fail(fmt.Sprintf("%s: %q is no price", columns[i], p.fields[i]))
	}
	return n
}

func (p *parser) day(i int, required bool) time.Time {
	if p.fields[i] == "" && !required {
		return time.Time{}
	}
	d, err := time.Parse(time.DateOnly, p.fields[i])
	if err != nil {
		p.fail(fmt.Sprintf("%s: %q is no day, such as 2026-11-30", columns[i], p.fields[i]))
	}
	return d
}
