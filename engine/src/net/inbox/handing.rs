//! What is ready is handed over, in the order of the messages.

use alloc::collections::VecDeque;

use super::arrival::{Coming, Target};
use super::books::Entry;
use super::{Inbox, Ready, ReadyPayload};
use crate::net::memory::Place;
use crate::token::Refused;

impl<P: Place> Inbox<P> {
    /// Hands over what is ready, in order; to nobody, if nobody takes it.
    pub(super) fn advance(&mut self) {
        self.hand_over_all();
        while self.closed && self.take().is_some() {}
    }

    fn hand_over_all(&mut self) {
        while let Some(front) = self.window.front_mut() {
            match front {
                Coming::Nothing => return,
                Coming::Control(control_len, way, control) => {
                    let (control_len, way, control) = (*control_len, *way, *control);
                    self.ready.push_back(Ready { control_len, control, way, payload: ReadyPayload::None });
                }
                Coming::Loaded(arrival) => {
                    let Some(opening) = &arrival.opening else { return };
                    let whole = arrival.have.front() >= opening.payload;
                    #[cfg(feature = "planted")]
                    let whole =
                        whole || self.hasty && arrival.have.iter().last().is_some_and(|s| s.1 >= opening.payload);
                    let waits = matches!(arrival.target, Target::Place(_)) && !whole || arrival.later;
                    if waits {
                        return;
                    }
                    self.hand_over();
                    continue;
                }
            }
            self.window.pop_front();
            self.next += 1;
        }
        if self.window.capacity() > 64 {
            self.window = VecDeque::new();
        }
    }

    fn hand_over(&mut self) {
        let Some(Coming::Loaded(mut arrival)) = self.window.pop_front() else { return };
        self.next += 1;
        let story = arrival.story();
        let Some(opening) = &arrival.opening else { return };
        let (control_len, control) = (opening.control_len, opening.control);
        let unasked = u64::from(opening.unasked);
        let payload = match std_take(&mut arrival.target) {
            Target::Place(place) => {
                self.released += unasked;
                if story.choice.is_measured() {
                    self.whole.push(story);
                }
                self.payload_bytes += u64::from(story.bytes);
                self.books.change(arrival.number, arrival.entry, Entry::default());
                ReadyPayload::Landed(place, story)
            }
            Target::Away => {
                self.released += unasked;
                let refused = arrival.refused.unwrap_or(Refused::Wrong);
                if arrival.have.front() < story.bytes && !arrival.heard {
                    // Its frames may still come, and are thrown away.
                    self.arriving.push(arrival);
                    self.away += 1;
                }
                ReadyPayload::Refused(refused, story)
            }
            target @ (Target::Aside(_) | Target::Reader) => {
                arrival.target = target;
                let number = arrival.number;
                self.arriving.push(arrival);
                ReadyPayload::Arriving(number, story)
            }
        };
        self.ready.push_back(Ready { control_len, control, way: story.way, payload });
    }
}

fn std_take<P>(target: &mut Target<P>) -> Target<P> {
    core::mem::replace(target, Target::Away)
}
