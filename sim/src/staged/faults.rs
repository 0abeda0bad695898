//! T7 and N3: a page from another host's memory, as a call: how long, and by which parts (HPDC 1997, abstract; USENIX
//! 1998, section 5).

use crate::outcome::{Axis, Bar, Drawing, Figure, Line, Outcome, Paper};
use crate::point::Firmware;
use crate::time::Time;

use super::lab::{Lab, PAGE, below, built_in, eager, whole};
use super::machine::Machine;
use super::run::Run;

/// Bytes of a control message that a call uses (usenix98 node16); the rest of the slot is not touched.
const CALL: u64 = 16;

/// The machine, whose hosts touch only as much of a control message as a call needs.
fn for_calls(name: &str) -> Machine {
    let mut machine = built_in(name);
    machine.control_used = machine.control_used.min(CALL);
    machine
}

/// What a fetch of one page is spent on, in order: name, and microseconds.
fn parts(lab: &mut Lab, pair: [&Machine; 2], firmware: Firmware, len: u64) -> Vec<(String, f64)> {
    let ran = lab.go(Run::calls(pair, firmware, len, 1, 1).map(|run| run.interrupts().milestones()));
    let (request, reply) = (ran.milestones(0), ran.milestones(1));
    let steps = [
        ("client writes the request", request.posted),
        ("request travels", request.ready),
        ("server is interrupted and reads it", request.taken),
        ("server writes the reply", reply.posted),
        ("page travels", reply.ready),
        ("client is interrupted and goes on", reply.taken),
    ];
    let mut last = Time::START;
    let part = |(name, at): (&str, Time)| {
        let us = (at - last).as_us();
        last = at;
        (name.to_owned(), us)
    };
    steps.into_iter().map(part).collect()
}

/// T7: page fault by part.
pub(super) fn page_fault() -> Outcome {
    let mut lab = Lab::default();
    let (mut lines, mut bars) = (Vec::new(), Vec::new());
    let platforms = [
        ("alphastation500", "alphastation500", 384, 512),
        ("miata", "alcor", 512, 512),
        ("pentium2-440lx", "pentium2-440lx", 512, 512),
    ];
    for (client, server, send, recv) in platforms {
        let (from, to) = (for_calls(client), for_calls(server));
        let mut fetch = |firmware| parts(&mut lab, [&from, &to], firmware, PAGE);
        let (plain, through) = (fetch(whole()), fetch(eager(send, recv)));
        let sum = |parts: &[(String, f64)]| parts.iter().map(|(_, us)| us).sum::<f64>();
        let conditions = format!("client {client}, server {server}, interrupts, 8 KB page, request and reply use 16 B");
        let line = |what: &str, unit: &str, sim| Line::new("T7", what, conditions.clone(), unit, sim);
        let total = line("page fetch, cut-through", "us", sum(&through));
        lines.push(if client == "alphastation500" {
            total.against(Paper::Value(200.0), 15.0).fitted().source(
                "hpdc97 abstract and section 2.3; that a call uses 16 B is known of 1998 and was chosen for 1997 with \
                this figure in sight",
            )
        } else {
            total
        });
        lines.push(line("page fetch, store-and-forward", "us", sum(&plain)));
        if client == "alphastation500" {
            // What the assumption on control messages is worth: the texts do not say how much of them a fetch uses.
            let slots = built_in(client);
            let whole_slots = parts(&mut lab, [&slots, &slots], eager(send, recv), PAGE);
            let conditions = format!("client and server {client}, interrupts, 8 KB page, all 128 B of slots are used");
            lines.push(Line::new("T7", "page fetch, cut-through", conditions, "us", sum(&whole_slots)));
        }
        lines.push(line("gain of cut-through on a page fetch", "%", below(sum(&through), sum(&plain))));
        if client == "alphastation500" {
            lines.extend(through.iter().map(|(name, us)| line(&format!("part: {name}"), "us", *us)));
        }
        let paper = (client == "alphastation500").then_some(200.0);
        bars.push(Bar { name: format!("{client}, store-and-forward"), parts: plain, paper: None });
        bars.push(Bar { name: format!("{client}, cut-through"), parts: through, paper });
    }
    let caption = "A fetch is a request, an interrupt, the page, and an interrupt. Cut-through shortens the page's \
        way only, which is most of it.";
    let drawing = Drawing::Bars { y: Axis::linear("us"), bars };
    let title = "Page fetch by part".to_owned();
    let figure = Figure { id: "t7-fault".to_owned(), title, caption: caption.to_owned(), drawing };
    Outcome { lines, figures: vec![figure], events: lab.events }
}

/// Calls under way at the same time when they do not block: enough to hide a round trip.
const WINDOW: u64 = 8;

/// N3: `gms_net` calls.
pub(super) fn calls() -> Outcome {
    let mut lab = Lab::default();
    let (client, server) = (built_in("miata"), built_in("alcor"));
    let firmware = eager(512, 512);
    let pair = [&client, &server];
    let mut blocked = |len| {
        let ran = lab.go(Run::calls(pair, firmware, len, 50, 1).map(Run::interrupts));
        ran.watch.all().as_us() / 50.0
    };
    let (empty, half, page) = (blocked(0), blocked(4096), blocked(PAGE));
    let mut raw = |len| lab.bandwidth([&server, &client], firmware, len, 2000) / 1e6;
    let (raw_half, raw_page) = (raw(4096), raw(PAGE));
    let mut streamed = |len| {
        let ran = lab.go(Run::calls(pair, firmware, len, 2000, WINDOW).map(Run::interrupts));
        ran.bytes_per_s() / 1e6
    };
    let (rpc_half, rpc_page) = (streamed(4096), streamed(PAGE));
    let hosts = "client Miata, server Alcor, 16 B control messages by DMA, adaptive with minpulse 512 B";
    let line = |what: &str, unit: &str, sim| Line::new("N3", what, hosts, unit, sim).source("usenix98 node16");
    let lines = vec![
        line("call without payload, blocked caller", "us", empty),
        line("what 4 KB add to a call", "us", half - empty).against(Paper::Value(54.0), 15.0),
        line("what 8 KB add to a call", "us", page - empty).against(Paper::Value(92.0), 15.0).fitted(),
        line("messages of 4 KB, Alcor to Miata", "MB/s", raw_half).against(Paper::Value(88.0), 15.0).fitted(),
        line("share that calls keep of it at 4 KB", "%", rpc_half / raw_half * 100.0).against(Paper::Value(87.0), 15.0),
        line("messages of 8 KB, Alcor to Miata", "MB/s", raw_page),
        line("share that calls keep of it at 8 KB", "%", rpc_page / raw_page * 100.0)
            .against(Paper::Range([92.0, 100.0]), 5.0),
    ];
    let bar = |name: &str, sim, paper| Bar { name: name.to_owned(), parts: vec![(String::new(), sim)], paper };
    let bars = vec![
        bar("raw, 4 KB", raw_half, Some(88.0)),
        bar("calls, 4 KB", rpc_half, Some(77.0)),
        bar("raw, 8 KB", raw_page, None),
        bar("calls, 8 KB", rpc_page, None),
    ];
    let caption = format!(
        "Bandwidth of plain messages and of calls, {WINDOW} of which are under way at a time. Calls \
        cost their adapters a request each, which the server's bus and processor notice."
    );
    let drawing = Drawing::Bars { y: Axis::linear("MB/s"), bars };
    let title = "Calls against plain messages".to_owned();
    let figure = Figure { id: "n3-calls".to_owned(), title, caption, drawing };
    Outcome { lines, figures: vec![figure], events: lab.events }
}
