//! What has to be true, whatever goes wrong: everything that was sent is written down here, and held against
//! everything that is handed over.
//!
//! A **line** is one direction of a channel, of one life of its sender. Every control message says which line it is of,
//! and which message of that; so it shows by itself when it comes to somebody else, twice, or in another order.

use std::collections::BTreeMap;

use cutthrough_engine::net::Tally;
use cutthrough_engine::net::inbox::Ready;
use cutthrough_engine::token::{Refused, Token};

use super::calls::Ledger;
use super::memory::{EMPTY, Pages, pattern_of};
use super::random::Random;

/// Bytes of a control message without what fills it up: line, message, flags, token.
const FIXED: usize = 19;

/// One life of an endpoint.
pub(super) type Life = (usize, u64);

/// What frames of a channel name its two ends by: number and generation, here and there.
pub(super) type Ends = [(u32, u32); 2];

/// What a user sends.
#[derive(Debug)]
pub(super) struct Sent {
    control: Vec<u8>,
    pub(super) payload: Option<(u64, usize)>,
    pub(super) token: Option<Token>,
    pub(super) completed: bool,
    /// Whether it may have to wait for memory before it is handed over.
    waits: bool,
}

/// One direction of a channel.
#[derive(Debug)]
pub(super) struct Line {
    from: Life,
    to: Life,
    /// The ends of its channel, that of its sender first.
    ends: Ends,
    pub(super) sent: Vec<Sent>,
    pub(super) delivered: usize,
    /// Messages before this one are completed.
    completed: usize,
}

impl Line {
    /// Whether it is the other direction of this one's channel.
    fn is_back_of(&self, other: &Self) -> bool {
        let [here, there] = other.ends;
        self.ends == [there, here] && (self.from, self.to) == (other.to, other.from)
    }
}

#[derive(Debug)]
struct Grant {
    place: u64,
    bytes: usize,
    uses: u32,
    landed: bool,
    /// Whether its memory was given back before anything had landed there.
    dead: bool,
}

/// Everything that was sent.
#[derive(Debug, Default)]
pub(super) struct Watch {
    lines: Vec<Line>,
    grants: BTreeMap<(Life, u64), Grant>,
    /// The calls that were made by active messages.
    pub(super) calls: Ledger,
    pub(super) messages: u64,
    pub(super) payload_bytes: u64,
    /// What has gone through the hands of a life.
    handled: BTreeMap<Life, Handled>,
}

/// What a life has handed to its endpoint, and has got from it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Handled {
    sent: u64,
    payload_sent: u64,
    received: u64,
}

impl Watch {
    /// Bytes before an active message: line and message.
    pub(super) const BEFORE: usize = 8;

    pub(super) fn open(&mut self, (from, to): (Life, Life), ends: Ends) -> usize {
        self.lines.push(Line { from, to, ends, sent: Vec::new(), delivered: 0, completed: 0 });
        self.lines.len() - 1
    }

    /// The line that comes back by the channel of this one, once its sender knows of that.
    pub(super) fn back(&self, line: usize) -> Option<usize> {
        self.lines.iter().rposition(|other| other.is_back_of(&self.lines[line]))
    }

    pub(super) fn line(&self, line: usize) -> &Line {
        &self.lines[line]
    }

    /// A token was granted by a life: for pages of this name and length.
    pub(super) fn granted(&mut self, by: Life, token: Token, place: u64, bytes: usize) {
        self.grants.insert((by, token.key), Grant { place, bytes, uses: 0, landed: false, dead: false });
    }

    /// A token was revoked, and the memory of its place is its owner's again.
    pub(super) fn given_back(&mut self, by: Life, token: Token, place: &Pages) -> Result<(), String> {
        let Some(grant) = self.grants.get_mut(&(by, token.key)) else { return Err("a token of nobody".into()) };
        if grant.landed || grant.dead || grant.place != place.id || place.bytes.iter().any(|byte| *byte != EMPTY) {
            return Err(format!("{place:?} was written to before it was given back: {grant:?}"));
        }
        grant.dead = true;
        Ok(())
    }

    /// The next message of a line is an active message: all of it, and the cookie of its payload.
    pub(super) fn say(
        &mut self,
        line: usize,
        message: &[u8],
        payload: Option<(u64, usize)>,
        token: Option<Token>,
        waits: bool,
    ) -> (Vec<u8>, u64) {
        let number = self.lines[line].sent.len();
        let mut control = Vec::with_capacity(96);
        control.extend_from_slice(&u32::try_from(line).unwrap_or(0).to_le_bytes());
        control.extend_from_slice(&u32::try_from(number).unwrap_or(0).to_le_bytes());
        control.extend_from_slice(message);
        self.lines[line].sent.push(Sent { control: control.clone(), payload, token, completed: false, waits });
        (control, (line as u64) << 32 | number as u64)
    }

    /// The last message of a line was not taken.
    pub(super) fn unsay(&mut self, line: usize) {
        self.lines[line].sent.pop();
    }

    /// Composes the next message of a line.
    pub(super) fn compose(
        &mut self,
        line: usize,
        tells: Option<Token>,
        (payload, pages): (Option<usize>, bool),
        uses: Option<Token>,
        random: &mut Random,
    ) -> Vec<u8> {
        let number = self.lines[line].sent.len();
        let mut control = Vec::with_capacity(96);
        control.extend_from_slice(&u32::try_from(line).unwrap_or(0).to_le_bytes());
        control.extend_from_slice(&u32::try_from(number).unwrap_or(0).to_le_bytes());
        control.push(u8::from(tells.is_some()));
        let token = tells.unwrap_or(Token { index: 0, key: 0 });
        control.extend_from_slice(&token.index.to_le_bytes());
        control.extend_from_slice(&token.key.to_le_bytes());
        let fill = random.index(96 - FIXED + 1);
        control.extend((0..fill).map(|_| random.next().to_le_bytes()[0]));
        let payload = payload.map(|len| (random.next(), len));
        let waits = pages && uses.is_none();
        self.lines[line].sent.push(Sent { control: control.clone(), payload, token: uses, completed: false, waits });
        control
    }

    /// A composed message was taken.
    pub(super) fn posted(&mut self, line: usize) {
        let Some(line) = self.lines.get_mut(line) else { return };
        let Some(sent) = line.sent.last() else { return };
        let handled = self.handled.entry(line.from).or_default();
        handled.sent += 1;
        handled.payload_sent += sent.payload.map_or(0, |(_, len)| len as u64);
        let Some(token) = &sent.token else { return };
        if let Some(grant) = self.grants.get_mut(&(line.to, token.key)) {
            grant.uses += 1;
        }
    }

    /// A message was handed over to this life, whether its user still wants it or not.
    pub(super) fn received(&mut self, by: Life) {
        self.handled.entry(by).or_default().received += 1;
    }

    /// Whether an endpoint has counted what its user has sent and received.
    pub(super) fn are_counted(&self, by: Life, tally: &Tally) -> Result<(), String> {
        let handled = self.handled.get(&by).copied().unwrap_or_default();
        let counted =
            Handled { sent: tally.messages_sent, payload_sent: tally.payload_sent, received: tally.messages_received };
        if handled == counted { Ok(()) } else { Err(format!("{counted:?} is counted, of {handled:?}")) }
    }

    /// A message was handed over to `at`, on a channel whose own line is `ours`: the line, the number of the message,
    /// and the token in it.
    pub(super) fn delivered(
        &mut self,
        at: Life,
        ours: usize,
        ready: &Ready<Pages>,
    ) -> Result<(usize, usize, Option<Token>), String> {
        let control = &ready.control[..usize::from(ready.control_len)];
        let number = |range: std::ops::Range<usize>| {
            let bytes = control.get(range).and_then(|bytes| bytes.first_chunk());
            bytes.map(|bytes| u32::from_le_bytes(*bytes) as usize)
        };
        let (Some(index), Some(number)) = (number(0..4), number(4..8)) else {
            return Err(format!("a control message of {} bytes", control.len()));
        };
        let Some(line) = self.lines.get(index) else { return Err("a message of no line".into()) };
        if line.to != at {
            return Err(format!("line {index} from {:?} to {:?} has come to {at:?}", line.from, line.to));
        }
        if !line.is_back_of(&self.lines[ours]) {
            return Err(format!("line {index} has come by the channel of line {ours}, which is another"));
        }
        let line = &mut self.lines[index];
        if number != line.delivered {
            return Err(format!("line {index}: message {number} instead of {}", line.delivered));
        }
        let Some(sent) = line.sent.get(number) else { return Err("a message that was never sent".into()) };
        if sent.control != control {
            return Err(format!("line {index}: control message {number} is not what was sent"));
        }
        line.delivered += 1;
        self.messages += 1;
        Ok((index, number, token(control)))
    }

    /// Whether the bytes of a payload from the first on are what was sent.
    pub(super) fn payload(&mut self, line: usize, number: usize, bytes: &[u8]) -> Result<(), String> {
        self.payload_bytes += bytes.len() as u64;
        self.part(line, number, 0, bytes)
    }

    /// Whether bytes of a payload are what was sent there.
    pub(super) fn part(&self, line: usize, number: usize, first: usize, bytes: &[u8]) -> Result<(), String> {
        let Some((seed, _)) = self.lines[line].sent[number].payload else {
            return Err(format!("line {line}: message {number} has no payload"));
        };
        let wanted = pattern_of(seed, first..first + bytes.len());
        let wrong = wanted.iter().zip(bytes).position(|(wanted, byte)| wanted != byte);
        wrong.map_or(Ok(()), |at| {
            let (at, len) = (first + at, first + bytes.len());
            Err(format!("line {line}: byte {at} of {len} of the payload of message {number} is not what was sent"))
        })
    }

    /// A payload has landed.
    pub(super) fn landed(&mut self, line: usize, number: usize, place: &Pages, bytes: usize) -> Result<(), String> {
        let sent = &self.lines[line].sent[number];
        if sent.payload.is_none_or(|(_, len)| len != bytes) || place.bytes.len() < bytes {
            return Err(format!("line {line}: payload of message {number} has {bytes} bytes"));
        }
        if let Some(token) = sent.token {
            let to = self.lines[line].to;
            let Some(grant) = self.grants.get_mut(&(to, token.key)) else { return Err("a token of nobody".into()) };
            if grant.landed || grant.dead || grant.place != place.id {
                return Err(format!("line {line}: message {number} landed by a token that was used, or elsewhere"));
            }
            grant.landed = true;
        }
        self.payload(line, number, &place.bytes[..bytes])?;
        if !place.shown.get() && place.bytes[bytes..].iter().any(|byte| *byte != EMPTY) {
            return Err(format!("line {line}: message {number} wrote behind its payload"));
        }
        Ok(())
    }

    /// A payload of one who lies has landed: in memory that was granted and not used, or in any other, and not beyond
    /// its length.
    pub(super) fn landed_by_a_liar(&mut self, by: Life, place: &Pages, bytes: usize) -> Result<(), String> {
        let mut own = self.grants.range_mut((by, 0)..=(by, u64::MAX)).map(|(_, grant)| grant);
        if let Some(grant) = own.find(|grant| grant.place == place.id) {
            if grant.landed || grant.dead {
                return Err(format!("a liar's payload is in {place:?}, which was used, or taken back"));
            }
            grant.landed = true;
        }
        if place.bytes.len() < bytes || !place.shown.get() && place.bytes[bytes..].iter().any(|byte| *byte != EMPTY) {
            return Err(format!("a liar's payload of {bytes} bytes goes beyond itself in {place:?}"));
        }
        Ok(())
    }

    /// A payload was dropped for its token.
    pub(super) fn refused(&self, line: usize, number: usize, why: Refused) -> Result<(), String> {
        let line = &self.lines[line];
        let sent = &line.sent[number];
        let grant = sent.token.and_then(|token| self.grants.get(&(line.to, token.key)));
        match grant {
            Some(grant) if grant.uses < 2 && !grant.dead && sent.payload.is_some_and(|(_, len)| len <= grant.bytes) => {
                Err(format!("message {number}: a good token was refused: {why}"))
            }
            Some(_) => Ok(()),
            None => Err(format!("message {number} without a token was refused: {why}")),
        }
    }

    /// A message that was sent is completed.
    pub(super) fn completed(&mut self, line: usize, cookie: u64) -> Result<(), String> {
        let number = usize::try_from(cookie & u64::from(u32::MAX)).unwrap_or(usize::MAX);
        if cookie >> 32 != line as u64 {
            return Err(format!("a completion of line {} on the channel of line {line}", cookie >> 32));
        }
        match self.lines[line].sent.get_mut(number) {
            Some(sent) if !sent.completed && sent.payload.is_some() => {
                sent.completed = true;
                Ok(())
            }
            _ => Err(format!("line {line}: message {number} is completed twice, or was never sent")),
        }
    }

    /// A channel on which this line came has ended. With `all`, because the sender has closed it in good order.
    pub(super) fn ended(&self, line: usize, all: bool) -> Result<(), String> {
        let line = &self.lines[line];
        let left = &line.sent[line.delivered..];
        if all && !left.is_empty() {
            return Err(format!("{} messages were not handed over before the end", left.len()));
        }
        // Behind one that has not come whole, nothing can be handed over.
        if left.first().is_some_and(|sent| sent.completed && !sent.waits) {
            return Err(format!("message {} was completed, and not handed over before the end", line.delivered));
        }
        Ok(())
    }

    /// Whether everything on a line has been delivered and completed.
    pub(super) fn is_settled(&mut self, line: usize) -> bool {
        let line = &mut self.lines[line];
        while line.sent.get(line.completed).is_some_and(|sent| sent.payload.is_none() || sent.completed) {
            line.completed += 1;
        }
        line.delivered == line.sent.len() && line.completed == line.sent.len()
    }

    /// What is not settled of a line, for people.
    pub(super) fn story(&self, line: usize) -> String {
        let line = &self.lines[line];
        let open = line.sent.iter().position(|sent| sent.payload.is_some() && !sent.completed);
        format!(
            "{:?} to {:?}: {} sent, {} delivered, first not completed {open:?} {:?}",
            line.from,
            line.to,
            line.sent.len(),
            line.delivered,
            open.map(|at| (line.sent[at].payload, line.sent[at].token))
        )
    }
}

/// The token that a control message tells of.
pub(super) fn token(control: &[u8]) -> Option<Token> {
    let index = control.get(9..11)?.first_chunk().map(|bytes| u16::from_le_bytes(*bytes))?;
    let key = control.get(11..19)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))?;
    (control[8] == 1).then_some(Token { index, key })
}

/// A control message of no line that tells of a token, or of none.
pub(super) fn with_token(tells: Option<Token>, random: &mut Random) -> Vec<u8> {
    let token = tells.unwrap_or(Token { index: 0, key: 0 });
    let mut control: Vec<u8> = random.bytes::<8>().to_vec();
    control.push(u8::from(tells.is_some()));
    control.extend_from_slice(&token.index.to_le_bytes());
    control.extend_from_slice(&token.key.to_le_bytes());
    control
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_lost_is_seen_though_nothing_of_it_has_come() {
        let (mut watch, (here, there)) = (Watch::default(), ((0, 1), (1, 1)));
        let mut open = |channel: u32| {
            let ends = [(channel, 7), (channel, 8)];
            [watch.open((here, there), ends), watch.open((there, here), [ends[1], ends[0]])]
        };
        let ([one, back], [other, _]) = (open(0), open(1));
        assert_eq!((watch.back(one), watch.back(back), watch.line(other).sent.len()), (Some(back), Some(one), 0));
        watch.say(back, b"last words", None, None, false);
        assert!(watch.ended(back, true).is_err() && watch.ended(back, false).is_ok());
        let alone = watch.open((here, there), [(2, 7), (2, 8)]);
        assert_eq!(watch.back(alone), None, "the other side knows of no channel yet");
    }
}
