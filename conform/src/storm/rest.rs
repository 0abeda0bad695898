//! The end of a storm: nobody sends, keeps or grants anything any more, and everything has to be where it was.

use std::time::Duration;

use cutthrough::{Channel, Config, Endpoint, Landing, Token};

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
}

impl Room {
    /// All that a channel has.
    fn all(config: &Config) -> Self {
        let Config { pool_bytes, landing_bytes, .. } = *config;
        let pages_of = |bytes: u64| usize::try_from(bytes).map_or(0, pages);
        Self { pool: pages_of(pool_bytes), landing: pages_of(landing_bytes) }
    }

    /// Takes and grants all there is, and gives it back.
    fn of(endpoint: &mut Endpoint, channel: Channel) -> Self {
        let (mut room, mut run) = (Self::default(), RUN);
        let (mut taken, mut granted): (Vec<_>, Vec<Token>) = (Vec::new(), Vec::new());
        while run >= PAGE {
            let (page, token) = (endpoint.page(channel, run), endpoint.grant(channel, Landing::Pages(run)));
            if page.is_err() && token.is_err() {
                run /= 2;
                continue;
            }
            room.pool += page.as_ref().map_or(0, |_| pages(run));
            room.landing += token.as_ref().map_or(0, |_| pages(run));
            taken.extend(page);
            granted.extend(token);
        }
        drop(taken);
        for token in granted {
            // A channel may have ended meanwhile.
            let _ = endpoint.revoke(channel, token);
        }
        room
    }
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
        let (all, posted) = (Room::all(config), talk.posted);
        let now = Room::of(&mut node.endpoint, channel);
        let whole = Room { landing: all.landing - posted, ..all };
        if cookies > 0 || now != whole {
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
