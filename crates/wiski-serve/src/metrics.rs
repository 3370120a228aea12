//! Figures for Prometheus: counters and histograms of the server, gauges of each model in memory.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::engine::Engine;
use crate::view::Figures;

/// The upper ends of the buckets of durations, in seconds.
const BUCKETS: [f64; 13] = [1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 10.0];

/// How long requests took.
#[derive(Debug, Default)]
struct Histogram {
    buckets: [u64; BUCKETS.len()],
    count: u64,
    seconds: f64,
}

/// The figures of a server.
#[derive(Debug, Default)]
pub struct Metrics {
    requests: Mutex<Requests>,
    /// Models put down for want of memory.
    pub put_down: AtomicU64,
    /// Requests being answered.
    pub active: AtomicU64,
}

#[derive(Debug, Default)]
struct Requests {
    /// By route, method and status.
    counts: BTreeMap<(&'static str, &'static str, u16), u64>,
    /// By route.
    times: BTreeMap<&'static str, Histogram>,
}

impl Metrics {
    /// Takes in a request that was answered.
    pub fn record(&self, route: &'static str, method: &'static str, status: u16, took: Duration) {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        *requests.counts.entry((route, method, status)).or_default() += 1;
        let histogram = requests.times.entry(route).or_default();
        let seconds = took.as_secs_f64();
        if let Some(bucket) = BUCKETS.iter().position(|&end| seconds <= end) {
            histogram.buckets[bucket] += 1;
        }
        histogram.count += 1;
        histogram.seconds += seconds;
    }
}

/// Everything in the text format of Prometheus.
pub fn text(engine: &Engine) -> String {
    let mut out = String::new();
    let metrics = &engine.metrics;
    head(&mut out, "wiski_build_info", "gauge", "The version of the server.");
    let _ = writeln!(out, "wiski_build_info{{version=\"{}\"}} 1", env!("CARGO_PKG_VERSION"));
    {
        let requests = metrics.requests.lock().unwrap_or_else(PoisonError::into_inner);
        head(&mut out, "wiski_http_requests_total", "counter", "Requests answered.");
        for ((route, method, code), count) in &requests.counts {
            let labels = format!("route=\"{route}\",method=\"{method}\",code=\"{code}\"");
            let _ = writeln!(out, "wiski_http_requests_total{{{labels}}} {count}");
        }
        let name = "wiski_http_request_duration_seconds";
        head(&mut out, name, "histogram", "The time from the head of a request to the head of its answer.");
        for (route, histogram) in &requests.times {
            let mut sum = 0;
            for (end, count) in BUCKETS.iter().zip(histogram.buckets) {
                sum += count;
                let _ = writeln!(out, "{name}_bucket{{route=\"{route}\",le=\"{end}\"}} {sum}");
            }
            let _ = writeln!(out, "{name}_bucket{{route=\"{route}\",le=\"+Inf\"}} {}", histogram.count);
            let _ = writeln!(out, "{name}_sum{{route=\"{route}\"}} {}", histogram.seconds);
            let _ = writeln!(out, "{name}_count{{route=\"{route}\"}} {}", histogram.count);
        }
    }
    let models = engine.list();
    let loaded: Vec<_> = models.iter().filter_map(|(_, hosted)| hosted.clone()).collect();
    let single = |out: &mut String, name: &str, kind: &str, help: &str, value: u64| {
        head(out, name, kind, help);
        let _ = writeln!(out, "{name} {value}");
    };
    let active = metrics.active.load(Ordering::Relaxed);
    single(&mut out, "wiski_http_requests_active", "gauge", "Requests being answered.", active);
    single(&mut out, "wiski_models", "gauge", "Models in the folder.", models.len() as u64);
    single(&mut out, "wiski_models_loaded", "gauge", "Models in memory.", loaded.len() as u64);
    let put_down = metrics.put_down.load(Ordering::Relaxed);
    single(
        &mut out,
        "wiski_models_evicted_total",
        "counter",
        "Models put down for want of memory.",
        put_down,
    );
    if let Some(bytes) = resident_bytes() {
        single(&mut out, "process_resident_memory_bytes", "gauge", "Memory of the process.", bytes);
    }
    let views: Vec<_> = loaded.iter().map(|hosted| (hosted, hosted.view().figures)).collect();
    let mut each =
        |name: &str, kind: &str, help: &str, value: &dyn Fn(&crate::hosted::Hosted, &Figures) -> f64| {
            head(&mut out, name, kind, help);
            for (hosted, figures) in &views {
                let _ =
                    writeln!(out, "{name}{{model=\"{}\"}} {}", hosted.name, number(value(hosted, figures)));
            }
        };
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64;
    each("wiski_rows_learned_total", "counter", "Rows learned since the model was loaded.", &|h, _| {
        count(&h.counters.learned)
    });
    each("wiski_rows_rejected_total", "counter", "Rows that the model rejected.", &|h, _| {
        count(&h.counters.rejected)
    });
    each("wiski_rows_predicted_total", "counter", "Rows predicted for readers.", &|h, _| {
        count(&h.counters.predicted)
    });
    each(
        "wiski_journal_syncs_total",
        "counter",
        "Times that the journal was forced to the disk.",
        &|h, _| count(&h.counters.syncs),
    );
    each("wiski_queue_rejected_total", "counter", "Requests turned away from a full queue.", &|h, _| {
        count(&h.counters.turned_away)
    });
    each("wiski_queue_length", "gauge", "Requests that wait for the writer.", &|h, _| h.waiting() as f64);
    each("wiski_model_memory_bytes", "gauge", "The memory that a model takes, about.", &|h, _| {
        h.bytes() as f64
    });
    each("wiski_model_rows", "gauge", "Rows that the model has seen.", &|_, f| f.seen as f64);
    each("wiski_model_ready", "gauge", "Whether the warm-up is over.", &|_, f| f64::from(u8::from(f.ready)));
    each("wiski_model_refits_total", "counter", "Refits since the warm-up.", &|_, f| f.refits as f64);
    each("wiski_model_drifts_total", "counter", "Signals of drift.", &|_, f| f.drifts as f64);
    each("wiski_model_error_ratio", "gauge", "RMSE for numbers, share of wrong classes.", &|_, f| f.error);
    each("wiski_model_level_ratio", "gauge", "The level of the intervals.", &|_, f| f.level);
    each("wiski_model_coverage_ratio", "gauge", "Targets in their intervals, of all rows.", &|_, f| {
        f.coverage
    });
    each(
        "wiski_model_recent_coverage_ratio",
        "gauge",
        "Targets in their intervals, of the last 1000 rows.",
        &|h, _| count(&h.counters.recent_inside) / count(&h.counters.recent),
    );
    out
}

fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn number(value: f64) -> String {
    if value.is_nan() { "NaN".into() } else { value.to_string() }
}

/// The memory of this process, where the system tells.
pub fn resident_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(1024 * line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?)
}
