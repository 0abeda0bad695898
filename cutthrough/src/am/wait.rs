//! How a node waits: for room, for the reply to a call, for whatever happens next.

use std::collections::VecDeque;
use std::time::Duration;

use cutthrough_engine::am::calls::NEVER;
use cutthrough_engine::time::Instant;
use cutthrough_node::clock;
use cutthrough_node::incoming::{Channel, Connecting};
use cutthrough_node::node::{WaitError, left_of};
use cutthrough_node::shm::grant::Landing;

use super::asking::boxed;
use super::gather::is_arriving;
use super::serve::nanos;
use super::{Call, CallError, Continuation, Event, Failed, NAP, Node, Reply, RequestError, Then, Unanswered, Wanted};

/// Looks for an answer before its call is entrusted to somebody: as many as a short call takes; and how much else comes
/// meanwhile.
const LOOKS: u32 = 64;
const COMES: u32 = 16;

/// Events that somebody who waits for another has met. Mostly there are none, and then nothing is to be dropped.
#[derive(Default)]
struct SetAside(Option<VecDeque<Event>>);

impl SetAside {
    #[cold]
    fn push(&mut self, event: Event) {
        self.0.get_or_insert_with(VecDeque::new).push_back(event);
    }
}

impl Node {
    /// Makes a request of up to 16 words as soon as there is room, and waits for its reply. Serves requests meanwhile.
    ///
    /// # Errors
    /// [`Unanswered`]: why, and the handler's own words, if it has refused.
    pub fn call(
        &mut self,
        channel: Channel,
        handler: u16,
        words: &[u32],
        timeout: Duration,
    ) -> Result<Reply, Unanswered> {
        let nanos = nanos(timeout);
        match self.request(channel, handler, words) {
            Err(RequestError::Full) => {
                let until = clock::now().after(nanos);
                self.wait_for_room(channel, Some(timeout))?;
                let call = self.request(channel, handler, words)?;
                self.wait_until(call, until)
            }
            // The clock is read while the request travels.
            made => self.wait_until(made?, clock::now().after(nanos)),
        }
    }

    fn has_room(&mut self, channel: Channel) -> bool {
        let may = self.room(channel) > 0 && !self.inside.core.is_behind(channel.index());
        may && self.inside.endpoint.outgoing(channel).is_ok()
    }

    /// Waits until a request can be made on a channel (`request_wait` of those who want to block). Serves requests
    /// meanwhile, and keeps other events for later polls. `None` waits for ever.
    ///
    /// # Errors
    /// [`RequestError::Closed`], [`RequestError::TimedOut`], or [`RequestError::Wait`].
    pub fn wait_for_room(&mut self, channel: Channel, timeout: Option<Duration>) -> Result<(), RequestError> {
        if self.has_room(channel) {
            return Ok(());
        }
        let until = timeout.map(|timeout| (timeout, clock::now() + timeout));
        let mut aside = SetAside::default();
        let mut woken = false;
        let done = loop {
            if self.inside.door(channel.index()) != Some(channel) {
                break Err(RequestError::Closed);
            }
            if self.has_room(channel) {
                break Ok(());
            }
            let left = until.map(|(timeout, until)| (timeout, until.saturating_since(clock::now())));
            if let Some((timeout, 0)) = left {
                break Err(RequestError::TimedOut(timeout));
            }
            let left = left.map(|(_, left)| Duration::from_nanos(left));
            // With an answer comes room for another request; of room for its message alone nobody else tells.
            let over = |node: &mut Self| {
                if node.inside.door(channel.index()) != Some(channel) || node.has_room(channel) {
                    return true;
                }
                if node.room(channel) > 0 && !node.inside.core.is_behind(channel.index()) {
                    let _ = node.inside.endpoint.ask_for_room(channel);
                }
                false
            };
            match self.wait_unless(left, over) {
                Ok(Some(event)) => aside.push(event),
                Ok(None) | Err(WaitError::TimedOut) => {}
                Err(WaitError::Woken) => woken = true,
                Err(_) => break Err(RequestError::Wait),
            }
        };
        self.put_back(aside);
        self.wake_again(woken);
        done
    }

    /// Waits for the reply to a call, so long from now on; then the call is cancelled. That counts, and not the
    /// deadline of the [`Settings`](super::Settings). Serves requests meanwhile, and keeps other events for later
    /// polls.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use cutthrough::Channel;
    /// # use cutthrough::am::{Node, Unanswered};
    /// # fn ask(node: &mut Node, channel: Channel) -> Result<u32, Unanswered> {
    /// // Two requests that are under way at the same time.
    /// let (first, second) = (node.request(channel, 1, &[20])?, node.request(channel, 1, &[22])?);
    /// let second_at_most = Duration::from_secs(1);
    /// Ok(node.wait_for(first, second_at_most)?.word(0) + node.wait_for(second, second_at_most)?.word(0))
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Unanswered`]: why, the handler's own words, if it has refused, and the place that was granted.
    pub fn wait_for(&mut self, call: Call, timeout: Duration) -> Result<Reply, Unanswered> {
        self.wait_until(call, clock::now().after(nanos(timeout)))
    }

    /// The same until `until`.
    pub(crate) fn wait_until(&mut self, call: Call, until: Instant) -> Result<Reply, Unanswered> {
        self.date_one(call, until);
        let mut aside = SetAside::default();
        let mut looks = 0_u32;
        let mut woken = false;
        let unanswered = loop {
            let came = self.came;
            let event = match self.poll() {
                Some(event) => event,
                None if looks < 512 && self.came == came => {
                    looks += 1;
                    continue;
                }
                None => {
                    let now = clock::now();
                    if now >= until {
                        let landing = self.give_up(call, true);
                        break Unanswered { landing, ..CallError::Late.into() };
                    }
                    // As long as others ask, there may be more.
                    if self.came != came {
                        continue;
                    }
                    match self.wait(Some(Duration::from_nanos(until.saturating_since(now)))) {
                        Ok(event) => event,
                        Err(WaitError::TimedOut) => continue,
                        Err(WaitError::Woken) => {
                            woken = true;
                            continue;
                        }
                        Err(_) => {
                            let landing = self.give_up(call, false);
                            break Unanswered { landing, ..CallError::Wait.into() };
                        }
                    }
                }
            };
            match event {
                // Moved once, to where it is wanted.
                Event::Replied(reply) if reply.call() == call => {
                    self.put_back(aside);
                    self.wake_again(woken);
                    return Ok(reply);
                }
                Event::Failed(failed) if failed.call == call => break failed.into(),
                other => aside.push(other),
            }
            // What has been told of is taken first.
            if self.ready.is_empty() && clock::now() >= until {
                let landing = self.give_up(call, true);
                break Unanswered { landing, ..CallError::Late.into() };
            }
        };
        self.put_back(aside);
        self.wake_again(woken);
        Err(unanswered)
    }

    /// Whether a peer may have answered before a task could let others run: one in the same memory.
    pub(crate) fn answers_soon(&self, channel: Channel) -> bool {
        !self.inside.endpoint.is_wire(channel)
    }

    /// Looks for the answer to a call that [was made for that](super::Asking::try_send_to_seek), as long as it may
    /// `go_on`, but not long: the clock is not read. Serves requests meanwhile, and keeps other events for later polls.
    /// Without an answer the call is to be [entrusted](Node::entrust) to somebody, or given up. To move an answer takes
    /// as long as to look for it a few times: it is put where it is wanted.
    #[inline]
    pub(crate) fn seek(
        &mut self,
        call: Call,
        answer: &mut Option<Result<Reply, Failed>>,
        go_on: impl Fn() -> bool,
    ) -> bool {
        let mut before = SetAside::default();
        if !self.ready.is_empty() {
            before.0 = Some(std::mem::take(&mut self.ready));
        }
        let (mut looks, came) = (0, self.came);
        let found = loop {
            match self.take_in::<false>() {
                Some(Event::Replied(reply)) if reply.call() == call => {
                    if !is_arriving(&reply.incoming) {
                        *answer = Some(Ok(reply));
                        break true;
                    }
                    let wanted = boxed(&mut self.spare, Wanted { then: Then::Seek, token: None });
                    let event = self.gather_reply(reply.incoming, call.0, Some(wanted));
                    self.ready.extend(event);
                }
                Some(Event::Failed(failed)) if failed.call == call => {
                    *answer = Some(Err(failed));
                    break true;
                }
                Some(event) => before.push(event),
                None => {}
            }
            looks += 1;
            let busy = self.came.wrapping_sub(came) >= COMES;
            let enough = looks >= LOOKS || busy || (looks % 8 == 0 && !go_on());
            if enough && self.ready.is_empty() {
                break false;
            }
        };
        self.put_back(before);
        found
    }

    /// Gives the answer to a call, which was sought in vain, to whatever takes it. It may take so long from now on.
    pub(crate) fn entrust(&mut self, call: Call, within: Duration, continuation: Continuation) {
        let slot = self.keep_continuation(continuation);
        let now = clock::now();
        let deadline = now.after(nanos(within));
        // Whoever polls slowly from now on shall hear in time that it is late.
        self.pace.restart(self.empty, now);
        self.date_one(call, deadline);
        let context = self.inside.core.context_mut(call.0).or_else(|| self.gathering.date(call.0, deadline));
        let then = Then::Continue(slot);
        match context {
            Some(Some(wanted)) => wanted.then = then,
            Some(nothing) => *nothing = Some(boxed(&mut self.spare, Wanted { then, token: None })),
            // Its end would have been found.
            None => drop(self.take_continuation(slot)),
        }
    }

    /// A wait was ended that its caller does not know of: the next one that it does know of is.
    fn wake_again(&self, woken: bool) {
        if woken {
            self.inside.endpoint.waker().wake();
        }
    }

    /// What was set aside happened before what is told next.
    #[inline]
    fn put_back(&mut self, aside: SetAside) {
        if let Some(mut events) = aside.0 {
            events.append(&mut self.ready);
            self.ready = events;
        }
    }

    /// Takes back the event that tells of a call, if there is one: the place that was granted for its reply, if nothing
    /// has come there.
    pub(super) fn untell(&mut self, call: Call) -> Option<Landing> {
        let its = |event: &Event| match event {
            Event::Replied(reply) => reply.call() == call,
            Event::Failed(failed) => failed.call == call,
            _ => false,
        };
        let place = self.ready.iter().position(its)?;
        match self.ready.remove(place)? {
            Event::Replied(mut reply) => reply.take_landing(),
            Event::Failed(failed) => failed.landing,
            _ => None,
        }
    }

    /// Takes back the event that tells of a channel that was being opened, and whatever else tells of that channel,
    /// which is closed: whether there was one.
    pub(super) fn untell_connected(&mut self, connecting: Connecting) -> bool {
        let its = |event: &Event| matches!(event, Event::Connected(of, _) if *of == connecting);
        let Some(place) = self.ready.iter().position(its) else { return false };
        if let Some(Event::Connected(_, Ok(channel))) = self.ready.remove(place) {
            self.close(channel);
            self.ready.retain(|event| !matches!(event, Event::Closed(of, _) if *of == channel));
        }
        true
    }

    /// What has happened next: spins briefly, then sleeps until there is something. `None` waits for ever.
    ///
    /// # Errors
    /// [`WaitError::TimedOut`] when the time is over, [`WaitError::Woken`] when a [`Waker`](crate::Waker) has ended it.
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<Event, WaitError> {
        // It is never over without an event.
        let event = self.wait_unless(timeout, |_| false)?;
        event.ok_or(WaitError::TimedOut)
    }

    /// The same, unless it is over, which is asked whenever something has come, whoever is told of that.
    fn wait_unless(
        &mut self,
        timeout: Option<Duration>,
        over: impl Fn(&mut Self) -> bool,
    ) -> Result<Option<Event>, WaitError> {
        let begun = clock::now();
        loop {
            if let Some(event) = self.poll() {
                return Ok(Some(event));
            }
            let now = self.look(true);
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event));
            }
            if over(self) {
                return Ok(None);
            }
            let limit = match (left_of(timeout, begun, now)?, self.nap(now)) {
                (Some(left), Some(nap)) => Some(left.min(nap)),
                (left, nap) => left.or(nap),
            };
            match self.inside.wait_or_wake(limit) {
                Ok(event) => {
                    if let Some(event) = self.take(event) {
                        return Ok(Some(event));
                    }
                }
                Err(WaitError::TimedOut) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Prepares to sleep elsewhere than in [`Node::wait`], on the file descriptor of the endpoint ([`Node::endpoint`];
    /// readable means: poll), and says for how long at most; `None` is for ever. No time at all, if there is
    /// something to poll for already. The order that loses no wake-up: poll until there is nothing, arm, sleep; also
    /// where the time was over.
    ///
    /// ```
    /// # use std::os::fd::AsFd as _;
    /// # use std::time::Duration;
    /// # use cutthrough::am::{Event, Node, Settings};
    /// # use cutthrough::{Config, Endpoint};
    /// # fn sleep(on: std::os::fd::BorrowedFd<'_>, limit: Option<Duration>) {
    /// #     use rustix::event::{PollFd, PollFlags, Timespec, poll};
    /// #     let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
    /// #     poll(&mut [PollFd::new(&on, PollFlags::IN)], limit.as_ref()).expect("it can be waited for");
    /// # }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let address = format!("shm:arm-{}", std::process::id());
    /// # let mut node = Node::new(Endpoint::open(Config::default())?, Settings::default());
    /// # node.listen(&address)?;
    /// # let caller = std::thread::spawn(move || {
    /// #     let mut endpoint = Endpoint::open(Config::default()).expect("an endpoint");
    /// #     endpoint.connect(&address, Duration::from_secs(10)).expect("a channel");
    /// # });
    /// # let heard = std::cell::Cell::new(false);
    /// # let heed = |event| heard.set(heard.get() || matches!(event, Event::Opened(_)));
    /// # while !heard.get() {
    /// while let Some(event) = node.poll() {
    ///     heed(event);
    /// }
    /// # if heard.get() {
    /// #     break;
    /// # }
    /// let limit = node.arm();
    /// // By `epoll`, or whatever there is beside.
    /// sleep(node.endpoint().as_fd(), limit);
    /// # }
    /// # caller.join().expect("it has been let in");
    /// # Ok(())
    /// # }
    /// ```
    pub fn arm(&mut self) -> Option<Duration> {
        let now = self.look(true);
        let sleeps = self.ready.is_empty() && self.inside.endpoint.arm() && !self.inside.shelf.any();
        if sleeps { self.nap(now) } else { Some(Duration::ZERO) }
    }

    /// How long this node may sleep at most, from now on; `None` for ever.
    pub(super) fn nap(&self, now: Instant) -> Option<Duration> {
        if self.gathering.is_moving(now) {
            return Some(Duration::ZERO);
        }
        let due = self.inside.core.calls().due().min(self.gathering.due());
        let until_due = (due != NEVER).then(|| Duration::from_nanos(due.saturating_since(now).max(1)));
        let busy = self.inside.core.has_backlog() || !self.gathering.is_empty();
        let short = busy.then_some(NAP / 10);
        match (until_due, short) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }
}
