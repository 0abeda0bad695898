//! The ATM machines from outside: their platforms, their results, and any point that one may ask for.

use cutthrough_sim::atm::{MISSED, MODELS, PLATFORMS, experiments, point};
use cutthrough_sim::catalogue::{draws_flow, is_known_miss};
use cutthrough_sim::outcome::{Drawing, Line, Role};
use cutthrough_sim::platform::{Origin, Platform};
use cutthrough_sim::point::{Firmware, Point, PointError, Query};
use cutthrough_sim::trace::Timeline;
use proptest::prelude::*;

fn text(name: &str) -> &'static str {
    PLATFORMS.iter().find(|(known, _)| *known == name).unwrap().1
}

fn platform(name: &str) -> Platform {
    Platform::parse(text(name), name).unwrap()
}

fn ask(name: &str, firmware: &str, payload: u64, count: u64, senders: u32) -> Result<Point, PointError> {
    let firmware: Firmware = firmware.parse().unwrap();
    point(&platform(name), &Query { firmware, payload, count, senders })
}

/// What each platform can be asked.
const ASKED: [(&str, &str); 9] = [
    ("ss20-sba100", "adaptive"),
    ("ss20-sba100", "kernel"),
    ("ss1plus-sba100", "adaptive"),
    ("unet-sba100", "adaptive"),
    ("unet-sba200", "adaptive"),
    ("unet-sba200", "store-and-forward"),
    ("fore-sba200", "vendor"),
    ("fore-sba200", "fixed:48"),
    ("fore-sba200", "kernel"),
];

#[test]
fn platforms_fit_few_parameters_and_name_a_model() {
    for (name, _) in PLATFORMS {
        let platform = platform(name);
        assert!(MODELS.contains(&platform.model()));
        let fitted = platform.parameters().filter(|(_, p)| matches!(p.origin, Origin::Fitted { .. })).count();
        assert!(fitted <= 4, "{name}: {fitted} fitted parameters");
    }
}

#[test]
fn results_are_there_and_as_good_as_the_documents_say() {
    let all = experiments();
    let ids: Vec<_> = all.iter().map(|experiment| experiment.id).collect();
    assert_eq!(ids, ["S1", "S2", "S3", "S4", "S5", "U1", "U2", "U3", "U4", "U5", "U6"]);
    let mut lines: Vec<Line> = Vec::new();
    for experiment in all {
        let outcome = (experiment.run)();
        assert!(!outcome.lines.is_empty() && outcome.lines.iter().all(|line| line.id == experiment.id));
        assert!(outcome.lines.iter().all(|line| line.sim.is_finite() && !line.source.is_empty()));
        assert!(!draws_flow(&experiment) && outcome.figures.iter().all(|figure| Timeline::of(figure).is_none()));
        for figure in &outcome.figures {
            if let Drawing::Curves { curves, .. } = &figure.drawing {
                let points = curves.iter().flat_map(|curve| &curve.points).flatten();
                assert!(points.into_iter().all(|value| value.is_finite()), "{}", figure.id);
                assert!(curves.iter().all(|curve| curve.points.is_sorted_by(|a, b| a[0] < b[0])), "{}", figure.id);
            }
        }
        lines.extend(outcome.lines);
    }
    let missed: Vec<_> = lines.iter().filter(|line| line.ok == Some(false)).collect();
    assert!(missed.len() == MISSED.len() && missed.iter().all(|line| is_known_miss(line)), "{missed:#?}");
    let predicted = lines.iter().filter(|line| line.role == Role::Predicted);
    let mut errors: Vec<f64> = predicted.filter_map(|line| line.error_pct).map(f64::abs).collect();
    errors.sort_by(f64::total_cmp);
    assert!(errors.len() > 20 && errors[errors.len() / 2] <= 5.0, "{errors:?}");
}

#[test]
fn every_platform_answers_and_always_the_same() {
    for (name, firmware) in ASKED {
        for (payload, count, senders) in [(0, 1, 1), (4, 1, 1), (1024, 20, 1), (9000, 3, 2), (70_000, 2, 1), (40, 9, 4)]
        {
            let answer = ask(name, firmware, payload, count, senders).unwrap();
            assert_eq!(ask(name, firmware, payload, count, senders).unwrap(), answer);
            assert!(answer.one_way_us > 3.0, "{name} {firmware}: {answer:?}");
            let whole_us = (payload * count * u64::from(senders)) as f64 / answer.bytes_per_s * 1e6;
            assert!(payload == 0 || whole_us > 0.99 * answer.one_way_us, "{name} {firmware}: {answer:?}");
            for stage in &answer.stages {
                let room = (stage.last_us - stage.first_us) * f64::from(senders) + 1e-6;
                assert!(stage.busy_us <= room && stage.pulses > 0, "{name} {firmware}: {stage:?}");
            }
            // No receiver takes in more than its fibre carries.
            assert!(answer.bytes_per_s < 15.3e6, "{name} {firmware}: {answer:?}");
        }
    }
}

#[test]
fn stages_work_one_after_the_other() {
    let answer = ask("unet-sba200", "adaptive", 4096, 1, 1).unwrap();
    let names: Vec<_> = answer.stages.iter().map(|stage| stage.stage.as_str()).collect();
    let adapter = ["host to adapter", "adapter to link", "fibre", "switch", "adapter to host"];
    assert_eq!(names[1..6], adapter);
    assert_eq!(answer.stages[3].pulses, 86);
    let [first, last] = [|stage: &[f64; 2]| stage[0], |stage: &[f64; 2]| stage[1]];
    let times: Vec<_> = answer.stages.iter().map(|stage| [stage.first_us, stage.last_us]).collect();
    assert!(times[1..6].is_sorted_by(|a, b| first(a) < first(b) && last(a) < last(b)), "{times:?}");
}

#[test]
fn what_cannot_be_done_is_said() {
    let refused = |name, firmware, payload, count, senders| match ask(name, firmware, payload, count, senders) {
        Err(PointError::Impossible(why)) => why,
        other => panic!("{other:?}"),
    };
    assert!(refused("ss20-sba100", "coroutine", 8, 1, 1).contains("no such policy; ask for `adaptive`"));
    assert!(refused("ss20-sba100", "vendor", 8, 1, 1).contains("no such policy; ask for `adaptive`"));
    assert!(refused("unet-sba100", "kernel", 8, 1, 1).contains("ask for `adaptive`"));
    // A rule has nothing to decide where cells pass through a FIFO.
    for (name, rule) in [("ss20-sba100", "fixed:48"), ("unet-sba100", "store-and-forward")] {
        assert!(refused(name, rule, 8, 1, 1).contains("no stage that a policy decides about; ask for `adaptive`"));
    }
    assert!(refused("unet-sba200", "vendor", 8, 1, 1).contains("fore-sba200"));
    assert!(refused("fore-sba200", "coroutine", 8, 1, 1).contains("`adaptive:MINPULSE`, `vendor`, `kernel`"));
    assert!(refused("ss20-sba100", "adaptive", 8, 1, 1000).contains("share"));
    assert!(refused("unet-sba200", "adaptive", 8, 0, 1).contains("at least one"));
    assert!(refused("unet-sba200", "adaptive", 8, 1, 0).contains("at least one"));
    assert!(refused("unet-sba200", "adaptive", u64::MAX, 9, 2).contains("64 GiB"));
}

#[test]
fn a_wrong_file_is_refused_with_line_and_key() {
    let refused = |name: &str, from: &str, to: &str| {
        assert!(text(name).contains(from), "{from}");
        let platform = Platform::parse(&text(name).replacen(from, to, 1), "x.toml").unwrap();
        let query = Query { firmware: "adaptive".parse().unwrap(), payload: 8, count: 1, senders: 1 };
        point(&platform, &query).unwrap_err().to_string()
    };
    assert!(refused("ss20-sba100", "value = 292", "value = 0").contains("`fifo.in`: a FIFO must hold"));
    assert!(refused("ss20-sba100", "value = 55\n", "value = 52\n").contains("`link.cell`: a cell has at least 53"));
    assert!(refused("unet-sba200", "value = 256\n", "value = 0\n").contains("`adapter.memory`: the adapter must"));
    assert!(refused("fore-sba200", "value = 1024\n", "value = 0\n").contains("`kernel.cluster`: must not be 0"));
    assert!(refused("fore-sba200", "[kernel.mbuf]", "[kernel.buf]").contains("`kernel.mbuf` is missing: a time"));
    assert!(refused("unet-sba100", "[aal5.crc]", "[aal5.crd]").contains("`aal5.crc` is missing: a time"));
    assert!(refused("unet-sba200", "[tcp.write]", "[tcp.writes]").contains("`tcp.write` is missing"));
    assert!(refused("unet-sba200", "unet-i960", "unet-i961").contains("`unet-i961` is unknown"));
    let still = text("unet-sba200").replace("value = 1.0", "value = 0").replace("range = [0.5, 1.5]", "range = [0, 1]");
    let still = Platform::parse(&still, "x.toml").unwrap();
    let query = Query { firmware: "adaptive".parse().unwrap(), payload: 8, count: 1, senders: 1 };
    assert!(
        point(&still, &query).unwrap_err().to_string().contains("`firmware.turn`: a turn of the firmware must take")
    );
    let stray = "[am.slot]\nvalue = 64\nunit = \"B\"\nsource = \"x\"\n[am.send]";
    assert!(refused("unet-sba200", "[am.send]", stray).contains("`am.slot`: the model"));
}

/// Every time in a file may be nothing, but for those that a loop turns on.
#[test]
fn the_fastest_machine_is_bounded_by_its_fibre() {
    for (name, firmware) in ASKED {
        let mut fast = String::new();
        let mut key = "";
        for line in text(name).lines() {
            key = if line.starts_with('[') { line } else { key };
            let loops = ["[read.trap]", "[syscall.read.call]", "[firmware.turn]"].contains(&key);
            let time = text(name).contains(&format!("{key}\n"))
                && text(name)[text(name).find(key).unwrap()..].lines().take(3).any(|line| line == "unit = \"us\"");
            let line = match line {
                _ if line.starts_with("range") => "range = [0, 1000]",
                _ if line.starts_with("value") && time && !loops => "value = 0",
                _ if line.starts_with("value") && loops => "value = 0.6",
                line => line,
            };
            fast.push_str(line);
            fast.push('\n');
        }
        let platform = Platform::parse(&fast, name).unwrap();
        let query = Query { firmware: firmware.parse().unwrap(), payload: 1000, count: 12, senders: 1 };
        let answer = point(&platform, &query).unwrap();
        let slow = ask(name, firmware, 1000, 12, 1).unwrap();
        assert!(answer.one_way_us <= slow.one_way_us && answer.bytes_per_s < 15.3e6, "{name} {firmware}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn more_payload_is_never_sooner(which in 0..ASKED.len(), payload in 0..9000u64, more in 48..3000u64) {
        let (name, firmware) = ASKED[which];
        let time = |payload| ask(name, firmware, payload, 1, 1).unwrap().one_way_us;
        // The phase of polling and a shorter chain of kernel buffers may be worth a little.
        prop_assert!(time(payload + more) >= time(payload) - 40.0);
    }

    #[test]
    fn more_senders_never_make_the_receiver_slower_than_one_by_much(
        which in 0..ASKED.len(), payload in 1..3000u64, senders in 2..6u32
    ) {
        let (name, firmware) = ASKED[which];
        // SSAM's lone sender goes without a switch, so two are the least that go the same way.
        let rate = |senders| ask(name, firmware, payload, 24, senders).unwrap().bytes_per_s;
        prop_assert!(rate(senders + 2) > 0.7 * rate(2), "{} {}", rate(senders + 2), rate(2));
    }
}
