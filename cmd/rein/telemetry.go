package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rein-sh/rein/cmd/rein/config"
	"github.com/rein-sh/rein/secret"
	"github.com/rein-sh/rein/telemetry"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
)

// Bounds of what telemetry may take: a collector that is slow or gone delays
// the end of rein by no more than sendTimeout.
const (
	sendTimeout  = 3 * time.Second
	sendEvery    = 2 * time.Second
	maxAttribute = 64 << 10 // bytes of one value
)

// collector is where runs are told to. A nil collector is none.
type collector struct {
	recorder *telemetry.Recorder
	traces   *trace.TracerProvider
	metrics  *metric.MeterProvider
	where    string

	mu     sync.Mutex
	failed error // the first failure
}

// openCollector begins to tell the collector that the configuration or the
// environment names, if one does. Nothing is connected to yet.
func (a *app) openCollector(ctx context.Context, c config.Telemetry) (*collector, error) {
	where := cmp.Or(c.Endpoint, a.env.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), a.env.get("OTEL_EXPORTER_OTLP_ENDPOINT"))
	if where == "" || strings.EqualFold(a.env.get("OTEL_SDK_DISABLED"), "true") {
		return nil, nil
	}
	protocol := cmp.Or(c.Protocol, a.env.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"), a.env.get("OTEL_EXPORTER_OTLP_PROTOCOL"), config.ProtocolHTTP)
	if protocol != config.ProtocolHTTP {
		fmt.Fprintf(a.err, "rein: no telemetry is sent: the protocol is %s, and there is only %s\n", protocol, config.ProtocolHTTP)
		return nil, nil
	}
	col := &collector{where: where}
	headers := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(c.Headers)) {
		value, err := a.readSecret(ctx, "the telemetry header "+name, "telemetry: headers: "+name+":", c.Headers[name])
		if err != nil {
			return nil, err
		}
		headers[name] = value.Reveal()
		a.providerKeys = append(a.providerKeys, value) // to be masked
	}
	if err := col.open(ctx, c, headers); err != nil {
		return nil, fmt.Errorf("telemetry to %s: %w", where, err)
	}
	return col, nil
}

// open makes the exporters. What the configuration leaves out they take from
// the standard variables OTEL_EXPORTER_OTLP_*.
func (c *collector) open(ctx context.Context, conf config.Telemetry, headers map[string]string) error {
	spans := []otlptracehttp.Option{otlptracehttp.WithTimeout(sendTimeout), otlptracehttp.WithRetry(otlptracehttp.RetryConfig{})}
	numbers := []otlpmetrichttp.Option{otlpmetrichttp.WithTimeout(sendTimeout), otlpmetrichttp.WithRetry(otlpmetrichttp.RetryConfig{})}
	if conf.Endpoint != "" {
		base := strings.TrimSuffix(conf.Endpoint, "/")
		spans = append(spans, otlptracehttp.WithEndpointURL(base+"/v1/traces"))
		numbers = append(numbers, otlpmetrichttp.WithEndpointURL(base+"/v1/metrics"))
	}
	if len(headers) > 0 {
		spans, numbers = append(spans, otlptracehttp.WithHeaders(headers)), append(numbers, otlpmetrichttp.WithHeaders(headers))
	}
	spanExporter, err := otlptracehttp.New(ctx, spans...)
	if err != nil {
		return err
	}
	numberExporter, err := otlpmetrichttp.New(ctx, numbers...)
	if err != nil {
		return err
	}
	about, err := resource.New(ctx, resource.WithAttributes(
		attribute.String("service.name", "rein"), attribute.String("service.version", buildVersion().Version)), resource.WithFromEnv())
	if err != nil {
		return err
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(c.fail))
	limits := trace.NewSpanLimits()
	if limits.AttributeValueLengthLimit < 0 {
		limits.AttributeValueLengthLimit = maxAttribute
	}
	c.traces = trace.NewTracerProvider(trace.WithIDGenerator(telemetry.IDs{}), trace.WithResource(about), trace.WithRawSpanLimits(limits),
		trace.WithBatcher(spanExporter, trace.WithBatchTimeout(sendEvery), trace.WithExportTimeout(sendTimeout)))
	c.metrics = metric.NewMeterProvider(metric.WithResource(about),
		metric.WithReader(metric.NewPeriodicReader(numberExporter, metric.WithTimeout(sendTimeout))))
	c.recorder, err = telemetry.New(telemetry.Options{Tracers: c.traces, Meters: c.metrics, Content: conf.Content})
	return err
}

func (c *collector) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed == nil {
		c.failed = err
	}
}

// record is what makes spans; nil where there is no collector.
func (c *collector) record() *telemetry.Recorder {
	if c == nil {
		return nil
	}
	return c.recorder
}

// end sends what has not been sent, for a bounded time, and says once when
// something could not be.
func (c *collector) end(w io.Writer, m *secret.Masker) {
	if c == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), sendTimeout)
	defer cancel()
	var ends sync.WaitGroup
	for _, shutdown := range []func(context.Context) error{c.traces.Shutdown, c.metrics.Shutdown} {
		ends.Go(func() {
			if err := shutdown(ctx); err != nil {
				c.fail(err)
			}
		})
	}
	ends.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed != nil {
		fmt.Fprintf(w, "rein: not all telemetry could be sent to %s: %s\n", c.where, m.String(strings.TrimSpace(c.failed.Error())))
	}
}
