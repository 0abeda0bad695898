//! Calls under way, as their caller has them.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use cutthrough::am::{Body, CallError, Failure, Reply, RequestError};
use cutthrough::rpc::{Client, Method, Pending, Raw, RawError, RawPending, RpcError};
use cutthrough::{Instant, Landed, Landing, Payload, now};

use super::life::{AGAIN, ECHO, FETCH, LATER, Life, PASS, STORE, Text};
use super::watch::{Outcome, Shared};
use crate::bytes::pattern;
use crate::random::Random;

/// What memory that was given back holds until it goes.
const OURS: u8 = 0xa5;
/// How long it is kept, in nanoseconds.
const KEPT_NS: u64 = 200_000_000;

/// How long a call has that lands where another one has given pages back.
const AT_ONCE: Duration = Duration::from_millis(200);

/// A call under way.
pub(super) struct Under {
    number: u64,
    future: Kind,
}

enum Kind {
    Typed(Pending<Text>),
    Raw(RawPending<'static>, Place),
}

/// What a call has granted for its answer.
#[derive(Debug, Clone)]
enum Place {
    None,
    Buffer(usize),
    /// By whom the pages can be used once they are given back.
    Pages(usize, Client),
}

impl Place {
    /// Whether this was granted.
    const fn is(&self, landing: &Landing) -> bool {
        match (self, landing) {
            (Self::Buffer(len), Landing::Buffer(bytes)) => bytes.len() == *len,
            (Self::Pages(len, _), Landing::Pages(bytes)) => *bytes == *len,
            _ => false,
        }
    }
}

/// Memory that belongs to the program again: nothing that comes late may be written there.
#[derive(Debug)]
enum Ours {
    /// Calls have given it back.
    Buffer(Vec<u8>),
    /// Pages in which a payload has landed, perhaps where a call has given them back, and that payload.
    Pages(Landed, Vec<u8>),
}

impl Ours {
    fn is_whole(&self) -> bool {
        match self {
            Self::Buffer(bytes) => bytes.iter().all(|byte| *byte == OURS),
            Self::Pages(landed, bytes) => landed.to_vec() == *bytes,
        }
    }
}

/// What the program has for itself again, and until when it looks after it.
#[derive(Debug, Default)]
pub(super) struct GivenBack(Vec<(Instant, Ours)>);

impl GivenBack {
    fn keep(&mut self, mut bytes: Vec<u8>) {
        bytes.fill(OURS);
        self.0.push((now().after(KEPT_NS), Ours::Buffer(bytes)));
    }

    fn hold(&mut self, landed: Landed, bytes: Vec<u8>) {
        self.0.push((now().after(KEPT_NS), Ours::Pages(landed, bytes)));
    }

    /// A place has come back: it has to be the one that was granted.
    fn landing(&mut self, landing: Option<Landing>, granted: &Place) -> Result<(), String> {
        match landing {
            Some(other) if !granted.is(&other) => Err(format!("{other:?} is given back for {granted:?}")),
            Some(Landing::Buffer(bytes)) => {
                self.keep(bytes);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Nobody may have written to what is let go now; to `all` of it, at the end.
    pub(super) fn check(&mut self, all: bool) -> Result<(), String> {
        let at = now();
        let mut goes = self.0.extract_if(.., |(until, _)| all || *until <= at);
        match goes.find(|(_, ours)| !ours.is_whole()) {
            Some((_, Ours::Buffer(_))) => Err("memory that a call has given back was written to".into()),
            Some((_, Ours::Pages(..))) => Err("pages whose payload is held were written to".into()),
            None => Ok(()),
        }
    }
}

/// The bytes of a payload that has come, wherever it lies.
pub(super) fn payload(payload: Payload) -> Result<Vec<u8>, String> {
    match payload {
        Payload::None => Ok(Vec::new()),
        Payload::Landed(landed) => Ok(landed.to_vec()),
        Payload::Buffer(bytes) => Ok(bytes),
        other => Err(format!("{other:?} where all of it has come")),
    }
}

/// A call has failed; with what no fault of these worlds explains, it makes no sense.
fn wrong(why: CallError) -> Outcome {
    match why {
        CallError::Failed(Failure::Panicked | Failure::Arguments | Failure::TooLong | Failure::Refused) => {
            Outcome::Absurd(why.to_string())
        }
        why => Outcome::Wrong(why),
    }
}

/// What a typed call has ended with.
fn typed(result: Result<Text, RpcError>) -> Outcome {
    match result {
        Ok((of, bytes)) => Outcome::Right(of, bytes),
        Err(RpcError::Call(why)) => wrong(why),
        Err(RpcError::NoChannel(_)) => Outcome::Wrong(CallError::NotSent(RequestError::Closed)),
        Err(other) => Outcome::Absurd(other.to_string()),
    }
}

/// What a raw call has ended with. One that takes no answer but its number has stored.
fn raw(number: u64, stores: bool, result: Result<Reply, RawError>, granted: &Place, back: &mut GivenBack) -> Outcome {
    match result {
        Ok(mut reply) => {
            let of = reply.args().first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
            if let Err(what) = back.landing(reply.take_landing(), granted) {
                return Outcome::Absurd(what);
            }
            let came = reply.take_payload();
            let in_buffer = matches!(came, Payload::Buffer(_));
            let bytes = match came {
                Payload::Landed(landed) => {
                    let bytes = landed.to_vec();
                    back.hold(landed, bytes.clone());
                    Ok(bytes)
                }
                came => payload(came),
            };
            match (of, bytes) {
                (Some(of), Ok(_)) if stores => Outcome::Right(of, Vec::new()),
                (Some(of), Ok(bytes)) => {
                    if in_buffer {
                        back.keep(bytes.clone());
                    }
                    Outcome::Right(of, bytes)
                }
                (of, bytes) => Outcome::Absurd(format!("call {number} is answered as {of:?} with {bytes:?}")),
            }
        }
        Err(failed) => {
            let why = failed.error;
            back.landing(failed.landing, granted).map_or_else(Outcome::Absurd, |()| wrong(why))
        }
    }
}

impl Life {
    /// Makes a call of some kind.
    pub(super) fn call(
        &mut self,
        random: &mut Random,
        client: &Client,
        longest: u64,
        within: Duration,
        watch: &Shared,
    ) {
        let len = usize::try_from(random.below(longest + 1)).unwrap_or_default();
        let within = Duration::from_nanos(1 + random.below(u64::try_from(within.as_nanos()).unwrap_or(u64::MAX)));
        let client = client.within(within);
        let until = now().after(u64::try_from(within.as_nanos()).unwrap_or(u64::MAX));
        let kind = random.below(8);
        let number = watch.lock().begins(self.name, len, kind == 1, until);
        let text = || (number, pattern(number, len));
        let start = |method: Method<Text, Text>| Kind::Typed(client.start(method, &text()));
        let args = number.to_le_bytes();
        let future = match kind {
            0 => start(ECHO),
            1 => start(AGAIN),
            2 => start(LATER),
            3 => return self.call_then(number, &client, watch),
            4 => {
                let body = match client.page(len.max(1)) {
                    Ok(mut page) if len > 0 => {
                        page.copy_from_slice(&pattern(number, len));
                        Body::Page(page)
                    }
                    _ => Body::Owned(pattern(number, len)),
                };
                Kind::Raw(client.start_raw(Raw::new(STORE).args(&args).body(body)), Place::None)
            }
            kind => {
                let handler = if kind == 5 { PASS } else { FETCH };
                let raw = Raw::new(handler).args(&args);
                let (raw, place) = match random.below(3) {
                    // What is handed over has no place.
                    0 if kind != 5 && len > 0 => (raw.reply_into(Landing::Buffer(vec![0; len])), Place::Buffer(len)),
                    1 if kind != 5 && len > 0 => {
                        (raw.reply_into(Landing::Pages(len)), Place::Pages(len, client.clone()))
                    }
                    _ => (raw, Place::None),
                };
                Kind::Raw(client.start_raw(raw), place)
            }
        };
        let stores = kind == 4;
        if stores {
            watch.lock().stores(number);
        }
        self.under.push(Under { number, future });
    }

    /// Makes a call that may be served twice.
    pub(super) fn call_again(&mut self, client: &Client, longest: u64, within: Duration, watch: &Shared) {
        let until = now().after(u64::try_from(within.as_nanos()).unwrap_or(u64::MAX));
        let len = usize::try_from(longest).unwrap_or_default();
        let number = watch.lock().begins(self.name, len, true, until);
        let future = Kind::Typed(client.within(within).start(AGAIN, &(number, pattern(number, len))));
        self.under.push(Under { number, future });
    }

    /// Makes a call that is gone on with.
    fn call_then(&self, number: u64, client: &Client, watch: &Shared) {
        let sees = watch.clone();
        let text = (number, watch.lock().answer(number));
        let made = client.call_then(ECHO, &text, move |result| sees.lock().ends(number, &typed(result)));
        if let Err(why) = made {
            watch.lock().ends(number, &Outcome::Wrong(why.into()));
        }
    }

    /// Looks at every call under way.
    pub(super) fn poll(&mut self, watch: &Shared, back: &mut GivenBack) {
        let mut context = Context::from_waker(Waker::noop());
        for mut under in std::mem::take(&mut self.under) {
            let begun = now();
            let outcome = match &mut under.future {
                Kind::Typed(future) => Pin::new(future).poll(&mut context).map(typed),
                Kind::Raw(future, place) => {
                    let stores = watch.lock().is_store(under.number);
                    Pin::new(future).poll(&mut context).map(|result| raw(under.number, stores, result, place, back))
                }
            };
            let mut watch = watch.lock();
            match outcome {
                Poll::Ready(outcome) => watch.ends(under.number, &outcome),
                Poll::Pending if begun > watch.until(under.number) => {
                    let late = begun.saturating_since(watch.until(under.number));
                    watch.broken(format!("call {} waits {late} ns after its deadline", under.number));
                }
                Poll::Pending => self.under.push(under),
            }
        }
    }

    /// Gives one of them up.
    pub(super) fn cancel(&mut self, random: &mut Random, watch: &Shared, back: &mut GivenBack) {
        if self.under.is_empty() {
            return;
        }
        let many = self.under.len() as u64;
        let under = self.under.swap_remove(usize::try_from(random.below(many)).unwrap_or_default());
        let mut freed = None;
        match under.future {
            Kind::Raw(future, place) if random.below(4) > 0 => {
                let landing = future.cancel();
                let is_back = landing.is_some();
                if let Err(what) = back.landing(landing, &place) {
                    watch.lock().broken(format!("call {}: {what}", under.number));
                }
                freed = Some(place).filter(|_| is_back);
            }
            future => drop(future),
        }
        watch.lock().ends(under.number, &Outcome::Cancelled);
        if let Some(Place::Pages(len, client)) = freed {
            self.land_there(len, &client, watch);
        }
    }

    /// Pages were given back: the answer to another call lands there, before that of the one that has granted them.
    fn land_there(&mut self, len: usize, client: &Client, watch: &Shared) {
        let until = now().after(u64::try_from(AT_ONCE.as_nanos()).unwrap_or(u64::MAX));
        let number = watch.lock().begins(self.name, len, false, until);
        let raw = Raw::new(FETCH).args(&number.to_le_bytes()).reply_into(Landing::Pages(len));
        let future = client.within(AT_ONCE).start_raw(raw);
        self.under.push(Under { number, future: Kind::Raw(future, Place::Pages(len, client.clone())) });
    }
}
