//! Whole machines against arithmetic, and what must hold whatever the machine is.

use std::num::NonZeroU64;

use cutthrough_engine::pulse::Policy;
use proptest::prelude::*;

use super::layer::{Acks, Cost, Framing, Layer};
use super::parts::{Access, BusCost, Coprocessor, Nic, Wire};
use super::run::{Machine, Stream, cell_by_cell};
use super::{PLATFORMS, aal5, built_in};
use crate::time::{Rate, Span};

fn us(tenths: u64) -> Span {
    Span::from_ns(100 * tenths)
}

const WIRE: Wire = Wire { cell: Span::from_ns(3000), switch: None, output: 36, input: 292 };

fn access() -> Access {
    Access { write: us(20), look: us(10), rest: us(5), cell: us(40), batch: usize::MAX, saves: Some(us(5)), crc: us(7) }
}

fn coprocessor() -> Coprocessor {
    let rate = Rate::from_bytes_per_s(100_000_000).unwrap();
    Coprocessor {
        turn: us(10),
        single: us(50),
        multi: us(100),
        inline: 40,
        memory: 1 << 18,
        bus: BusCost { rate, burst: 32, setup: Span::from_ns(200) },
        pio: us(3),
    }
}

fn layer() -> Layer {
    Layer {
        framing: Framing::Aal5,
        header: 0,
        chunk: 5000,
        send: Cost { fixed: us(10), byte_ps: 0 },
        receive: Cost { fixed: us(20), byte_ps: 0 },
        write: Span::ZERO,
        stream: false,
        polls: false,
        window: 4,
        window_bytes: u64::MAX,
        acks: Some(Acks { bytes: 0, send: us(10), receive: us(10), every: 1 }),
    }
}

fn check(stream: &Stream, layer: &Layer, senders: u64, block: u64, count: u64) {
    let delivered = stream.delivered;
    assert_eq!((delivered.lost, delivered.disordered), (0, 0));
    assert_eq!(delivered.bytes, senders * block * count);
    for flow in &stream.world.hosts[0].flows {
        assert_eq!(flow.delivered, block * count);
        if !layer.stream {
            assert_eq!(flow.blocks, count);
        }
    }
    assert!(stream.world.hosts.iter().flat_map(|host| &host.flows).all(|flow| flow.most_copies as u64 <= layer.window));
    for host in &stream.world.hosts {
        assert!(host.input.is_empty() && host.output.is_empty() && host.jobs.is_empty());
    }
}

/// 1 us of the layer, 2 cells of 2.7 us in and 0.7 us at the other side; the receiver's looks last 1.5 us and know of
/// cells after 1 us.
#[test]
fn a_message_through_fifos_costs_its_parts() {
    let machine = Machine::new(Nic::Fifo(access()), WIRE);
    let stream = machine.stream(layer(), 1, 60, 1);
    check(&stream, &layer(), 1, 60, 1);
    // The first cell is pushed at 3.7 us and is there at 6.7 us; the look that began at 6.0 us finds it at 7.0 us. The
    // second is there at 9.7 us, while the first is fetched (until 11.5 us) and checked (12.2 us); the next look begins
    // then, and knows at 13.2 us. Rest, cell, check and layer: 7.2 us.
    assert_eq!(stream.delivered.first.map(|time| time.as_us()), Some(13.2 + 0.5 + 4.0 + 0.7 + 2.0));
}

/// A lone cell inside its descriptor: every time in the order of travel.
#[test]
fn a_cell_through_the_firmware_costs_its_parts() {
    let machine = Machine::new(Nic::Coprocessor(coprocessor()), WIRE);
    let stream = machine.stream(layer(), 1, 24, 1);
    check(&stream, &layer(), 1, 24, 1);
    // The layer until 1.0, stores until 3.1; the next turn at 4.0 takes it up until 9.0, pushes until 10.0; on the
    // fibre until 13.0; taken up until 18.0; DMA of data and descriptor takes 0.8 us, seen at 19.0; the layer.
    assert_eq!(stream.delivered.first.map(|time| time.as_us()), Some(19.0 + 2.0));
    let long = machine.stream(layer(), 1, 41, 1).delivered.first.map(|time| time.as_us());
    // Stores until 2.2; taken up from 3.0 until 18.0; 0.81 us of DMA, so pushed from 19.0 until 20.0; the trailer's
    // cell in the next turn. On the fibre until 23.0 and 26.0; taken up until 28.0; 0.81 us of DMA, so all there in
    // the turn at 29.0, which throws the trailer's cell away; 10 us for its buffers; 0.36 us of descriptor; the layer.
    assert_eq!(long, Some(29.0 + 10.0 + 0.36 + 2.0));
}

#[test]
fn a_stream_runs_at_the_pace_of_its_slowest_stage() {
    let near = |rate: f64, expected: f64| assert!((rate / expected - 1.0).abs() < 0.01, "{rate} against {expected}");
    let free = Layer { acks: None, window: u64::MAX, ..layer() };
    let machine = Machine::new(Nic::Coprocessor(coprocessor()), WIRE);
    // The fibre: 42 cells of 3 us for 2000 bytes.
    near(machine.stream(free, 1, 2000, 200).steady(), 2000.0 / (42.0 * 3e-6));
    // The i960: 15 us, two turns for each of 42 cells, and one that finds the end.
    let slow = Coprocessor { turn: us(20), ..coprocessor() };
    let machine = Machine::new(Nic::Coprocessor(slow), WIRE);
    near(machine.stream(free, 1, 2000, 200).steady(), 2000.0 / ((42.0 * 4.0 + 15.0 + 2.0) * 1e-6));
    // The receiving host, which fetches and checks cells for 4.7 us, and looks once for many.
    let machine = Machine::new(Nic::Fifo(access()), WIRE);
    let rate = machine.stream(Layer { window: 6, ..layer() }, 1, 2000, 100).steady();
    assert!(rate < 2000.0 / (42.0 * 4.7e-6) && rate > 2000.0 / (42.0 * 5.3e-6), "{rate}");
}

#[test]
fn a_switch_adds_its_latency_and_lets_one_cell_out_at_a_time() {
    let with = |wire| Machine::new(Nic::Coprocessor(coprocessor()), wire);
    let first = |wire| with(wire).stream(layer(), 1, 480, 1).delivered.first.unwrap();
    let switched = Wire { switch: Some(us(100)), ..WIRE };
    assert_eq!((first(switched) - first(WIRE)), us(100));
    let senders = 5;
    let stream = with(switched).stream(layer(), senders, 2000, 40);
    check(&stream, &layer(), 5, 2000, 40);
    let port = 2000.0 / (42.0 * 3e-6);
    assert!(stream.overall() < port && stream.overall() > 0.9 * port, "{}", stream.overall());
}

#[test]
fn an_input_fifo_that_overflows_loses_cells_and_says_so() {
    let free = Layer { acks: None, window: u64::MAX, ..layer() };
    for nic in [Nic::Fifo(access()), Nic::Coprocessor(Coprocessor { turn: us(60), ..coprocessor() })] {
        let fast = Wire { input: 20, ..WIRE };
        let senders = Machine::new(nic, fast).stream(free, 3, 5000, 40);
        assert!(senders.delivered.lost > 0 && senders.point().is_err());
    }
}

#[test]
fn answers_acknowledge_and_every_round_is_counted() {
    for nic in [Nic::Fifo(access()), Nic::Coprocessor(coprocessor())] {
        let machine = Machine::new(nic, WIRE);
        let round = |rounds| machine.round_trip(layer(), 500, 100, rounds).0.as_us();
        assert!((round(1) / round(20) - 1.0).abs() < 0.1, "{} {}", round(1), round(20));
        assert_eq!(machine.round_trip(layer(), 500, 100, 20), machine.round_trip(layer(), 500, 100, 20));
    }
}

/// What a cell-by-cell adapter does, waiting for whole messages does later, in order and completely.
#[test]
fn store_and_forward_is_never_faster() {
    for bytes in [48, 500, 4096, 30_000] {
        let machine = Machine::new(Nic::Coprocessor(coprocessor()), WIRE);
        let layer = Layer { chunk: 65_535, ..layer() };
        let time = |send, recv| Machine { send, recv, ..machine }.stream(layer, 1, bytes, 1).delivered.first.unwrap();
        let cut = time(cell_by_cell(), cell_by_cell());
        let whole = time(Policy::StoreAndForward, Policy::StoreAndForward);
        assert!(whole >= cut, "{bytes}: {whole:?} {cut:?}");
        let fibre = WIRE.cell * aal5::cells(bytes);
        // A FIFO of 292 cells makes longer ones start before their end.
        assert!(bytes != 4096 || whole - cut > Span::from_ps(fibre.as_ps() / 2), "{bytes}: {whole:?} {cut:?}");
        assert_eq!(time(Policy::default(), Policy::default()), cut);
    }
}

fn any_policy() -> impl Strategy<Value = Policy> {
    let bytes = (1u64..3000).prop_map(|bytes| NonZeroU64::new(bytes).unwrap());
    prop_oneof![
        Just(Policy::StoreAndForward),
        bytes.clone().prop_map(Policy::Fixed),
        bytes.prop_map(|bytes| Policy::Adaptive { minpulse: Some(bytes) }),
        Just(Policy::default()),
    ]
}

fn any_nic() -> impl Strategy<Value = Nic> {
    let fifo = (0..90u64, 1..30u64, 0..90u64, 1..20usize).prop_map(|(write, look, cell, batch)| {
        Nic::Fifo(Access { write: us(write), look: us(look), cell: us(cell), batch, ..access() })
    });
    let i960 = (1..25u64, 0..99u64, 0..40u64, 48..600u64, 0..300u64).prop_map(|(turn, single, inline, memory, bus)| {
        let bus = BusCost { setup: us(bus / 10), ..coprocessor().bus };
        Nic::Coprocessor(Coprocessor { turn: us(turn), single: us(single), inline, memory, bus, ..coprocessor() })
    });
    prop_oneof![fifo, i960]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// Every byte is delivered once, whatever the machine and the rule, as long as the FIFO holds a whole window.
    #[test]
    fn nothing_is_lost_or_made_up(
        nic in any_nic(), send in any_policy(), recv in any_policy(), senders in 1..4usize, block in 0..2500u64,
        count in 1..12u64, window in 1..4u64, output in 1..40usize, chunk in 1..2500u64, stream: bool, switch: bool
    ) {
        let chunk = chunk.max(block / 20).max(1);
        let layer = Layer { chunk, window, stream, ..layer() };
        let input = 3 * 4 * usize::try_from(aal5::cells(chunk)).unwrap();
        let wire = Wire { output, input, switch: switch.then_some(us(100)), ..WIRE };
        let stream = Machine { nic, wire, send, recv }.stream(layer, senders, block, count);
        check(&stream, &layer, senders as u64, block, count);
    }

    /// The answer to a longer question never comes sooner by more than the phase of a look.
    #[test]
    fn longer_messages_take_longer(nic in any_nic(), bytes in 0..3000u64, more in 1..500u64) {
        let machine = Machine::new(nic, WIRE);
        let time = |bytes| machine.stream(layer(), 1, bytes, 1).delivered.first.unwrap().as_us();
        prop_assert!(time(bytes + more) >= time(bytes) - 6.0);
    }
}

#[test]
fn nothing_costs_nothing_and_ends_all_the_same() {
    let rate = Rate::from_bytes_per_s(1_000_000_000_000).unwrap();
    let nothing = Span::ZERO;
    let least = Span::from_ps(1);
    let bus = BusCost { rate, burst: 1, setup: nothing };
    let i960 = Coprocessor { turn: least, single: nothing, multi: nothing, bus, pio: nothing, ..coprocessor() };
    let fifo = Access { write: nothing, look: least, rest: nothing, cell: nothing, crc: nothing, ..access() };
    for nic in [Nic::Fifo(fifo), Nic::Coprocessor(i960)] {
        let wire = Wire { cell: least, switch: None, output: 1, input: 292 };
        let layer = Layer { send: Cost::default(), receive: Cost::default(), ..layer() };
        let stream = Machine::new(nic, wire).stream(layer, 1, 1000, 10);
        check(&stream, &layer, 1, 1000, 10);
    }
}

#[test]
fn built_in_platforms_are_well_formed() {
    for (name, _) in PLATFORMS {
        assert_eq!(built_in(name).name(), *name);
    }
}
