//! The results of U-Net: rows U1 to U6.

use crate::outcome::{Axis, Bar, Curve, Drawing, Experiment, Figure, Line, Mark, Outcome, Paper};

use super::layer::{Acks, Layer};
use super::run::{Emulated, Machine, Unet, Vendor};
use super::{aal5, built_in};

pub(super) const EXPERIMENTS: &[Experiment] = &[
    Experiment { id: "U1", title: "U-Net: round trips of raw messages", run: round_trips },
    Experiment { id: "U2", title: "U-Net: bandwidth of raw messages", run: bandwidth },
    Experiment { id: "U3", title: "U-Net: emulated endpoints on the SBA-100", run: emulated },
    Experiment { id: "U4", title: "U-Net: the vendor's firmware as a baseline", run: vendor },
    Experiment { id: "U5", title: "U-Net Active Messages", run: active_messages },
    Experiment { id: "U6", title: "TCP over U-Net and in the kernel", run: tcp },
];

/// Questions whose times are averaged.
const ROUNDS: u64 = 16;
/// Bytes of a stream that is measured.
const STREAM: u64 = 200_000;
/// Words of a smallest message, and what the paper calls one cell.
const SMALL: u64 = 32;

fn unet() -> Unet {
    Unet::read(&built_in("unet-sba200")).expect("the built-in platform suits its model")
}

fn fore() -> Vendor {
    Vendor::read(&built_in("fore-sba200")).expect("the built-in platform suits its model")
}

fn sba100() -> Emulated {
    Emulated::read(&built_in("unet-sba100")).expect("the built-in platform suits its model")
}

/// Measures, and adds up the events that it took.
#[derive(Debug, Default)]
struct Bench {
    events: u64,
}

impl Bench {
    /// Microseconds until a message of `bytes` bytes is answered by one of the same size.
    fn round_trip(&mut self, machine: &Machine, layer: Layer, bytes: u64) -> f64 {
        let (time, events) = machine.round_trip(layer, bytes, bytes, ROUNDS);
        self.events += events;
        time.as_us()
    }

    /// MB/s of a lasting stream of blocks of `bytes` bytes.
    fn rate(&mut self, machine: &Machine, layer: Layer, bytes: u64) -> f64 {
        let count = (STREAM / bytes.max(1)).clamp(24, 600);
        let stream = machine.stream(layer, 1, bytes, count);
        self.events += stream.events;
        stream.steady() / 1e6
    }

    fn curve(&mut self, name: &str, sizes: &[u64], mut value: impl FnMut(&mut Self, u64) -> f64) -> Curve {
        let points = sizes.iter().map(|&size| [size as f64, value(self, size)]).collect();
        Curve { name: name.to_owned(), points }
    }
}

fn mark(x: f64, y: f64, label: &str) -> Mark {
    Mark { at: [x, y], label: label.to_owned() }
}

fn curves(id: &str, title: &str, caption: &str, [x, y]: [Axis; 2], curves: Vec<Curve>, marks: Vec<Mark>) -> Figure {
    let drawing = Drawing::Curves { x, y, curves, marks };
    Figure { id: id.to_owned(), title: title.to_owned(), caption: caption.to_owned(), drawing }
}

/// Payload that the fibre carries in messages of `bytes` bytes, in MB/s: whole cells, with padding and trailers.
fn fibre_limit(machine: &Machine, bytes: u64) -> f64 {
    bytes as f64 / (machine.wire.cell.as_us() * aal5::cells(bytes) as f64)
}

/// Payloads up to 5 KB whose cells are all full, and the shortest.
fn raw_sizes() -> Vec<u64> {
    let full = [1, 2, 3, 4, 6, 8, 10, 12, 14, 17, 20, 24, 28, 34, 43, 54, 64, 75, 86, 96, 106];
    [4, 16].into_iter().chain(full.map(|cells| 48 * cells - 8)).collect()
}

fn round_trips() -> Outcome {
    let (unet, fore, sba100) = (unet(), fore(), sba100());
    let (machine, raw) = (unet.base.machine(), unet.base.raw(1));
    let mut bench = Bench::default();
    let one = bench.round_trip(&machine, raw, SMALL);
    let two = bench.round_trip(&machine, raw, 48);
    let more = 20;
    let slope = (bench.round_trip(&machine, raw, 48 * (1 + more)) - two) / more as f64;
    let lines = vec![
        Line::new("U1", "round trip of a message of one cell", "SBA-200, switch", "us", one)
            .against(Paper::Value(65.0), 10.0)
            .fitted()
            .source("slide 10; fitted: firmware.single"),
        Line::new("U1", "round trip of 48 bytes, beyond the fast path", "SBA-200, switch", "us", two)
            .against(Paper::Value(120.0), 10.0)
            .fitted()
            .source("slide 10; fitted: firmware.multi"),
        Line::new("U1", "each further cell, both ways", "48 to 1008 bytes", "us", slope)
            .against(Paper::Value(6.0), 10.0)
            .fitted()
            .source(
                "slide 10; no number is fitted to it: the fibre's time for two cells. But that firmware.multi comes at \
                 a received message's end was chosen after it: at its beginning cells would overlap with it (4.8 us)",
            ),
    ];
    let sizes: Vec<u64> = (0..=32).map(|cells| 48 * cells).map(|bytes| bytes.max(4)).chain([40, 41]).collect();
    let mut sizes = sizes;
    sizes.sort_unstable();
    let raw_curve = bench.curve("U-Net, SBA-200", &sizes, |bench, size| bench.round_trip(&machine, raw, size));
    let fore_machine = fore.base.machine();
    let fore_curve = bench.curve("vendor's firmware, SBA-200", &sizes, |bench, size| {
        bench.round_trip(&fore_machine, fore.base.raw(1), size)
    });
    let small_machine = sba100.machine();
    let small = bench.curve("U-Net, SBA-100", &sizes, |bench, size| {
        sba100.layer(size, 1).map_or(f64::NAN, |layer| bench.round_trip(&small_machine, layer, size))
    });
    let figure = curves(
        "u1-round-trip",
        "U-Net: round trips of raw messages",
        "A message of one cell travels inside its descriptor; a longer one needs buffers and DMA, once. After that \
         each cell adds what the fibre takes for it. The SBA-100 pays for each cell with its host's processor.",
        [Axis::linear("payload, bytes"), Axis::linear("round trip, us")],
        vec![raw_curve, fore_curve, small],
        vec![mark(SMALL as f64, 65.0, "U-Net"), mark(48.0, 120.0, "U-Net"), mark(SMALL as f64, 160.0, "vendor")],
    );
    Outcome { lines, figures: vec![figure], events: bench.events }
}

/// A fibre counts as full from this share of its rate on.
const FULL: f64 = 0.98;

fn bandwidth() -> Outcome {
    let (unet, fore, sba100) = (unet(), fore(), sba100());
    let (machine, raw) = (unet.base.machine(), unet.base.raw(1));
    let mut bench = Bench::default();
    let top = bench.rate(&machine, raw, 5000);
    let full = (1..107)
        .map(|cells| 48 * cells - 8)
        .find(|&bytes| bench.rate(&machine, raw, bytes) >= FULL * fibre_limit(&machine, bytes));
    let lines = vec![
        Line::new("U2", "bandwidth of raw messages", "SBA-200, 5000 bytes", "MB/s", top)
            .against(Paper::Value(15.0), 20.0)
            .fitted()
            .source("slide 10; firmware.turn is bounded by it, not determined"),
        Line::new("U2", "payload that fills the fibre", "SBA-200", "B", full.unwrap_or(0) as f64)
            .source("predicted: the shortest message of full cells with 98 % of the fibre's rate"),
        Line::new("U2", "bandwidth of raw messages", "SBA-200, 1000 bytes", "MB/s", bench.rate(&machine, raw, 1000))
            .source("predicted"),
    ];
    let sizes = raw_sizes();
    let limit = bench.curve("fibre", &sizes, |_, size| fibre_limit(&machine, size));
    let raw_curve = bench.curve("U-Net, SBA-200", &sizes, |bench, size| bench.rate(&machine, raw, size));
    let fore_machine = fore.base.machine();
    let fore_curve = bench
        .curve("vendor's firmware, SBA-200", &sizes, |bench, size| bench.rate(&fore_machine, fore.base.raw(1), size));
    let small_machine = sba100.machine();
    let small = bench.curve("U-Net, SBA-100", &sizes, |bench, size| {
        sba100.layer(size, 1).map_or(f64::NAN, |layer| bench.rate(&small_machine, layer, size))
    });
    let figure = curves(
        "u2-bandwidth",
        "U-Net: bandwidth of raw messages",
        "While the output FIFO drains, the i960 takes up the next message: from some size on the fibre never waits. \
         Where U-Net's curve meets the fibre's is predicted. Sizes are chosen so that all cells are full.",
        [Axis::linear("payload, bytes"), Axis::linear("bandwidth, MB/s")],
        vec![limit, raw_curve, fore_curve, small],
        vec![mark(5000.0, 15.0, "U-Net"), mark(4096.0, 13.0, "vendor")],
    );
    Outcome { lines, figures: vec![figure], events: bench.events }
}

fn emulated() -> Outcome {
    let sba100 = sba100();
    let machine = sba100.machine();
    let mut bench = Bench::default();
    let mut lines = Vec::new();
    if let Ok(layer) = sba100.layer(SMALL, 1) {
        let one = bench.round_trip(&machine, layer, SMALL);
        let line = Line::new("U3", "round trip of a message of one cell", "SBA-100, switch", "us", one);
        let source = "slide 9; fitted: aal5.crc";
        lines.push(line.against(Paper::Value(66.0), 10.0).fitted().source(source));
    }
    if let Ok(layer) = sba100.layer(1024, 1) {
        let rate = bench.rate(&machine, layer, 1024);
        let source = "predicted: the receiver sets it, who reads, checks and stores each cell";
        lines.push(Line::new("U3", "bandwidth of raw messages", "SBA-100, 1 KB", "MB/s", rate).source(source));
    }
    let [send, receive] = sba100.cell_costs();
    for (what, cost) in [("sending side alone", send), ("receiving side alone", receive)] {
        let rate = aal5::PAYLOAD as f64 / cost.as_us();
        let source = "predicted: 48 bytes over the host's time for a cell";
        lines.push(Line::new("U3", format!("limit of the {what}"), "SBA-100", "MB/s", rate).source(source));
    }
    Outcome { lines, figures: Vec::new(), events: bench.events }
}

fn vendor() -> Outcome {
    let (unet, fore) = (unet(), fore());
    let (machine, raw) = (fore.base.machine(), fore.base.raw(1));
    let mut bench = Bench::default();
    let one = bench.round_trip(&machine, raw, SMALL);
    let rate = bench.rate(&machine, raw, 4096);
    let gain = one / bench.round_trip(&unet.base.machine(), unet.base.raw(1), SMALL);
    let lines = vec![
        Line::new("U4", "round trip of a message of one cell", "vendor's firmware", "us", one)
            .against(Paper::Value(160.0), 15.0)
            .fitted()
            .source("slide 10; fitted: firmware.single"),
        Line::new("U4", "bandwidth of raw messages", "vendor's firmware, 4 KB", "MB/s", rate)
            .against(Paper::Value(13.0), 15.0)
            .fitted()
            .source("slide 10; fitted: firmware.turn"),
        Line::new("U4", "round trip, vendor's firmware over U-Net's", "one cell", "x", gain)
            .against(Paper::Value(160.0 / 65.0), 15.0)
            .fitted()
            .source("slide 10; both are fitted"),
        Line::new(
            "U4",
            "bandwidth of raw messages",
            "vendor's firmware, 1 KB",
            "MB/s",
            bench.rate(&machine, raw, 1024),
        )
        .source("predicted"),
    ];
    Outcome { lines, figures: Vec::new(), events: bench.events }
}

/// The same layer with a window that a round trip cannot exhaust, to show what hangs on it.
fn wide(layer: Layer) -> Layer {
    Layer { window: 8, acks: layer.acks.map(|acks| Acks { every: 2, ..acks }), ..layer }
}

fn active_messages() -> Outcome {
    let unet = unet();
    let (machine, raw, uam) = (unet.base.machine(), unet.base.raw(1), unet.uam);
    let mut bench = Bench::default();
    let words = 16;
    let one = bench.round_trip(&machine, uam, words);
    let over = one - bench.round_trip(&machine, raw, SMALL);
    let (low, high) = (512, uam.chunk);
    let block = |bench: &mut Bench, bytes| bench.round_trip(&machine, uam, bytes);
    let per_byte = (block(&mut bench, high) - block(&mut bench, low)) / (high - low) as f64;
    let (far, farther) = (8 * high, 16 * high);
    let long = (block(&mut bench, farther) - block(&mut bench, far)) / (farther - far) as f64;
    let at = |bench: &mut Bench, bytes| bench.rate(&machine, uam, bytes);
    let mut dip = |layer: Layer| {
        let at = |bench: &mut Bench, bytes| bench.rate(&machine, layer, bytes);
        (1.0 - at(&mut bench, high + 4) / at(&mut bench, high)) * 100.0
    };
    let (deep, shallow) = (dip(uam), dip(wide(uam)));
    let lines = vec![
        Line::new("U5", "round trip of a request of one cell", "4 words", "us", one)
            .against(Paper::Value(71.0), 10.0)
            .source("slide 11; predicted from raw U-Net and SSAM's cost of a layer"),
        Line::new("U5", "what Active Messages add to a raw round trip", "one cell", "us", over)
            .against(Paper::Value(6.0), 10.0)
            .source("slide 11: about 6 us"),
        Line::new(
            "U5",
            "round trip of a block there and a block back, each byte",
            "one chunk or less",
            "us/B",
            per_byte,
        )
        .source("predicted: two copies and the fibre each way, one after the other"),
        Line::new("U5", "round trip of a block there and a block back, each byte", "many chunks", "us/B", long)
            .source("predicted: chunks overlap, so the fibre alone counts"),
        Line::new(
            "U5",
            "round trip of a block of 4 bytes there and back, by extension",
            "block path",
            "us",
            block(&mut bench, low) - per_byte * low as f64,
        )
        .source("predicted: the line through 512 bytes and a whole chunk at nothing"),
        Line::new("U5", "bandwidth of block stores", "2 KB", "MB/s", at(&mut bench, 2048)).source("predicted"),
        Line::new("U5", "bandwidth of block stores", "4 KB", "MB/s", at(&mut bench, 4096)).source("predicted"),
        Line::new("U5", "loss of bandwidth just beyond a chunk", "4 bytes more than 4 KB", "%", deep)
            .source("predicted for the window of SP AM (2 chunks): the few bytes take one of its places"),
        Line::new("U5", "loss of bandwidth just beyond a chunk", "4 bytes more, window of 8 chunks", "%", shallow)
            .source("predicted, if the window was wide: what remains is the cell of the second message"),
    ];
    let mut sizes: Vec<u64> = raw_sizes();
    sizes.extend([high - 40, high, high + 4, high + 200, 6000, 2 * high, 2 * high + 4]);
    sizes.sort_unstable();
    let figures = vec![
        curves(
            "u5-bandwidth",
            "U-Net Active Messages: bandwidth of block stores",
            "A block goes in messages of a page. A little more than a page takes a second message, which fills a place \
             in the window with a few bytes: the dip. No text found gives the window; two chunks are those of SP AM, \
             the sibling. With eight the dip all but vanishes.",
            [Axis::linear("block, bytes"), Axis::linear("bandwidth, MB/s")],
            vec![
                bench.curve("raw U-Net", &sizes, |bench, size| bench.rate(&machine, raw, size)),
                bench.curve("window of 2 chunks", &sizes, |bench, size| bench.rate(&machine, uam, size)),
                bench.curve("window of 8 chunks", &sizes, |bench, size| bench.rate(&machine, wide(uam), size)),
            ],
            Vec::new(),
        ),
        curves(
            "u5-round-trip",
            "U-Net Active Messages: round trips",
            "A block there and a block back. Up to a chunk copies and fibre add up, beyond it they overlap.",
            [Axis::linear("block, bytes"), Axis::linear("round trip, us")],
            vec![
                bench.curve("raw U-Net", &sizes, |bench, size| bench.round_trip(&machine, raw, size)),
                bench.curve("Active Messages", &sizes, |bench, size| bench.round_trip(&machine, uam, size)),
            ],
            vec![mark(words as f64, 71.0, "one cell")],
        ),
    ];
    Outcome { lines, figures, events: bench.events }
}

/// Writes for which the published figures hold.
const WRITES: u64 = 8192;

fn tcp() -> Outcome {
    let (unet, fore) = (unet(), fore());
    let (machine, vendor) = (unet.base.machine(), fore.base.machine());
    let mut bench = Bench::default();
    let user = bench.rate(&machine, unet.tcp, WRITES);
    let kernel = bench.rate(&vendor, fore.tcp(WRITES), WRITES);
    let trip = bench.round_trip(&machine, unet.tcp, 4);
    let kernel_trip = bench.round_trip(&vendor, fore.tcp(4), 4);
    let lines = vec![
        Line::new("U6", "TCP over U-Net", "window of 8 KB, writes of 8 KB", "MB/s", user)
            .against(Paper::Range([14.0, 15.0]), 10.0)
            .source("slide 15; predicted from raw U-Net and assumed costs of a segment"),
        Line::new("U6", "TCP in the kernel", "64 KB asked for, 52 KB given, writes of 8 KB", "MB/s", kernel)
            .against(Paper::Value(10.0), 10.0)
            .fitted()
            .source("slide 15; fitted: kernel.bytes"),
        Line::new("U6", "TCP over U-Net against TCP in the kernel", "writes of 8 KB", "x", user / kernel)
            .against(Paper::Range([1.3, 1.6]), 0.0)
            .source("slide 15; the kernel's side is fitted"),
        Line::new("U6", "round trip of TCP over U-Net", "4 bytes", "us", trip).source("predicted"),
        Line::new("U6", "round trip of TCP in the kernel", "4 bytes", "us", kernel_trip).source("predicted"),
    ];
    let sizes: Vec<u64> = (6..=13)
        .flat_map(|log| [4u64 << log, 5 << log, 6 << log, 7 << log].map(|size| size / 4))
        .chain([16384])
        .collect();
    let figures = vec![
        curves(
            "u6-bandwidth",
            "TCP: bandwidth over the size of writes",
            "Over U-Net a window of 8 KB is enough, because little time passes until an acknowledgement. In the kernel \
             the processor copies, checks and chains buffers; what does not fill a cluster goes into small ones.",
            [Axis::linear("write, bytes"), Axis::linear("bandwidth, MB/s")],
            vec![
                bench.curve("U-Net, window of 8 KB", &sizes, |bench, size| bench.rate(&machine, unet.tcp, size)),
                bench.curve("kernel, window of 52 KB", &sizes, |bench, size| bench.rate(&vendor, fore.tcp(size), size)),
            ],
            vec![mark(WRITES as f64, 14.5, "U-Net"), mark(WRITES as f64, 10.0, "kernel")],
        ),
        curves(
            "u6-round-trip",
            "TCP: round trips",
            "What the kernel adds to a message is several times what the network needs for it.",
            [Axis::linear("message, bytes"), Axis::linear("round trip, us")],
            vec![
                bench.curve("U-Net", &sizes, |bench, size| bench.round_trip(&machine, unet.tcp, size)),
                bench.curve("kernel", &sizes, |bench, size| bench.round_trip(&vendor, fore.tcp(size), size)),
            ],
            Vec::new(),
        ),
        Figure {
            id: "u6-bars".to_owned(),
            title: "TCP over U-Net and in the kernel".to_owned(),
            caption: "Writes of 8 KB. The middle of 14 to 15 MB/s stands for the paper's figure of U-Net.".to_owned(),
            drawing: Drawing::Bars {
                y: Axis::linear("bandwidth, MB/s"),
                bars: vec![
                    Bar { name: "U-Net".to_owned(), parts: vec![("TCP".to_owned(), user)], paper: Some(14.5) },
                    Bar { name: "kernel".to_owned(), parts: vec![("TCP".to_owned(), kernel)], paper: Some(10.0) },
                ],
            },
        },
    ];
    Outcome { lines, figures, events: bench.events }
}

/// What an active message costs on the SBA-200, for the machine that Split-C programs run on.
#[cfg(test)]
#[derive(Debug)]
pub(crate) struct Costs {
    /// Processor time to send one, and to take one in.
    pub(crate) send: f64,
    pub(crate) handle: f64,
    /// Round trip of a request of 4 words, and of a whole chunk there and back.
    pub(crate) round_trip: f64,
    pub(crate) chunk_round_trip: f64,
    /// Time for each message in a stream of messages of one cell.
    pub(crate) each: f64,
    /// Rate of a stream of whole chunks.
    pub(crate) mb_per_s: f64,
}

/// Times in microseconds.
#[cfg(test)]
pub(crate) fn costs() -> Costs {
    let Unet { base, uam, .. } = unet();
    let machine = base.machine();
    let mut bench = Bench::default();
    Costs {
        send: (uam.send.fixed + base.firmware.pio * super::host::INLINE_STORES).as_us(),
        handle: uam.receive.fixed.as_us(),
        round_trip: bench.round_trip(&machine, uam, 16),
        chunk_round_trip: bench.round_trip(&machine, uam, uam.chunk),
        each: SMALL as f64 / bench.rate(&machine, base.raw(1), SMALL),
        mb_per_s: bench.rate(&machine, uam, uam.chunk),
    }
}
