//! Timelines for ui.perfetto.dev: the trace format of Chrome, as JSON.
//!
//! Each timeline is a process there, each of its rows a thread, each stripe a slice. A row whose stripes overlap (a
//! long wire carries several frames at once) gets as many threads as it needs, since slices of one thread must nest.

use serde::Serialize;
use serde_json::{Value, json};

use crate::outcome::{Drawing, Figure, Stripe};

/// Stripes over rows, under a name.
#[derive(Debug, Clone, PartialEq)]
pub struct Timeline {
    /// What it shows.
    pub name: String,
    /// Names of the rows, from the top.
    pub rows: Vec<String>,
    /// The stripes.
    pub stripes: Vec<Stripe>,
}

/// The file.
#[derive(Debug, Serialize)]
struct File {
    #[serde(rename = "displayTimeUnit")]
    unit: &'static str,
    #[serde(rename = "traceEvents")]
    events: Vec<Value>,
}

impl Timeline {
    /// The timeline that a figure draws; `None` if it draws none.
    #[must_use]
    pub fn of(figure: &Figure) -> Option<Self> {
        match &figure.drawing {
            Drawing::Flow { rows, stripes } => {
                Some(Self { name: figure.title.clone(), rows: rows.clone(), stripes: stripes.clone() })
            }
            Drawing::Curves { .. } | Drawing::Bars { .. } => None,
        }
    }
}

/// Writes the timelines as one file, each by the clock of its own run.
#[must_use]
pub fn file(timelines: &[Timeline]) -> String {
    let events = timelines.iter().enumerate().flat_map(|(index, timeline)| process(timeline, index + 1)).collect();
    // Numbers, texts and lists always have a form in JSON.
    serde_json::to_string(&File { unit: "ns", events }).unwrap_or_default()
}

/// One timeline: its names, and then its slices in the order of time.
fn process(timeline: &Timeline, pid: usize) -> Vec<Value> {
    let mut events = vec![json!({"ph": "M", "name": "process_name", "pid": pid, "args": {"name": timeline.name}})];
    let mut tid = 0;
    for (row, name) in timeline.rows.iter().enumerate() {
        let mut stripes: Vec<&Stripe> = timeline.stripes.iter().filter(|stripe| stripe.row == row).collect();
        stripes.sort_by(|a, b| a.start_us.total_cmp(&b.start_us));
        for lane in lanes(&stripes) {
            tid += 1;
            let named =
                |what: &str, args: Value| json!({"ph": "M", "name": what, "pid": pid, "tid": tid, "args": args});
            events.push(named("thread_name", json!({"name": name})));
            events.push(named("thread_sort_index", json!({"sort_index": tid})));
            events.extend(lane.into_iter().map(|stripe| slice(stripe, pid, tid)));
        }
    }
    events
}

/// Shares stripes, in the order of their beginnings, out to as few lanes as keep them from overlapping; at least one.
fn lanes<'a>(stripes: &[&'a Stripe]) -> Vec<Vec<&'a Stripe>> {
    let mut lanes: Vec<Vec<&Stripe>> = vec![Vec::new()];
    for stripe in stripes {
        let is_free = |lane: &Vec<&Stripe>| lane.last().is_none_or(|last| ns(last.end_us) <= ns(stripe.start_us));
        match lanes.iter_mut().find(|lane| is_free(lane)) {
            Some(lane) => lane.push(stripe),
            None => lanes.push(vec![stripe]),
        }
    }
    lanes
}

fn slice(stripe: &Stripe, pid: usize, tid: usize) -> Value {
    // Both ends are rounded, not the length: neighbours that touch must not come to overlap.
    let (start, end) = (ns(stripe.start_us), ns(stripe.end_us));
    json!({
        "ph": "X",
        "name": format!("message {}", stripe.message),
        "cat": "pulse",
        "pid": pid,
        "tid": tid,
        "ts": start / 1000.0,
        "dur": (end - start).max(0.0) / 1000.0,
        "args": {"message": stripe.message, "bytes": stripe.bytes},
    })
}

/// Whole nanoseconds, the finest that the viewer keeps.
fn ns(us: f64) -> f64 {
    (us * 1000.0).round()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::{Timeline, file};
    use crate::outcome::Stripe;

    fn stripe(row: usize, message: u64, start_us: f64, end_us: f64) -> Stripe {
        Stripe { row, message, start_us, end_us, bytes: 64 }
    }

    fn events(stripes: Vec<Stripe>) -> Vec<Value> {
        let rows = vec!["bus".to_owned(), "wire".to_owned()];
        let text = file(&[Timeline { name: "a burst".into(), rows, stripes }]);
        let file: Value = serde_json::from_str(&text).unwrap();
        file["traceEvents"].as_array().unwrap().clone()
    }

    fn slices(events: &[Value]) -> Vec<&Value> {
        events.iter().filter(|event| event["ph"] == "X").collect()
    }

    #[test]
    fn each_stripe_is_a_slice_of_its_rows_thread() {
        let events = events(vec![stripe(1, 7, 2.5, 4.0), stripe(0, 7, 0.0, 2.5)]);
        let slices = slices(&events);
        assert_eq!(slices.len(), 2);
        assert_eq!((&slices[0]["ts"], &slices[0]["dur"]), (&Value::from(0.0), &Value::from(2.5)));
        assert_eq!((&slices[1]["tid"], &slices[1]["args"]["bytes"]), (&Value::from(2), &Value::from(64)));
        let threads: Vec<_> = events.iter().filter(|event| event["name"] == "thread_name").collect();
        let names: Vec<_> = threads.iter().map(|event| event["args"]["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["bus", "wire"]);
        assert_eq!(events[0]["args"]["name"], "a burst");
    }

    #[test]
    fn slices_of_one_thread_never_overlap() {
        let third = 1.0 / 3.0;
        let touching = (0..9).map(|n| stripe(0, n, n as f64 * third, (n + 1) as f64 * third)).collect();
        assert!(slices(&events(touching)).iter().all(|slice| slice["tid"] == 1));
        let events = events((0..4).map(|n| stripe(0, n, n as f64, n as f64 + 2.0)).collect());
        let slices = slices(&events);
        assert_eq!(slices.len(), 4);
        for (a, b) in slices.iter().zip(slices.iter().skip(1)) {
            if a["tid"] == b["tid"] {
                let end = a["ts"].as_f64().unwrap() + a["dur"].as_f64().unwrap();
                assert!(end <= b["ts"].as_f64().unwrap());
            }
        }
    }
}
