//! What stands below a table of results: what was measured and what it was held against, and nothing else.

use std::borrow::Cow;

use super::case::{Case, Test};
use super::held::Held;
use crate::args::Memory;
use crate::hint;
use crate::table::wrapped;
use crate::units;

/// Ratios of rounds of which the most is so many times the least are told.
const APART: f64 = 1.5;

/// The text below the results of a test: `held` has each case, and what it was held against, if it was.
#[must_use]
pub fn of(test: Test, held: &[(&Case, Option<&Held>)]) -> String {
    let mut text = vec![measured(test, held)];
    let rounds = held.iter().filter_map(|(_, held)| Some(held.as_ref()?.rounds)).max();
    text.extend(rounds.map(|rounds| ratio(test, rounds)));
    text.extend(limits(held));
    text.extend(exceeded(test, held));
    text.extend(apart(held));
    if held.iter().any(|(case, _)| case.is_control()) {
        text.push("A private message of up to 96 B is a control message: it has no payload.".into());
    }
    text.extend(held.iter().find_map(|(case, held)| if held.is_none() { incomparable(case) } else { None }));
    wrapped(&text.join("\n"))
}

/// Why there is nothing that a case could be held against.
fn incomparable(case: &Case) -> Option<String> {
    match case.test {
        Test::Bw if case.shape.memory == Memory::Reference => {
            Some("By reference nothing is moved: there is no bandwidth to hold it against.".into())
        }
        Test::Rate if !case.shared => Some("Many messages share a datagram: they are held against none.".into()),
        _ => None,
    }
}

fn measured(test: Test, held: &[(&Case, Option<&Held>)]) -> String {
    let whole = "A stream, until the other end has confirmed the last message";
    match test {
        Test::Lat => "Half a round trip; both ends spin.".into(),
        Test::Fetch => "From the request for a page until the page is there; both ends spin.".into(),
        _ if held.iter().all(|(case, _)| case.rounds().len() == 1) => format!("{whole}."),
        _ => format!("{whole}; the median of several."),
    }
}

fn ratio(test: Test, rounds: u32) -> String {
    let of = match test {
        Test::Lat | Test::Fetch => "p50 over the limit (less is better)",
        Test::Bw => "bandwidth over the limit's (more is better)",
        Test::Rate => "messages over the reference's (more is better)",
    };
    match rounds {
        1 => format!("Ratio: {of}, which is measured in the same run:"),
        rounds => format!("Ratio: {of}, which is measured in turn with it; the median of {rounds} rounds:"),
    }
}

/// What is a reference and no limit: one flag goes there and back at a time, of messages many are under way.
fn exceeded(test: Test, held: &[(&Case, Option<&Held>)]) -> Option<String> {
    let by_flag = held.iter().filter_map(|(_, held)| *held).any(|held| held.limit == "cacheline_pingpong");
    let text = "cacheline_pingpong is a reference for a stream and no limit: one flag goes at a time, and messages \
                overlap, so that they may be more.";
    (!test.is_time() && by_flag).then(|| text.into())
}

/// Whose rounds do not agree: the machine was another one in between, or the limit was.
fn apart(held: &[(&Case, Option<&Held>)]) -> Option<String> {
    let held = held.iter().filter_map(|(case, held)| Some((case, (*held)?)));
    let apart = held.filter(|(_, held)| held.range[1] > APART * held.range[0]);
    let told = apart.map(|(case, held)| {
        let [least, most] = held.range.map(units::ratio);
        format!("{} {least} to {most}", case.size())
    });
    let told: Vec<String> = told.collect();
    (!told.is_empty()).then(|| format!("Ratios of single rounds, where they are far apart: {}.", told.join(", ")))
}

/// Each limit once, with the sizes that were held against it and the meaning of its parts.
fn limits(held: &[(&Case, Option<&Held>)]) -> Vec<String> {
    let mut found: Vec<(&str, Vec<String>)> = Vec::new();
    for (case, held) in held.iter().filter_map(|(case, held)| Some((case, (*held)?))) {
        let size = case.size().to_string();
        match found.iter_mut().find(|(name, _)| *name == held.limit) {
            Some((_, sizes)) => sizes.push(size),
            None => found.push((&held.limit, vec![size])),
        }
    }
    let mut explained = Vec::new();
    found.iter().map(|(name, sizes)| format!("{}: {name}{}", sizes.join(", "), parts(name, &mut explained))).collect()
}

/// What the parts of a limit are, those aside that have been explained already.
fn parts<'a>(name: &'a str, explained: &mut Vec<&'a str>) -> String {
    let new: Vec<&str> = name.split('+').filter(|part| !explained.contains(part)).collect();
    explained.extend(&new);
    match new.as_slice() {
        [part] if *part == name => format!(", {}.", meaning(part)),
        new => new.iter().fold(".".into(), |text, part| format!("{text} {part}: {}.", meaning(part))),
    }
}

/// What a limit is.
fn meaning(part: &str) -> Cow<'static, str> {
    Cow::Borrowed(match part {
        "cacheline_pingpong" => "one way of a flag between two cores, a cache line per direction",
        "message_64" => "half a round trip of a message of 64 B",
        "2*message_64" => "a message of 64 B there and one back",
        "memcpy_1core" => "one core copies the size between two private buffers",
        "udp_pingpong" => "one way of 64 B over the kernel's UDP",
        "udp_gso_oneway_header64" => {
            "one way of the size over the kernel's UDP, in datagrams that scatter lists place, neither repaired nor \
             sealed"
        }
        "udp_gso_stream" => "a stream over the kernel's UDP, in datagrams that scatter lists place",
        "packet_pingpong" => "one way of 64 B by bare rings of AF_PACKET",
        "xdp_pingpong" => "one way of 64 B by bare rings of AF_XDP",
        "packet_fetch" => "a page that is asked for and copied out by bare rings of AF_PACKET",
        "xdp_fetch" => "a page that is asked for and copied out by bare rings of AF_XDP",
        "packet_stream" => "full frames by bare rings of AF_PACKET",
        "xdp_stream" => "full frames by bare rings of AF_XDP",
        _ => return format!("see '{}'", hint::command("perf limits --help")).into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Measure;
    use crate::units::Size;

    fn case(test: Test, memory: Memory, size: u64, count: Option<u64>) -> Case {
        let options = Measure { size: vec![Size(size)], memory: Some(memory), count, ..Measure::default() };
        Case::all(test, &options).expect("good options").remove(0)
    }

    fn held(limit: &str) -> Held {
        Held { limit: limit.into(), ns: 100.0, ratio: 1.0, range: [0.9, 1.1], rounds: 5 }
    }

    #[test]
    fn only_what_is_shown_is_told_of() {
        let small = case(Test::Bw, Memory::Private, 64, None);
        let flag = held("cacheline_pingpong");
        let text = of(Test::Bw, &[(&small, Some(&flag))]);
        assert!(text.contains("64 B: cacheline_pingpong, one way of a flag"), "{text}");
        assert!(!text.contains("memcpy") && text.contains("is a control message"), "{text}");
        assert!(text.contains("a reference for a stream and no limit"), "{text}");

        let page = case(Test::Bw, Memory::Reference, 8192, Some(10));
        let text = of(Test::Bw, &[(&page, None)]);
        assert_eq!(
            text,
            "A stream, until the other end has confirmed the last message.\nBy reference nothing is moved: there is no \
             bandwidth to hold it against."
        );
    }

    #[test]
    fn a_ratio_is_told_with_its_rounds_and_with_what_lies_between_them() {
        let cases = [64, 8192].map(|size| case(Test::Lat, Memory::Private, size, None));
        let flag = held("cacheline_pingpong");
        let (flipped, sum) = (Held { range: [0.7, 2.9], ..flag.clone() }, held("message_64+memcpy_1core"));
        let text = of(Test::Lat, &[(&cases[0], Some(&flipped)), (&cases[1], Some(&sum))]).replace('\n', " ");
        assert!(
            text.contains(
                "p50 over the limit (less is better), which is measured in turn with it; the median of 5 rounds:"
            ),
            "{text}"
        );
        assert!(text.contains("where they are far apart: 64 B 0.70 to 2.90."), "{text}");
        let once = Held { rounds: 1, ..flag };
        let text = of(Test::Lat, &[(&cases[0], Some(&once))]);
        assert!(text.contains("which is measured in the same run:") && !text.contains("apart"), "{text}");
    }

    #[test]
    fn what_a_rate_may_exceed_is_called_no_limit() {
        let (rate, flag) = (case(Test::Rate, Memory::Private, 64, None), held("cacheline_pingpong"));
        let text = of(Test::Rate, &[(&rate, Some(&flag))]).replace('\n', " ");
        assert!(text.contains("Ratio: messages over the reference's (more is better)"), "{text}");
        assert!(text.contains("no limit: one flag goes at a time"), "{text}");
        let lat = case(Test::Lat, Memory::Private, 64, None);
        assert!(!of(Test::Lat, &[(&lat, Some(&flag))]).contains("reference"));
    }

    #[test]
    fn streams_of_few_messages_are_not_cut() {
        for (count, cut) in [(Some(10), false), (Some(1000), true), (None, true)] {
            let stream = case(Test::Bw, Memory::Private, 8192, count);
            let text = of(Test::Bw, &[(&stream, None)]).replace('\n', " ");
            assert_eq!(text.contains("the median of several"), cut, "{count:?}");
        }
    }

    #[test]
    fn each_limit_and_each_part_of_it_is_explained_once() {
        let cases = [64, 8192, 65536].map(|size| case(Test::Fetch, Memory::Private, size, None));
        let (sum, ring) = (held("2*message_64+memcpy_1core"), held("xdp_fetch"));
        let text = of(Test::Fetch, &[(&cases[0], Some(&sum)), (&cases[1], Some(&ring)), (&cases[2], Some(&sum))]);
        let text = text.replace('\n', " ");
        assert!(text.contains("64 B, 64 KiB: 2*message_64+memcpy_1core. 2*message_64: a message"), "{text}");
        assert!(text.contains("8 KiB: xdp_fetch, a page that is asked for"), "{text}");
        assert_eq!(text.matches("memcpy_1core: ").count(), 1, "{text}");
        assert!(!text.contains("control message") && !text.contains("UDP"), "{text}");
    }

    #[test]
    fn every_limit_that_a_result_is_held_against_has_a_meaning() {
        for part in [
            "cacheline_pingpong",
            "message_64",
            "2*message_64",
            "memcpy_1core",
            "udp_pingpong",
            "udp_gso_oneway_header64",
            "udp_gso_stream",
            "packet_pingpong",
            "xdp_pingpong",
            "packet_fetch",
            "xdp_fetch",
            "packet_stream",
            "xdp_stream",
        ] {
            assert!(!meaning(part).contains("--help"), "{part}");
        }
    }
}
