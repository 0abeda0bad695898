//! What a liar says: a frame that it has sent, or could have, with something in it that is not so.

use cutthrough_engine::seal::OPENING_NUMBER;
use cutthrough_engine::token::Token;
use cutthrough_seal::EPOCH;
use cutthrough_wire::frame::{Header, Kind, LIMITS_BYTES, Limits, NOTE_BYTES, Note, OPENING_BYTES, WANTS_NO_MORE, low};

use super::super::options::Options;
use super::super::random::Random;
use super::tap::{Known, OPENING, Plain};

/// What a frame of a channel is for.
const KINDS: [Kind; 6] = [Kind::Records, Kind::Open, Kind::Data, Kind::Note, Kind::Probe, Kind::Close];
/// The longest body of a lie: what a datagram carries is less.
const LONGEST: usize = 60_000;

/// What lies are made of.
pub(super) struct Around<'a> {
    pub(super) options: &'a Options,
    /// Headers of what the victim has said, and tokens that it has told of; some of them are used up.
    pub(super) heard: Vec<Header>,
    pub(super) tokens: &'a [Token],
    /// The greatest number of a frame that has gone.
    pub(super) top: u64,
    /// Another frame of the channel.
    pub(super) other: Option<Plain>,
}

impl<'a> Around<'a> {
    pub(super) fn new(options: &'a Options, known: &Known, tokens: &'a [Token], random: &mut Random) -> Self {
        let other = (!known.sent.is_empty()).then(|| known.sent[random.index(known.sent.len())].clone());
        Self { options, heard: known.heard.iter().copied().collect(), tokens, top: known.top, other }
    }

    /// The number of a message of the victim's, or one near it, or any.
    fn message(&self, random: &mut Random) -> u32 {
        let heard = (!self.heard.is_empty()).then(|| self.heard[random.index(self.heard.len())].words[0]);
        let near = low(self.options.begin + random.below(100));
        let heard = heard.unwrap_or(near);
        let any = low(random.next());
        random.pick(&[heard, heard, heard.wrapping_add(1), heard.wrapping_sub(1), near, any])
    }

    /// A length or an offset near a border.
    fn bytes(&self, random: &mut Random) -> u32 {
        let longest = low(self.options.longest);
        let any = low(random.next());
        let some = low(random.below(self.options.longest + 1));
        random.pick(&[0, 1, some, some, longest, longest + 1, 1 << 30, (1 << 30) + 1, u32::MAX, u32::MAX - 1, any])
    }
}

type Lie = fn(&mut Plain, &Around<'_>, &mut Random);

/// All lies; a seed has some of them.
pub(super) const LIES: [Lie; 18] = [
    acknowledges,
    awaits,
    holds,
    goes_ahead,
    changes_epoch,
    renames,
    moves,
    differs,
    stretches,
    opens,
    names_tokens,
    limits,
    breaks_records,
    grants,
    changes_kind,
    closes,
    repeats,
    overlaps,
];

/// Lies that nobody can take for anything else, in frames that are new: what follows is the end of their channel.
const CERTAIN: [Lie; 7] = [
    // An acknowledgement of what was never sent.
    |plain, _, _| {
        plain.header.below = plain.header.below.wrapping_add(1 << 30);
        (plain.header.bits, plain.header.kind, plain.opening) = (0, Kind::Probe, None);
        plain.body.clear();
    },
    // The same in a note, as a range.
    |plain, _, _| {
        plain.body = Note::head(Limits::default(), 1, 0).to_vec();
        plain.body.extend_from_slice(&Note::entry(plain.header.below.wrapping_add(1 << 30), 1));
        (plain.header.kind, plain.opening) = (Kind::Note, None);
    },
    // A grant for a message that was never sent.
    |plain, around, _| {
        plain.body = Note::head(Limits::default(), 0, 1).to_vec();
        plain.body.extend_from_slice(&Note::entry(low(around.options.begin).wrapping_add(1 << 30), 500));
        (plain.header.kind, plain.opening) = (Kind::Note, None);
    },
    // A note that is shorter than it says.
    |plain, _, _| {
        plain.body = Note::head(Limits::default(), 1, 1).to_vec();
        (plain.header.kind, plain.opening) = (Kind::Note, None);
    },
    // A part of a payload beyond any payload.
    |plain, _, _| {
        plain.body.resize(plain.body.len().max(1), 7);
        plain.header.words[1] = 1 << 30;
        (plain.header.kind, plain.opening) = (Kind::Data, None);
    },
    // A message far beyond the limits.
    |plain, _, _| {
        plain.body = [&[0; LIMITS_BYTES][..], &[0, 0]].concat();
        plain.header.words = [plain.header.words[0].wrapping_add(1 << 30), 1];
        (plain.header.kind, plain.opening) = (Kind::Records, None);
    },
    // A payload longer than any.
    |plain, _, _| {
        let mut opening = vec![0; OPENING];
        opening[..4].copy_from_slice(&((1_u32 << 30) + 1).to_le_bytes());
        (plain.header.kind, plain.opening) = (Kind::Open, Some(opening));
    },
];

/// One of the lies that cannot be believed.
pub(super) fn lie_for_certain(plain: &mut Plain, around: &Around<'_>, random: &mut Random) {
    random.pick(&CERTAIN)(plain, around, random);
    plain.fit();
}

/// A lie, or several at once, of those that there are.
pub(super) fn lie(plain: &mut Plain, kinds: u32, around: &Around<'_>, random: &mut Random) {
    let own: Vec<Lie> = (0..LIES.len()).filter(|kind| kinds >> kind & 1 == 1).map(|kind| LIES[kind]).collect();
    let times = random.pick(&[1, 1, 1, 2, 3]);
    for _ in 0..times {
        random.pick(&own)(plain, around, random);
    }
    plain.fit();
}

impl Plain {
    /// Has the form of its kind: an opening, if it is one; and the length of its body in its header, unless that was
    /// left wrong.
    fn fit(&mut self) {
        if self.header.kind == Kind::Open && self.opening.is_none() {
            let mut opening = std::mem::take(&mut self.body);
            self.body = opening.split_off(opening.len().min(OPENING));
            opening.resize(OPENING, 0);
            self.opening = Some(opening);
        }
        if self.header.kind != Kind::Open
            && let Some(opening) = self.opening.take()
        {
            self.body.splice(0..0, opening);
        }
        self.body.truncate(LONGEST);
        let before = if self.opening.is_some() { OPENING_BYTES } else { 0 };
        self.header.body = u16::try_from(before + self.body.len()).unwrap_or(u16::MAX);
        // What the form forbids is dropped before anybody looks at a seal.
        match self.header.kind {
            Kind::Open | Kind::Close => self.header.words[1] = 0,
            Kind::Note => self.header.words = [self.header.words[0] & 1, 0],
            Kind::Probe => self.header.words = [0, 0],
            _ => {}
        }
    }
}

/// Of what has never been sent, or has been acknowledged before; backwards, or beyond everything.
fn acknowledges(plain: &mut Plain, _: &Around<'_>, random: &mut Random) {
    let header = &mut plain.header;
    let (some, few, any) = (low(random.below(1 << 12)), low(random.between(1, 4)), low(random.next()));
    let below = header.below;
    header.below = random.pick(&[
        below,
        below,
        below.wrapping_add(few),
        below.wrapping_sub(few),
        below.wrapping_add(some),
        below.wrapping_sub(some),
        below.wrapping_add(1 << 31),
        any,
    ]);
    header.bits = random.pick(&[0, 1, u64::MAX, header.bits, random.clone().next()]);
}

fn awaits(plain: &mut Plain, _: &Around<'_>, random: &mut Random) {
    let (number, awaited) = (low(plain.header.number), plain.header.awaited);
    let any = low(random.next());
    plain.header.awaited = random.pick(&[0, number, number.wrapping_add(1), awaited.wrapping_sub(9), any]);
}

/// How long an acknowledgement was held, and quiet moments.
fn holds(plain: &mut Plain, _: &Around<'_>, random: &mut Random) {
    plain.header.held = random.pick(&[0, 1, 1000, u16::MAX - 1, u16::MAX]);
    plain.header.waits = random.chance(500);
    plain.header.calls = random.next().to_le_bytes()[0] & 3;
    plain.header.asks = random.next().to_le_bytes()[0] & 31;
}

/// A number far ahead, or one that was used.
fn goes_ahead(plain: &mut Plain, around: &Around<'_>, random: &mut Random) {
    let far = random.pick(&[1, 2, 63, 64, 65, 1 << 16, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 1 << 40]);
    let back = random.between(1, 100);
    let number =
        if random.chance(300) { plain.header.number.saturating_sub(back) } else { around.top.saturating_add(far) };
    plain.header.number = number;
}

/// A number of another epoch of keys, or one that no epoch has.
fn changes_epoch(plain: &mut Plain, _: &Around<'_>, random: &mut Random) {
    let next = (plain.header.number / EPOCH + random.between(1, 3)).saturating_mul(EPOCH);
    let number = plain.header.number;
    plain.header.number = random.pick(&[
        next,
        next,
        next.saturating_sub(1),
        next.wrapping_add(1),
        number | OPENING_NUMBER,
        u64::MAX,
        u64::MAX - 1,
    ]);
}

/// Of another message.
fn renames(plain: &mut Plain, around: &Around<'_>, random: &mut Random) {
    let (word, slots) = (plain.header.words[0], low(around.options.slots));
    let (few, any) = (low(random.between(1, 3)), low(random.next()));
    plain.header.words[0] = random.pick(&[
        word.wrapping_add(few),
        word.wrapping_sub(few),
        word.wrapping_add(slots),
        word.wrapping_add(slots + few),
        word.wrapping_add(1 << 31),
        any,
    ]);
}

/// Another part of a payload than it is, inside of it or outside; or another count of messages.
fn moves(plain: &mut Plain, around: &Around<'_>, random: &mut Random) {
    let (word, len) = (plain.header.words[1], low(plain.body.len() as u64));
    let (few, border) = (low(random.between(1, 700)), around.bytes(random));
    plain.header.words[1] = random.pick(&[
        word.wrapping_add(few),
        word.saturating_sub(few),
        word.wrapping_add(len),
        border.wrapping_sub(len),
        border.wrapping_sub(len).wrapping_add(1),
        border,
        u32::MAX - len,
    ]);
}

/// Other bytes than before.
fn differs(plain: &mut Plain, _: &Around<'_>, random: &mut Random) {
    let with = random.next().to_le_bytes()[0] | 1;
    let first = if plain.header.kind == Kind::Data { 0 } else { LIMITS_BYTES.min(plain.body.len()) };
    plain.body[first..].iter_mut().for_each(|byte| *byte ^= with);
}

/// A body of another length.
fn stretches(plain: &mut Plain, _: &Around<'_>, random: &mut Random) {
    let len = plain.body.len();
    let few = random.index(9);
    let len = random.pick(&[0, 1, len.saturating_sub(few), len + few, len / 2, len * 2, len + 1136, 9000, LONGEST]);
    plain.body.resize(len, 0x77);
}

/// An opening that says something else.
fn opens(plain: &mut Plain, around: &Around<'_>, random: &mut Random) {
    if plain.header.kind != Kind::Open || plain.opening.is_none() {
        plain.header.kind = Kind::Open;
        let mut opening = vec![0; OPENING];
        let payload = around.bytes(random);
        opening[..4].copy_from_slice(&payload.to_le_bytes());
        opening[4] = low(random.below(97)).to_le_bytes()[0];
        opening[5] = random.pick(&[0, 2]);
        let unasked = random.pick(&[payload, 0, low(plain.body.len() as u64).min(payload)]);
        opening[16..20].copy_from_slice(&unasked.to_le_bytes());
        if let Some(other) = around.other.as_ref().and_then(|other| other.opening.as_ref()) {
            opening[20..28].copy_from_slice(&other[20..28]);
        }
        plain.opening = Some(opening);
        return;
    }
    let Some(opening) = &mut plain.opening else { return };
    let bytes = around.bytes(random).to_le_bytes();
    match random.below(6) {
        0 | 1 => opening[..4].copy_from_slice(&bytes),
        2 => opening[16..20].copy_from_slice(&bytes),
        3 => opening[4] = random.pick(&[0, 95, 96, 97, 255]),
        4 => opening[5] ^= random.pick(&[1, 2, 3, 4, 128]),
        _ => {
            opening[..4].copy_from_slice(&bytes);
            opening[16..20].copy_from_slice(&bytes);
        }
    }
}

/// A token that was used before, or taken back, or is guessed.
fn names_tokens(plain: &mut Plain, around: &Around<'_>, random: &mut Random) {
    let Some(opening) = plain.opening.as_mut().filter(|opening| opening.len() == OPENING) else { return };
    let told = (!around.tokens.is_empty()).then(|| around.tokens[random.index(around.tokens.len())]);
    let mut token = told.unwrap_or(Token { index: 0, key: random.next() });
    match random.below(6) {
        0 => token.key ^= 1 << random.below(64),
        1 => token.index ^= 1 << random.below(3),
        2 => token.index = u16::MAX,
        _ => {}
    }
    opening[5] |= 1;
    opening[6..8].copy_from_slice(&token.index.to_le_bytes());
    opening[8..16].copy_from_slice(&token.key.to_le_bytes());
}

/// Limits that shrink, or are beyond everything.
fn limits(plain: &mut Plain, _: &Around<'_>, random: &mut Random) {
    let limits = match (&mut plain.opening, plain.header.kind) {
        (Some(opening), Kind::Open) => opening.get_mut(20..28),
        (_, Kind::Records | Kind::Note) => plain.body.get_mut(..LIMITS_BYTES),
        _ => None,
    };
    let Some(limits) = limits else { return };
    let now = Limits::from_bytes(limits);
    let mut other = |now: u32| {
        let few = low(random.between(1, 2000));
        random.pick(&[0, now.wrapping_sub(few), now.wrapping_add(few), now.wrapping_add(1 << 31), u32::MAX])
    };
    let lie = Limits { messages: other(now.messages), unasked: other(now.unasked) };
    limits.copy_from_slice(&lie.to_bytes());
}

/// Records that are not what they are said to be; and very many of them, or of messages beyond the limits.
fn breaks_records(plain: &mut Plain, around: &Around<'_>, random: &mut Random) {
    let limits = plain.body.first_chunk::<LIMITS_BYTES>().copied().unwrap_or([0; LIMITS_BYTES]);
    let word = plain.header.words[0];
    plain.opening = None;
    plain.header.kind = Kind::Records;
    plain.body = limits.to_vec();
    let count = random.pick(&[0, 1, 2, low(around.options.slots), low(around.options.slots) + 1, 500]);
    let len = random.pick(&[0, 1, 8, 19, 96, 97, 255]);
    for _ in 0..count {
        plain.body.extend_from_slice(&[len, random.pick(&[0, 0, 0, 0, 0, 0, 0, 1])]);
        plain.body.extend((0..len).map(|_| random.next().to_le_bytes()[0]));
    }
    let said = random.pick(&[count, count, count, count + 1, count.saturating_sub(1), u32::MAX]);
    plain.header.words = [word, said];
}

/// A note: of frames that were never sent, and with grants that are huge, shrink, repeat, or of nothing.
fn grants(plain: &mut Plain, around: &Around<'_>, random: &mut Random) {
    let note = plain.header.kind == Kind::Note && plain.body.len() >= NOTE_BYTES;
    let limits = if note { Limits::from_bytes(&plain.body) } else { Limits::default() };
    let limits = match around.other.as_ref().map(|other| (&other.opening, other.header.kind, &other.body)) {
        Some((Some(opening), ..)) => Limits::from_bytes(&opening[20..28]),
        Some((_, Kind::Records | Kind::Note, body)) => Limits::from_bytes(body),
        _ => limits,
    };
    let ranges = random.pick(&[0, 0, 0, 0, 1, 2, 33, 2000]);
    let given = random.pick(&[0, 1, 1, 1, 1, 2, 8, 1000]);
    plain.opening = None;
    plain.header.kind = Kind::Note;
    plain.header.words = [u32::from(random.chance(700)), 0];
    plain.body = Note::head(limits, ranges, given).to_vec();
    for range in 0..u32::from(ranges) {
        let first = plain.header.below.wrapping_add(random.pick(&[1, 3, 70, 1000])).wrapping_sub(range * 2);
        let count = random.pick(&[1, 1, 1, 0, 100, u32::MAX]);
        plain.body.extend_from_slice(&Note::entry(first, count));
    }
    let again = around.message(random);
    for _ in 0..given {
        let message = if random.chance(500) { again } else { around.message(random) };
        let upto = if random.chance(100) { WANTS_NO_MORE } else { around.bytes(random) };
        plain.body.extend_from_slice(&Note::entry(message, upto));
    }
    if random.chance(50) {
        plain.body[12] = 1;
    }
}

/// The same, said to be something else.
fn changes_kind(plain: &mut Plain, _: &Around<'_>, random: &mut Random) {
    plain.header.kind = random.pick(&KINDS);
}

/// The end of the channel: after fewer messages than there were, or more.
fn closes(plain: &mut Plain, around: &Around<'_>, random: &mut Random) {
    let last = around.other.as_ref().map_or(0, |other| other.header.words[0]);
    let any = low(random.next());
    plain.opening = None;
    plain.header.kind = Kind::Close;
    plain.header.words = [random.pick(&[last, last.wrapping_add(1), 0, last.wrapping_add(64), any]), 0];
    plain.body.clear();
}

/// What was said before, as if it were new.
fn repeats(plain: &mut Plain, around: &Around<'_>, _: &mut Random) {
    if let Some(other) = &around.other {
        let number = plain.header.number;
        *plain = other.clone();
        plain.header.number = number;
    }
}

/// A part of a payload that was sent, a little before or behind it, and other bytes.
fn overlaps(plain: &mut Plain, around: &Around<'_>, random: &mut Random) {
    repeats(plain, around, random);
    if plain.header.kind == Kind::Open {
        plain.header.kind = Kind::Data;
        plain.header.words[1] = 0;
        plain.opening = None;
    }
    if plain.header.kind == Kind::Data {
        let few = low(random.between(0, 3) * random.between(1, 600));
        let word = plain.header.words[1];
        plain.header.words[1] = random.pick(&[word, word.wrapping_add(few), word.saturating_sub(few)]);
        plain.body.fill(random.next().to_le_bytes()[0]);
    }
}
