//! The lobby of an other end: lets clients in and takes their questions, in a thread of its own, so that whoever comes
//! while another client is measured is told so.
//!
//! One client at a time is served: two at once would measure each other. The next one waits for a moment, because a
//! client that has just ended may not be known to have ended yet, and is refused then.

use std::collections::VecDeque;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::time::{Duration, Instant};

use cutthrough::{Channel, Endpoint, Event};
use rustix::event::{PollFd, PollFlags, poll};

use super::Ending;
use crate::perf::ask::{self, Answer, Ask};
use crate::perf::way::SILENCE;

/// How long a client waits for the one before it: longer than a network takes to find that one dead.
const GRACE: Duration = SILENCE.saturating_add(Duration::from_secs(1));

/// Most questions that wait: of others than the client that is served, and of that one. Nobody who measures has more
/// than a few.
const WAITING: usize = 256;

/// Why a client is refused that comes while another one is served.
const BUSY: &str = "it is busy with another measurement; wait until that has ended, or start another one elsewhere";

/// What the one who answers has to know.
#[derive(Debug)]
pub(super) enum Heard {
    /// Somebody has come, who may be a client.
    Came,
    /// The client that is served has asked this. Who has heeded it lets go of the token.
    Asked(Channel, Ask, #[expect(dead_code, reason = "what counts is that it is there")] Arc<()>),
    /// Somebody has gone.
    Gone(Channel),
}

/// What a client is told.
#[derive(Debug)]
pub(super) enum Said {
    /// This.
    Answer(Answer),
    /// That it cannot be done, and why.
    Refusal(String),
}

/// The way to the lobby's thread.
#[derive(Debug)]
pub(super) struct Desk {
    // Dropped in this order: the lobby wakes up when the rope is gone.
    said: Sender<(Channel, Said)>,
    rope: UnixStream,
}

impl Desk {
    /// Tells a client something, if it is still there.
    pub(super) fn say(&self, client: Channel, said: Said) {
        // Where the lobby has ended, there is nobody to be told.
        let _ = self.said.send((client, said));
        let _ = (&self.rope).write(&[0]);
    }
}

/// The lobby itself.
pub(super) struct Lobby {
    endpoint: Endpoint,
    heard: Sender<Heard>,
    said: Receiver<(Channel, Said)>,
    bell: UnixStream,
    /// Who is served.
    client: Option<Channel>,
    /// What others have asked since, in order.
    waiting: VecDeque<(Channel, Ask, Instant)>,
    /// One more than the questions that have been passed on, and not been heeded yet.
    unheeded: Arc<()>,
}

impl Lobby {
    /// A lobby behind an endpoint that listens, what is heard there, and where it is answered.
    pub(super) fn open(endpoint: Endpoint) -> io::Result<(Self, Receiver<Heard>, Desk)> {
        let ((heard, hearing), (saying, said)) = (std::sync::mpsc::channel(), std::sync::mpsc::channel());
        let (bell, rope) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        rope.set_nonblocking(true)?;
        let lobby =
            Self { endpoint, heard, said, bell, client: None, waiting: VecDeque::new(), unheeded: Arc::default() };
        Ok((lobby, hearing, Desk { said: saying, rope }))
    }

    /// Attends until this process shall end, or nobody has its desk any more. Sleeps without using the processor.
    pub(super) fn attend(mut self, ending: &Ending) {
        let Ok(files) = self.endpoint.as_fd().try_clone_to_owned() else { return };
        while !ending.is_asked() {
            while let Some(event) = self.endpoint.poll() {
                if self.heed(event).is_none() {
                    return;
                }
            }
            loop {
                match self.said.try_recv() {
                    Ok((client, said)) => self.tell(client, said),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return,
                }
            }
            self.refuse_who_has_waited();
            if self.endpoint.arm() {
                self.sleep(&files, ending);
            }
        }
    }

    fn sleep(&mut self, files: &OwnedFd, ending: &Ending) {
        let mut watched = [
            PollFd::new(files, PollFlags::IN),
            PollFd::new(&self.bell, PollFlags::IN),
            PollFd::new(&ending.bell, PollFlags::IN),
        ];
        let left = self.waiting.front().map(|(.., since)| GRACE.saturating_sub(since.elapsed()));
        let timeout = left.and_then(|left| (left + Duration::from_millis(1)).try_into().ok());
        // Whatever ends the sleep, the loop looks again.
        let _ = poll(&mut watched, timeout.as_ref());
        while self.bell.read(&mut [0; 64]).is_ok_and(|count| count > 0) {}
    }

    /// Nothing if nobody hears any more.
    fn heed(&mut self, event: Event) -> Option<()> {
        match event {
            Event::Opened(_) => self.hear(Heard::Came),
            Event::Message(message) => {
                let client = message.channel();
                let Some(ask) = ask::read(message.control()) else {
                    // Nothing comes of a channel any more that was closed here.
                    self.endpoint.close(client);
                    return self.forget(client);
                };
                if *self.client.get_or_insert(client) == client {
                    if Arc::strong_count(&self.unheeded) <= WAITING {
                        return self.ask(client, ask);
                    }
                    self.endpoint.close(client);
                    return self.forget(client);
                }
                if self.waiting.len() < WAITING {
                    self.waiting.push_back((client, ask, Instant::now()));
                }
                Some(())
            }
            Event::Closed(client, _) => self.forget(client),
            _ => Some(()),
        }
    }

    /// A client has gone, and the next one is served if it was its turn.
    fn forget(&mut self, client: Channel) -> Option<()> {
        self.waiting.retain(|(other, ..)| *other != client);
        self.hear(Heard::Gone(client))?;
        if self.client == Some(client) {
            self.client = None;
            self.admit()?;
        }
        Some(())
    }

    /// Serves the client that waits for the longest time.
    fn admit(&mut self) -> Option<()> {
        let Some((next, ..)) = self.waiting.front() else { return Some(()) };
        let next = *next;
        self.client = Some(next);
        let (admitted, waiting): (VecDeque<_>, _) = self.waiting.drain(..).partition(|(client, ..)| *client == next);
        self.waiting = waiting;
        admitted.into_iter().try_for_each(|(client, ask, _)| self.ask(client, ask))
    }

    fn refuse_who_has_waited(&mut self) {
        while let Some((client, ..)) = self.waiting.front().filter(|(.., since)| since.elapsed() >= GRACE) {
            let client = *client;
            self.waiting.retain(|(other, ..)| *other != client);
            self.tell(client, Said::Refusal(BUSY.into()));
        }
    }

    fn ask(&self, client: Channel, ask: Ask) -> Option<()> {
        self.hear(Heard::Asked(client, ask, Arc::clone(&self.unheeded)))
    }

    fn hear(&self, heard: Heard) -> Option<()> {
        self.heard.send(heard).ok()
    }

    /// Tells a client something. One that is not there any more, or does not listen, is not waited for.
    fn tell(&mut self, client: Channel, said: Said) {
        let (answer, why) = match said {
            Said::Answer(answer) => (answer, None),
            Said::Refusal(why) => (Answer::Refused, Some(why)),
        };
        let Ok(bytes) = ask::write(&answer) else { return };
        let Ok(message) = self.endpoint.outgoing(client) else { return };
        let message = message.write(&bytes);
        let _ = match why {
            Some(why) => message.attach_copy(why.as_bytes()).send().map(drop),
            None => message.send().map(drop),
        };
    }
}
