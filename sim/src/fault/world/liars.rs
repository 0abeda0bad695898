//! Those that hold the key and lie, and their part of the world. Nothing that happens to them is looked at.

use cutthrough_engine::net::Net;
use cutthrough_engine::time::Instant;
use cutthrough_wire::frame::{HEADER_BYTES, Header};

use super::super::address;
use super::super::liar::{Liar, Stage};
use super::super::memory::Host;
use super::super::network::Frame;
use super::super::random::Random;
use super::super::receive::{Given, bring};
use super::{Living, World};

/// Nanoseconds until a liar looks at what has come.
const SOON_NS: u64 = 20_000;

impl World {
    /// They are there from the beginning on.
    pub(super) fn let_liars_in(&mut self) {
        let options = &self.options;
        for index in options.nodes..options.nodes + options.liars.count {
            let life = match options.liars.poses {
                true => self.lives[self.random.index(options.nodes)],
                false => self.random.next() | 1,
            };
            self.lives.push(life);
            let random = Random::new(self.random.next());
            self.liars.push(Liar::new(index, life, options, random));
        }
    }

    /// When one of them does something next.
    pub(super) fn liars_wake(&self) -> u64 {
        self.liars.iter().map(|liar| liar.wakes).min().unwrap_or(u64::MAX)
    }

    /// A frame has come to one of them.
    pub(super) fn liar_hears(&mut self, frame: Frame) {
        let at = self.now + self.random.below(SOON_NS);
        let liar = &mut self.liars[frame.to - self.options.nodes];
        if liar.queue.len() < self.options.queue {
            liar.queue.push_back(frame);
        }
        liar.wakes = liar.wakes.min(at);
    }

    /// Those whose time it is lie.
    pub(super) fn lie(&mut self) -> Result<(), String> {
        let mut certain = Vec::new();
        let mut stage = Stage {
            now: self.now,
            is_calm: self.calm.is_some(),
            is_closing: self.closing,
            options: &self.options,
            certain: &mut certain,
            network: &mut self.network,
            random: &mut self.random,
            summary: &mut self.summary,
        };
        let now = self.now;
        let mut due = self.liars.iter_mut().filter(|liar| liar.wakes <= now);
        due.try_for_each(|liar| liar.act(&mut stage))?;
        certain.into_iter().try_for_each(|frame| self.is_caught(frame))
    }

    /// Brings in a frame that cannot be believed, and sees whether it is.
    fn is_caught(&mut self, frame: Frame) -> Result<(), String> {
        let (index, now) = (frame.to, self.now);
        let node = &mut self.nodes[index];
        let Some(Living { net, given, .. }) = node.living.as_mut().filter(|_| node.paused <= now) else {
            return Ok(());
        };
        let caught = is_caught((net, given), Instant::from_nanos(now + node.ahead), frame)?;
        self.summary.lies.certain += 1;
        self.summary.lies.caught += u64::from(caught);
        self.wake(index, now);
        Ok(())
    }
}

/// Whether such a frame has ended its channel; if not, that it was not taken in.
fn is_caught((net, given): (&mut Net<Host>, &mut Given), now: Instant, mut frame: Frame) -> Result<bool, String> {
    let header = frame.bytes.first_chunk::<HEADER_BYTES>().and_then(|head| Header::from_bytes(head).ok());
    let Some(header) = header else { return Ok(false) };
    let ends = |net: &mut Net<Host>| net.ends(header.tag as usize).map(|[here, _]| here.1);
    let before = (*net.tally(), ends(net) == Some(header.generation));
    given.add(&frame.bytes);
    bring(net, now, address(frame.from), &mut frame.bytes, &mut None);
    let after = (*net.tally(), ends(net) == Some(header.generation));
    let taken = |tally: &cutthrough_engine::net::Tally| tally.frames_received + tally.unplaced;
    if after.1 && taken(&after.0) > taken(&before.0) {
        return Err(format!("what cannot be true is taken in, and its channel goes on: {header:?}"));
    }
    Ok(before.1 && !after.1)
}
