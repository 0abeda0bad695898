//! D1 and D2: how fast each pair of hosts streams, and where the receiver's time goes.

use super::built_in;
use super::cpu::{Cost, PARTS};
use super::frame::PAGE;
use super::run::{Measured, Streams, streams};
use super::stack::Method;
use crate::outcome::{Axis, Bar, Drawing, Experiment, Figure, Line, Outcome, Paper};

pub(super) const EXPERIMENTS: &[Experiment] = &[
    Experiment { id: "D1", title: "Speculative Defragmentation: bandwidth by the way through both hosts", run: d1 },
    Experiment { id: "D2", title: "Speculative Defragmentation: what a wrong guess costs, for every pair", run: d2 },
];

const CONDITIONS: &str = "gige-pentium2, TCP, one sender, messages of 64 KiB without a pause";
const SLIDE_17: &str = "Speculative Defragmentation, slide 17";

/// What the paper gives for hosts of one kind, and whether a parameter was fitted to it.
const fn paper(method: Method) -> (f64, bool) {
    match method {
        Method::Standard => (42.0, true),
        Method::CopyingSocket => (45.0, true),
        Method::CopyingDriver => (46.0, false),
        Method::Remapping => (65.0, true),
        Method::Fbufs => (75.0, false),
    }
}

/// Short names, for axes.
const fn short(method: Method) -> &'static str {
    match method {
        Method::Standard => "standard",
        Method::CopyingSocket => "copying socket",
        Method::CopyingDriver => "copying driver",
        Method::Remapping => "remapping",
        Method::Fbufs => "fbufs",
    }
}

fn d1() -> Outcome {
    let parts = built_in("gige-pentium2");
    let runs = Method::ALL.map(|method| (method, streams(&parts, &Streams::new(method, method))));
    let mut outcome = Outcome { events: runs.iter().map(|(_, run)| run.events).sum(), ..Outcome::default() };
    for (method, run) in &runs {
        let (value, fitted) = paper(*method);
        let line = Line::new("D1", format!("bandwidth, {}", method.name()), CONDITIONS, "MB/s", run.mb_per_s());
        let line = line.against(Paper::Value(value), 10.0).source(SLIDE_17);
        outcome.lines.push(if fitted { line.fitted() } else { line });
    }
    let [standard, .., fbufs] = &runs;
    outcome.lines.push(
        Line::new(
            "D1",
            "bandwidth with fbufs over the standard stack",
            CONDITIONS,
            "x",
            fbufs.1.mb_per_s() / standard.1.mb_per_s(),
        )
        .against(Paper::Range([1.5, 2.0]), 0.0)
        .source("HPDC 2000 abstract: 1.5 to 2 times Linux 2.2"),
    );
    outcome.lines.extend(shares(&standard.1));
    let bars = runs.iter().map(|(method, run)| bar(short(*method), run.mb_per_s(), Some(paper(*method).0))).collect();
    outcome.figures.push(Figure {
        id: "d1-bandwidth".to_owned(),
        title: "Bandwidth of TCP by the way through both hosts".to_owned(),
        caption:
            "The standard stack; a copy left in the socket, or in the driver; none, by remapping or by fbufs. With \
                  fbufs the processor is no longer the limit: six descriptors a page keep the adapter busy."
                .to_owned(),
        drawing: Drawing::Bars { y: Axis::linear("bandwidth, MB/s"), bars },
    });
    outcome.figures.push(host_overhead(&runs));
    outcome
}

/// What the receiver's processor does in the standard stack, in percent of its work, the largest part first.
fn shares(standard: &Measured) -> Vec<Line> {
    let share = |part: usize| share_pct(standard.spent, part);
    let line = |part: usize| {
        Line::new("D1", format!("receiver's processor: {}", PARTS[part]), CONDITIONS, "%", share(part))
            .source("order as on slide 9, whose heights are not given")
    };
    (0..4).map(line).collect()
}

fn share_pct(spent: Cost, part: usize) -> f64 {
    spent.part(part).as_us() * 100.0 / spent.total().as_us()
}

fn host_overhead(runs: &[(Method, Measured)]) -> Figure {
    let per_page = |run: &Measured, part: usize| run.spent.part(part).as_us() * PAGE as f64 / run.bytes as f64;
    let bar = |(method, run): &(Method, Measured)| Bar {
        name: short(*method).to_owned(),
        parts: PARTS.iter().enumerate().map(|(part, name)| ((*name).to_owned(), per_page(run, part))).collect(),
        paper: None,
    };
    Figure {
        id: "d1-host-overhead".to_owned(),
        title: "What a page costs the receiver's processor".to_owned(),
        caption:
            "Microseconds for 4096 bytes, by part. In the standard stack the order is that of the paper: copy and \
                  checksum, interrupt, TCP/IP, driver. A driver that copies in its interrupt handler finds the next \
                  frame there when it is done, and so is interrupted less often."
                .to_owned(),
        drawing: Drawing::Bars {
            y: Axis::linear("processor time of a page, us"),
            bars: runs.iter().map(bar).collect(),
        },
    }
}

fn d2() -> Outcome {
    let parts = built_in("gige-pentium2");
    let mut outcome = Outcome::default();
    let mut bars = Vec::new();
    for sender in Method::ALL {
        for receiver in Method::ALL {
            let run = streams(&parts, &Streams { count: 100, ..Streams::new(sender, receiver) });
            outcome.events += run.events;
            outcome.lines.push(pair(sender, receiver, &run));
            if drawn(sender) && drawn(receiver) {
                bars.push(bar(
                    &format!("{} to {}", short(sender), short(receiver)),
                    run.mb_per_s(),
                    known(sender, receiver),
                ));
            }
        }
    }
    outcome.figures.push(Figure {
        id: "d2-penalties".to_owned(),
        title: "Bandwidth when sender and receiver differ".to_owned(),
        caption: "An ordinary receiver's stack puts a zero-copy sender's fragments together, which takes a copy. An \
                  ordinary sender's frames are not what a zero-copy receiver has guessed: its driver copies each \
                  out of the page that it landed in. Either way a page is copied once more than between two ordinary \
                  hosts."
            .to_owned(),
        drawing: Drawing::Bars { y: Axis::linear("bandwidth, MB/s"), bars },
    });
    outcome
}

/// Ways that the figure of pairs shows.
const fn drawn(method: Method) -> bool {
    matches!(method, Method::Standard | Method::Remapping | Method::Fbufs)
}

/// What the paper gives for a pair.
fn known(sender: Method, receiver: Method) -> Option<f64> {
    (sender == receiver).then(|| paper(sender).0)
}

fn pair(sender: Method, receiver: Method, run: &Measured) -> Line {
    let what = format!("bandwidth, from {} to {}", sender.name(), receiver.name());
    let line = Line::new("D2", what, CONDITIONS, "MB/s", run.mb_per_s());
    match known(sender, receiver) {
        Some(value) if paper(sender).1 => line.against(Paper::Value(value), 10.0).fitted().source(SLIDE_17),
        Some(value) => line.against(Paper::Value(value), 10.0).source(SLIDE_17),
        None if sender.sends_pages() == receiver.sends_pages() => line.source("prediction: each host keeps its way"),
        None if sender.sends_pages() => line.source("prediction: the stack copies fragments together"),
        None if receiver.guesses() => line.source("prediction: clean-up copies every frame out of guessed pages"),
        None => line.source("prediction: a copying driver has no pages to copy"),
    }
}

fn bar(name: &str, height: f64, paper: Option<f64>) -> Bar {
    Bar { name: name.to_owned(), parts: vec![(String::new(), height)], paper }
}
