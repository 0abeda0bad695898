//! A forger who hears nothing. It knows who there is, what frames look like and how their sums are made, but not which
//! channels there are: it guesses their numbers, which are small, and their generations, which are drawn.

use cutthrough_engine::net::{Net, Tally};
use cutthrough_engine::time::Instant;
use cutthrough_wire::frame::{Header, Kind, Limits, Note, Opening, SEALED_BYTES, low};
use cutthrough_wire::slot::CONTROL_MAX;

use super::address;
use super::guard::Sum;
use super::memory::Host;
use super::network::Frame;
use super::options::Options;
use super::random::Random;
use super::receive::{Given, bring};

/// What frames of channels are for.
const KINDS: [Kind; 6] = [Kind::Records, Kind::Open, Kind::Data, Kind::Note, Kind::Probe, Kind::Close];
/// Numbers that a channel may have got to, from its first one on.
const NUMBERS: u64 = 200;

/// A frame of a channel that nobody has sent, as good as it can be guessed.
pub(super) fn frame((from, to): (usize, usize), options: &Options, random: &mut Random) -> Frame {
    let kind = random.pick(&KINDS);
    let mut number = || options.begin + random.below(NUMBERS);
    let (awaited, below, message, upto) = (number(), number(), number(), number());
    let number = if random.chance(800) { options.begin + random.below(NUMBERS) } else { random.next() };
    let limits = Limits { messages: low(upto + options.slots), unasked: low(upto + options.unasked) };
    let (words, body) = match kind {
        Kind::Records => {
            let control: [u8; 20] = random.bytes();
            ([low(message), 1], [&limits.to_bytes()[..], &[20, 0], &control].concat())
        }
        Kind::Open => {
            let control: [u8; CONTROL_MAX] = random.bytes();
            let opening =
                Opening { payload: 500, unasked: 500, token: None, pages: true, limits, control_len: 20, control };
            ([low(message), 0], [&opening.to_bytes()[..], &[7; 500]].concat())
        }
        Kind::Data => ([low(message), low(random.below(options.longest))], vec![7; 500]),
        Kind::Note => {
            let grant = Note::entry(low(message), low(options.longest));
            ([0, 0], [&Note::head(limits, 0, 1)[..], &grant].concat())
        }
        Kind::Close => ([low(message), 0], Vec::new()),
        _ => ([0, 0], Vec::new()),
    };
    let header = Header {
        kind,
        body: u16::try_from(body.len()).unwrap_or(0),
        tag: low(random.below(options.channels as u64)),
        generation: low(random.next()),
        awaited: low(awaited),
        number,
        below: low(below),
        held: 0,
        waits: random.chance(500),
        calls: 0,
        asks: 0,
        bits: random.pick(&[0, 1, u64::MAX]),
        words,
    };
    let mut bytes = header.to_bytes().to_vec();
    let sum = Sum::of(number, &bytes[..SEALED_BYTES], &body);
    bytes[SEALED_BYTES..].copy_from_slice(&sum);
    bytes.extend_from_slice(&body);
    Frame { from, to, way: 0, bytes }
}

/// Whether such a frame changes nothing at an endpoint, but that it is counted; what else it has done, as a sentence.
pub(super) fn is_refused(
    (net, given): (&mut Net<Host>, &mut Given),
    now: Instant,
    mut frame: Frame,
) -> Result<(), String> {
    let before = *net.tally();
    given.add(&frame.bytes);
    bring(net, now, address(frame.from), &mut frame.bytes, &mut None);
    let after = *net.tally();
    if after == (Tally { stale: before.stale + 1, ..before }) {
        return Ok(());
    }
    Err(format!("a frame whose generation was guessed is not refused: {:?}, from {before:?} to {after:?}", frame.bytes))
}
