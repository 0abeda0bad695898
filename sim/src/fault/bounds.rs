//! What an endpoint may hold or let come at any time, by its settings: the engine is not asked for its limits, but for
//! how long it takes its ways to be.

use cutthrough_engine::net::Net;
use cutthrough_engine::time::Instant;
use cutthrough_wire::frame::BODY_MIN;

use super::memory::Host;
use super::options::Options;
use super::user::User;

/// Shares of what may come unasked that there may be at most: some were dealt when there were fewer channels. Each
/// channel and each call has the shortest body, whatever others have.
const SHARES: u64 = 3;
/// On a long way so many times as much may be asked for, at most.
const STRETCH: u64 = 16;
/// Nobody is taken for late sooner, in nanoseconds, with what it was asked for. What the late owe comes on top.
const LATE_NS: u64 = 20_000_000;
/// A user may send a payload that is too long for its place, by so many bytes.
const TOO_LONG: u64 = 20;

/// The bounds of one life.
#[derive(Debug, Default)]
pub(super) struct Bounds {
    /// When nobody owed anything that it was asked for, last.
    clear: Instant,
}

impl Bounds {
    /// Whether they are kept; what is beyond them, as a sentence.
    pub(super) fn are_kept(
        &mut self,
        net: &Net<Host>,
        now: Instant,
        user: &User,
        options: &Options,
    ) -> Result<(), String> {
        // A way may be taken for long because a machine stood still.
        let stretch = net.stretched().map(|(_, times)| times).max().unwrap_or(1);
        if stretch > STRETCH {
            return Err(format!("a way is said to be as long as {stretch}"));
        }
        let (asked, granted) = (net.asked(), stretch * u64::from(options.granted));
        if asked == 0 {
            self.clear = now;
        } else if asked > granted && now.saturating_since(self.clear) < LATE_NS {
            return Err(format!("{asked} bytes were asked for at once, of at most {granted}"));
        }
        let (unasked, least) = (net.unasked(), u64::from(BODY_MIN));
        let most = SHARES * options.unasked + options.channels as u64 * least;
        if unasked > most {
            return Err(format!("{unasked} bytes may come unasked, and {most} at most"));
        }
        for ((channel, aside, limit), (_, stretch)) in net.aside().zip(net.stretched()) {
            let most = most_aside(user, channel, options, stretch);
            if aside > limit || most.is_some_and(|most| aside > most) {
                return Err(format!("{aside} bytes lie aside on channel {channel}, of at most {limit}, and {most:?}"));
            }
        }
        Ok(())
    }
}

/// Bytes that may lie aside on a channel that its user has not closed: what came unasked, also before its openings, and
/// what is granted without a place, on a long way so many times as much; payloads that are read from there; and in some
/// worlds all that wait for a reader.
fn most_aside(user: &User, channel: usize, options: &Options, stretch: u64) -> Option<u64> {
    let reads = user.reads(channel)?;
    let whole = reads + if options.relief > 0 { options.slots } else { 0 };
    Some((2 + stretch) * options.unasked.max(u64::from(BODY_MIN)) + whole * (options.longest + TOO_LONG))
}
