//! The end of a storm: nobody sends, keeps or grants anything any more, and everything has to be where it was.

use std::thread;
use std::time::{Duration, Instant};

use cutthrough::{Channel, Config, Endpoint, Landing, Token};

use crate::SILENCE;
use crate::node::{Node, REST, WELL};

/// Bytes of a page.
const PAGE: usize = 4096;
/// The longest run of pages that is asked for.
const RUN: usize = 64 << 20;
/// How long everybody has to come to rest, and to have everything back.
const REST_TIME: Duration = Duration::from_secs(6);

/// Pages that payloads of so many bytes have.
pub(crate) const fn pages(bytes: usize) -> usize {
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
    fn all() -> Self {
        let Config { pool_bytes, landing_bytes, .. } = Config::default();
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

/// Comes to rest on all channels, and looks whether everything is back.
pub(crate) fn all(node: &mut Node) {
    let begun = Instant::now();
    let mut late = Vec::new();
    while begun.elapsed() < REST_TIME {
        let channels: Vec<Channel> = node.talks.keys().copied().collect();
        late = channels.into_iter().filter_map(|channel| one(node, channel)).collect();
        // Others may be about to call.
        if late.is_empty() && begun.elapsed() > REST_TIME / 6 {
            return;
        }
        for _ in 0..100 {
            match node.endpoint.poll() {
                Some(event) => node.hear(event),
                None => break,
            }
        }
        thread::sleep(Duration::from_millis(1));
    }
    assert!(late.is_empty(), "after {REST_TIME:?} of rest: {late:#?}");
}

/// One channel: what it still waits for.
fn one(node: &mut Node, channel: Channel) -> Option<String> {
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
        let (all, posted) = (Room::all(), talk.posted);
        let now = Room::of(&mut node.endpoint, channel);
        let whole = Room { landing: all.landing - posted, ..all };
        if cookies > 0 || now != whole {
            return Some(format!("{channel:?}: {now:?} of {whole:?}, {posted} posted, {cookies} cookies"));
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
