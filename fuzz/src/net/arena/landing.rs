//! Frames that land where the victim guesses.

use cutthrough_engine::net::Guess;
use cutthrough_engine::net::channel::{Bodies, Body};
use cutthrough_engine::net::memory::Place as _;
use cutthrough_wire::frame::{HEADER_BYTES, Header, Kind, OPENING_BYTES};

use super::{Arena, HOSTILE, address};
use crate::ground::seal;

impl Arena {
    /// Brings bytes that land as guessed to the victim in several frames at once. How many, and what is odd about the
    /// second of them, is taken from a field that says nothing else.
    pub(super) fn bring_together(&mut self, host: u8, header: &Header, body: &mut [u8], broken: bool) {
        let frames = usize::from(header.held & 7).min(body.len());
        let full = body.len().div_ceil(frames);
        let (mut heads, mut lens, mut words) = (Vec::new(), Vec::new(), header.words);
        let mut number = header.number;
        for (k, piece) in body.chunks_mut(full).enumerate() {
            let len = u16::try_from(piece.len()).unwrap_or(u16::MAX);
            let mut header = Header { number, words, body: len, ..*header };
            if k == 1 {
                header.number = header.number.wrapping_add(u64::from(header.held >> 3 & 1));
                header.words[1] = header.words[1].wrapping_add(u32::from(header.held >> 4 & 1));
                header.words[0] = header.words[0].wrapping_add(u32::from(header.held >> 5 & 1));
                header.generation = header.generation.wrapping_add(u32::from(header.held >> 6 & 1));
                header.body = header.body.wrapping_sub(header.held >> 7 & 1);
            }
            let mut head = header.to_bytes();
            seal(&header, &mut head, piece, broken && k == frames / 2);
            heads.push(head);
            lens.push(piece.len());
            number = number.wrapping_add(1);
            words[1] = words[1].wrapping_add(u32::from(len));
        }
        // They land, or lie aside: each behind its header, or cut off where its length says otherwise.
        let aside = header.held >> 8 & 1 == 1;
        let segment = HEADER_BYTES + full - usize::from(header.held >> 9 & 1);
        let mut train: Vec<u8> = heads.iter().zip(body.chunks(full)).flat_map(|(h, b)| [&h[..], b].concat()).collect();
        if !aside {
            self.land(body);
        }
        let (now, mut done) = (self.time(), 0);
        while done < heads.len() {
            let rest = train.get_mut(done * (HEADER_BYTES + full)..).unwrap_or_default();
            let bodies = if aside { Bodies::Aside(rest, segment) } else { Bodies::Landed };
            let taken = self.victim.run(now, address(host), (&heads[done..], bodies), None);
            assert!(taken <= heads.len() - done, "more frames than there are");
            if taken == 0 {
                let mut alone = body.chunks(full).nth(done).unwrap_or_default().to_vec();
                let body =
                    if aside { Body::Aside(&mut alone) } else { Body::Landed { opening: None, len: lens[done] } };
                self.victim.frame(now, address(host), &heads[done], body, None);
            }
            done += taken.max(1);
        }
        if host == HOSTILE
            && !broken
            && let Some(own) = &mut self.own
        {
            own.number = own.number.max(number.min(1 << 40));
        }
    }

    /// Whether a body lands as guessed: how many bytes of it stand before the payload. With `loose` it does whatever
    /// the header says, else the header is made to say what was guessed.
    pub(super) fn plan(&mut self, header: &mut Header, len: usize, loose: bool) -> Option<usize> {
        let (guess, _) = self.victim.guess(None)?;
        let (Guess::Fresh { channel } | Guess::Rest { channel, .. }) = guess;
        if header.tag as usize != channel {
            return None;
        }
        let before = if matches!(guess, Guess::Fresh { .. }) { OPENING_BYTES } else { 0 };
        let (place, begin) = self.victim.guessed(guess)?;
        let room = place.len() - begin;
        let end = if let Guess::Rest { end, .. } = guess { end as usize - begin } else { room };
        let payload = len.checked_sub(before)?;
        if payload > room.min(end) {
            return None;
        }
        #[allow(clippy::cast_possible_truncation, reason = "low halves travel")]
        if !loose {
            match guess {
                Guess::Fresh { .. } if header.kind != Kind::Open => return None,
                Guess::Fresh { .. } => {}
                Guess::Rest { message, begin, .. } => {
                    (header.kind, header.words) = (Kind::Data, [message as u32, begin]);
                }
            }
        }
        Some(before)
    }

    /// Bytes land where the guess says.
    pub(super) fn land(&mut self, payload: &[u8]) {
        let Some((guess, _)) = self.victim.guess(None) else { return };
        let Some((place, begin)) = self.victim.guessed(guess) else { return };
        place.bytes[begin..begin + payload.len()].copy_from_slice(payload);
    }
}
