//! The Ethernet family as its users see it: platforms, points, results.

use cutthrough_sim::ethernet::{MODELS, PLATFORMS, experiments, point};
use cutthrough_sim::outcome::{Outcome, Role};
use cutthrough_sim::platform::{Origin, Platform};
use cutthrough_sim::point::{Firmware, Point, PointError, Query};

fn platform(name: &str) -> Platform {
    let (_, text) = PLATFORMS.iter().find(|(known, _)| *known == name).unwrap();
    Platform::parse(text, name).unwrap()
}

fn ask(name: &str, firmware: &str, payload: u64, count: u64, senders: u32) -> Result<Point, PointError> {
    let firmware: Firmware = firmware.parse().unwrap();
    point(&platform(name), &Query { firmware, payload, count, senders })
}

fn run(id: &str) -> Outcome {
    (experiments().iter().find(|experiment| experiment.id == id).unwrap().run)()
}

#[test]
fn platforms_state_where_their_numbers_come_from() {
    for (name, text) in PLATFORMS {
        let platform = Platform::parse(text, name).unwrap();
        assert_eq!(platform.name(), *name);
        assert!(MODELS.contains(&platform.model()));
        let fitted = platform.parameters().filter(|(_, parameter)| matches!(parameter.origin, Origin::Fitted { .. }));
        assert!(fitted.count() <= 4, "{name}");
        assert!(ask(name, "adaptive", 8192, 1, 1).is_ok());
    }
}

#[test]
fn every_result_is_within_its_tolerance() {
    for id in ["D1", "D2", "D3", "D4"] {
        let outcome = run(id);
        assert!(!outcome.lines.is_empty());
        for line in &outcome.lines {
            assert_eq!(line.id, id);
            assert_ne!(line.ok, Some(false), "{line:?}");
            assert!(!line.source.is_empty(), "{line:?}");
        }
    }
}

#[test]
fn at_most_three_published_figures_are_fitted() {
    let fitted = run("D1").lines.into_iter().filter(|line| line.role == Role::Fitted);
    assert_eq!(fitted.count(), 3);
}

#[test]
fn the_same_run_gives_the_same_outcome() {
    for id in ["D1", "D2", "D4"] {
        assert_eq!(run(id), run(id));
    }
}

#[test]
fn a_page_comes_over_fast_ethernet_in_1200_us() {
    let fetch = ask("gms-fast-ethernet", "adaptive", 8192, 1, 1).unwrap();
    assert!((1140.0..1260.0).contains(&fetch.one_way_us), "{} us", fetch.one_way_us);
    assert_eq!(fetch, ask("gms-fast-ethernet", "kernel", 8192, 1, 1).unwrap());
    let four = ask("gms-fast-ethernet", "kernel", 8192, 50, 4).unwrap();
    assert!(four.bytes_per_s < 12.5e6 && four.bytes_per_s > 9e6, "one link's worth: {}", four.bytes_per_s);
}

#[test]
fn any_point_can_be_asked() {
    let lone = |firmware, payload| ask("gige-pentium2", firmware, payload, 1, 1).unwrap().one_way_us;
    for firmware in ["kernel", "adaptive"] {
        let times = [1, 64, 1460, 4096, 8192, 65_536, 1 << 20].map(|payload| lone(firmware, payload));
        assert!(times.windows(2).all(|pair| pair[0] < pair[1]), "{firmware}: {times:?}");
    }
    assert!(lone("adaptive", 65_536) < lone("kernel", 65_536));
    let stream = |firmware| ask("gige-pentium2", firmware, 65_536, 200, 1).unwrap().bytes_per_s / 1e6;
    assert!(stream("adaptive") > 1.5 * stream("kernel"));
    let stages = ask("gige-pentium2", "kernel", 1000, 1, 1).unwrap().stages;
    let names: Vec<&str> = stages.iter().map(|stage| stage.stage.as_str()).collect();
    assert_eq!((names.len(), names[0], names[5]), (6, "sender's processor", "receiver's processor"));
}

#[test]
fn what_cannot_be_answered_is_said() {
    let says =
        |name, firmware, payload, count, senders| ask(name, firmware, payload, count, senders).unwrap_err().to_string();
    assert!(says("gige-pentium2", "vendor", 1, 1, 1).contains("without a processor"));
    assert!(says("gige-pentium2", "coroutine", 1, 1, 1).contains("without a processor"));
    assert!(says("gige-pentium2", "kernel", 0, 1, 1).contains("at least one"));
    assert!(says("gige-pentium2", "kernel", 1, 1, 0).contains("at least one"));
    assert!(says("gige-pentium2", "kernel", u64::MAX, u64::MAX, 9).contains("too much"));
    assert!(says("gms-fast-ethernet", "kernel", 70_000, 1, 1).contains("one datagram"));
}

#[test]
fn a_wrong_file_gets_an_error_that_names_line_key_and_unit() {
    let (_, text) = PLATFORMS[0];
    let wrong = |from: &str, to: &str| {
        assert!(text.contains(from));
        let platform = Platform::parse(&text.replace(from, to), "x.toml").unwrap();
        let query = Query { firmware: Firmware::Kernel, payload: 1, count: 1, senders: 1 };
        point(&platform, &query).unwrap_err().to_string()
    };
    assert!(
        wrong("value = 16\nunit = \"KiB\"", "value = 1\nunit = \"KiB\"").contains("a frame of 1514 bytes must fit")
    );
    assert!(wrong("value = 48\nunit = \"frames\"", "value = 2\nunit = \"frames\"").contains("at least 3"));
    assert!(wrong("value = 64\nunit = \"KiB\"", "value = 1\nunit = \"KiB\"").contains("`tcp.window`"));
    assert!(wrong("value = 132\nunit = \"MB/s\"", "value = 132\nunit = \"us\"").contains("`us` is no unit of a rate"));
    assert!(wrong("[adapter.fifo]", "[adapter.fiffo]").contains("`adapter.fifo` is missing"));
    assert!(
        wrong("[host.wake]", "[host.awake.x]\nvalue = 1\nunit = \"us\"\nsource = \"y\"\n\n[host.wake]")
            .contains("host.awake.x")
    );
    assert!(wrong("\"ethernet-stream\"", "\"ethernet-steam\"").contains("`ethernet-steam` is unknown"));
}
