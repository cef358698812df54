package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/rein-sh/rein/cmd/rein/config"
	"github.com/rein-sh/rein/price"
)

// priced is m with what it costs, as far as that is known: its own price, that
// of prices: in the configuration, or the published one of its vendor's own
// server. Another server's prices are its own.
func priced(c config.Config, m config.Model) (config.Model, error) {
	if m.Price.Known {
		m.Price = sourced(m.Price, "models: in the configuration")
		return m, nil
	}
	if m.Vendor == "script" {
		m.Price = config.Price{Known: true, Source: "a script costs nothing"}
		return m, nil
	}
	if p, ok := c.Prices[modelName(m)]; ok {
		m.Price = sourced(p, "prices: in the configuration")
		return m, nil
	}
	own := m
	own.BaseURL = ""
	if m.BaseURL != "" && strings.TrimSuffix(m.BaseURL, "/") != addressOf(own) {
		return m, nil
	}
	table, err := price.Published()
	if err != nil {
		return m, err
	}
	if row, ok := table.Find(strings.TrimSuffix(m.Vendor, "-responses"), m.Model, time.Now()); ok {
		m.Price = config.Price{Known: true, Price: row.Price,
			Source: fmt.Sprintf("published, as %s said on %s", row.Source, row.Read.Format(time.DateOnly))}
	}
	return m, nil
}

// sourced is p with where it is from.
func sourced(p config.Price, source string) config.Price {
	p.Source = source
	return p
}

// priceSource says where the prices of a run are from.
func priceSource(m, fallback config.Model) string {
	text := func(m config.Model) string {
		if m.Price.Source == "" {
			return ""
		}
		return m.Price.String() + ", " + m.Price.Source
	}
	s := text(m)
	if f := text(fallback); f != "" {
		s += "; " + modelName(fallback) + ": " + f
	}
	return s
}
