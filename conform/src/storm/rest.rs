//! The end of a storm: nobody sends, keeps or grants anything any more, and everything has to be where it was.

use std::time::Duration;

use cutthrough::{Channel, Config, Endpoint, Landing, NoMemory};

use super::SILENCE;
use super::node::{Node, REST, WELL};

/// Bytes of a page.
const PAGE: usize = 4096;
/// The longest run of pages that is asked for.
const RUN: usize = 64 << 20;
/// How long everybody has to come to rest, and to have everything back.
pub const REST_TIME: Duration = Duration::from_secs(6);

/// Pages that payloads of so many bytes have.
pub(super) const fn pages(bytes: usize) -> usize {
    bytes.div_ceil(PAGE)
}

/// Pages of a channel that can be taken and granted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Room {
    pool: usize,
    landing: usize,
    /// Whether there were no more tokens for what is left of the landing pages: there may be more of these.
    or_more: bool,
}

impl Room {
    /// All that a channel has.
    fn all(config: &Config) -> Self {
        let Config { pool_bytes, landing_bytes, .. } = *config;
        let pages_of = |bytes: u64| usize::try_from(bytes).map_or(0, pages);
        Self { pool: pages_of(pool_bytes), landing: pages_of(landing_bytes), or_more: false }
    }

    /// Takes and grants all there is, and gives it back. What lies between runs that are posted takes a token for each
    /// piece, and there are [few](NoMemory::NoTokens): so the longest pieces come first, and each as a whole.
    fn of(endpoint: &mut Endpoint, channel: Channel) -> Self {
        let mut or_more = false;
        let pool =
            longest_first(endpoint, |endpoint, pages| endpoint.page(channel, pages * PAGE).ok(), |_, page| drop(page));
        let landing = longest_first(
            endpoint,
            |endpoint, pages| {
                let granted = endpoint.grant(channel, Landing::Pages(pages * PAGE));
                or_more |= granted == Err(NoMemory::NoTokens);
                granted.ok()
            },
            // A channel may have ended meanwhile.
            |endpoint, token| drop(endpoint.revoke(channel, token)),
        );
        Self { pool, landing, or_more }
    }

    /// Whether that is all of it, as far as can be known.
    const fn is_whole(&self, whole: &Self) -> bool {
        let landing = self.landing == whole.landing || self.or_more && self.landing < whole.landing;
        self.pool == whole.pool && landing
    }
}

/// Takes one run of pages after the other, always the longest that there is, and gives them back: how many pages there
/// were.
fn longest_first<T>(
    endpoint: &mut Endpoint,
    mut take: impl FnMut(&mut Endpoint, usize) -> Option<T>,
    give: impl Fn(&mut Endpoint, T),
) -> usize {
    let (mut all, mut taken) = (0, Vec::new());
    let mut refused = RUN / PAGE + 1;
    loop {
        let mut longest = 0;
        while refused - longest > 1 {
            let tried = longest.midpoint(refused);
            match take(endpoint, tried) {
                Some(run) => {
                    give(endpoint, run);
                    longest = tried;
                }
                None => refused = tried,
            }
        }
        if longest == 0 {
            break;
        }
        while let Some(run) = take(endpoint, longest) {
            taken.push(run);
            all += longest;
        }
    }
    taken.into_iter().for_each(|run| give(endpoint, run));
    all
}

impl Node {
    /// Sends nothing any more, takes all that it has kept, and looks whether everything is back: what it still waits
    /// for.
    ///
    /// # Panics
    /// As of [`Node::act`].
    pub fn rests(&mut self, config: &Config) -> Vec<String> {
        let channels: Vec<Channel> = self.talks.keys().copied().collect();
        channels.into_iter().filter_map(|channel| one(self, channel, config)).collect()
    }
}

/// One channel: what it still waits for.
fn one(node: &mut Node, channel: Channel, config: &Config) -> Option<String> {
    while node.talks.get(&channel)?.kept.front().is_some() {
        node.settle(channel);
    }
    let granted = node.talks.get(&channel)?.granted.len();
    for _ in 0..granted {
        node.revoke(channel);
    }
    let talk = node.talks.get(&channel)?;
    if talk.bye {
        return None;
    }
    let (granted, cookies) = (talk.granted.len(), talk.cookies.len());
    if talk.told == 0 {
        if granted > 0 {
            return Some(format!("{channel:?}: {granted} tokens are neither used nor revoked"));
        }
        if node.say(channel, REST, 0, None) {
            node.talks.get_mut(&channel)?.told = REST;
        }
        return Some(format!("{channel:?}: does not rest"));
    }
    if talk.rests == 0 {
        // Its process may not end.
        return Some(format!("{channel:?}: the other side does not rest"));
    }
    if talk.told == REST {
        // Who has taken runs back while some were out does not know how many are posted.
        if node.awaits {
            match node.endpoint.recall(channel) {
                Ok(0) => node.talks.get_mut(&channel)?.posted = 0,
                Ok(out) => return Some(format!("{channel:?}: {out} runs are still out")),
                Err(_) => return None,
            }
        }
        let (all, posted) = (Room::all(config), node.talks.get(&channel)?.posted);
        let now = Room::of(&mut node.endpoint, channel);
        let whole = Room { landing: all.landing - posted, ..all };
        if cookies > 0 || !now.is_whole(&whole) {
            let peer = node.endpoint.peer(channel);
            return Some(format!("{channel:?} to {peer:?}: {now:?} of {whole:?}, {posted} posted, {cookies} cookies"));
        }
        if node.say(channel, WELL, 0, None) {
            node.talks.get_mut(&channel)?.told = WELL;
        }
    }
    let talk = node.talks.get(&channel)?;
    (talk.told != WELL || talk.rests != WELL).then(|| format!("{channel:?}: the other side has not got all back"))
}

/// All of it has its time.
const _: () = assert!(REST_TIME.as_secs() < SILENCE.as_secs());

#[cfg(test)]
mod tests {
    use super::*;
    use crate::join::connect;

    /// Two hundred pieces of one page lie between others that are posted, and one token is left for each piece.
    #[test]
    fn pieces_between_posted_runs_are_counted() {
        let config = || Config { landing_bytes: 1011 * 4096, ..Config::default() };
        let (mut here, mut there) = (Endpoint::open(config()).unwrap(), Endpoint::open(config()).unwrap());
        let address = format!("shm:/tmp/cutthrough-storm-rest-{}.sock", std::process::id());
        here.listen(&address).unwrap();
        let (_, channel) = connect(&mut there, &mut here, &address);
        let mut pieces = Vec::new();
        for _ in 0..250 {
            pieces.push(here.grant(channel, Landing::Pages(PAGE)).unwrap());
            assert_eq!(here.post(channel, PAGE, 1), Ok(1));
        }
        pieces.into_iter().for_each(|token| drop(here.revoke(channel, token).unwrap()));
        let room = Room::of(&mut here, channel);
        assert_eq!(room, Room { landing: 761, or_more: false, ..Room::all(&config()) });
    }
}
