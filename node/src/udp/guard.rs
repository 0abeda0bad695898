//! Keys and check sums: what the engine asks of whoever proves who is who.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cutthrough_engine::seal::{BoxedSeal, Guard, Handshake, Seal, WrongKey};
use cutthrough_engine::time::Instant;
use cutthrough_seal::{CheckSum, Initiator, Keys, PublicKey, Terms, respond};
use cutthrough_wire::frame::Greeting;

use crate::clock;
use crate::sys::sum;

/// Nanoseconds for which the same cookie is told. It is good for as long again, so that a hello that was recorded is of
/// no use before long.
const COOKIE_NS: u64 = 4_000_000_000;

/// Check sums, by what this processor is best at.
fn check_sum() -> CheckSum {
    sum::of_long().map_or_else(CheckSum::default, CheckSum::with)
}

/// The handshake of plain text: there is none.
#[derive(Debug)]
struct Plain;

impl Handshake for Plain {
    fn finish(&mut self, answer: &[u8]) -> Result<BoxedSeal, WrongKey> {
        if answer.is_empty() { Ok(Box::new(check_sum())) } else { Err(WrongKey) }
    }
}

struct Begun(Initiator);

impl Handshake for Begun {
    fn finish(&mut self, answer: &[u8]) -> Result<BoxedSeal, WrongKey> {
        let session = self.0.hear(answer).map_err(|_| WrongKey)?;
        Ok(Box::new(session))
    }
}

/// Whom each call goes to, by the number of its channel, where that was said.
#[derive(Debug, Default, Clone)]
pub(crate) struct Callees(Arc<Mutex<Vec<Option<PublicKey>>>>);

impl Callees {
    fn lock(&self) -> MutexGuard<'_, Vec<Option<PublicKey>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set(&self, channel: usize, peer: Option<PublicKey>) {
        let mut callees = self.lock();
        if callees.len() <= channel {
            callees.resize(channel + 1, None);
        }
        callees[channel] = peer;
    }

    /// Whom the call goes to whose hello this is.
    fn of(&self, prologue: &[u8]) -> Option<PublicKey> {
        let (greeting, _) = Greeting::from_bytes(prologue).ok()?;
        self.lock().get(greeting.tag as usize).copied().flatten()
    }
}

/// What nobody else knows, and no log shows.
struct Secret([u8; 32]);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

/// The guard of one endpoint.
#[derive(Debug)]
pub(crate) struct Doorkeeper {
    keys: Option<Arc<Keys>>,
    callees: Callees,
    secret: Secret,
    plain: CheckSum,
}

impl Doorkeeper {
    pub(crate) fn new(keys: Option<Arc<Keys>>, callees: Callees) -> Self {
        Self { keys, callees, secret: Secret(entropy()), plain: check_sum() }
    }
}

impl Doorkeeper {
    fn cookie_at(&self, span: u64, bytes: &[u8]) -> u64 {
        // What is behind 32 bytes that nobody knows leaves nothing of them in 64 bits of SipHash.
        let mut hasher = DefaultHasher::new();
        (self.secret.0, span, bytes).hash(&mut hasher);
        hasher.finish()
    }
}

/// The number of the time in which a cookie is told.
const fn span(now: Instant) -> u64 {
    now.as_nanos() / COOKIE_NS
}

fn entropy() -> [u8; 32] {
    let mut bytes = [0; 32];
    crate::entropy::fill(&mut bytes).expect("random numbers of the kernel");
    bytes
}

impl Guard for Doorkeeper {
    fn call(&mut self, prologue: &[u8]) -> Result<(Box<dyn Handshake + Send>, Vec<u8>), WrongKey> {
        let Some(keys) = &self.keys else { return Ok((Box::new(Plain), Vec::new())) };
        let terms = Terms { peer: self.callees.of(prologue), ..Terms::default() };
        let (initiator, first) = Initiator::begin_on(keys, terms, prologue, entropy()).map_err(|_| WrongKey)?;
        Ok((Box::new(Begun(initiator)), first))
    }

    fn answer(&mut self, prologue: &[u8], first: &[u8]) -> Result<(BoxedSeal, Vec<u8>), WrongKey> {
        match &self.keys {
            None if first.is_empty() => Ok((Box::new(check_sum()), Vec::new())),
            None => Err(WrongKey),
            Some(keys) => {
                let (session, second) = respond(keys, prologue, entropy(), first).map_err(|_| WrongKey)?;
                Ok((Box::new(session), second))
            }
        }
    }

    fn plain(&mut self) -> &mut dyn Seal {
        &mut self.plain
    }

    fn cookie(&self, bytes: &[u8]) -> u64 {
        self.cookie_at(span(clock::now()), bytes)
    }

    fn knows(&self, bytes: &[u8], cookie: u64) -> bool {
        let now = span(clock::now());
        [now, now.saturating_sub(1)].into_iter().any(|span| self.cookie_at(span, bytes).max(1) == cookie)
    }

    fn random(&mut self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = entropy();
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_good_for_its_span_and_the_next() {
        let guard = Doorkeeper::new(None, Callees::default());
        // The clock may step into the next span meanwhile.
        let (now, mine) = (span(clock::now()), b"address");
        let told = |span: u64| guard.cookie_at(span, mine).max(1);
        assert!(guard.knows(mine, told(now)) && guard.knows(mine, guard.cookie(mine).max(1)));
        assert!(span(clock::now()) > now || guard.knows(mine, told(now.saturating_sub(1))));
        for stranger in [0, told(now.wrapping_sub(2)), told(now + 9), guard.cookie_at(now, b"other").max(1)] {
            assert!(!guard.knows(mine, stranger), "{stranger}");
        }
    }
}
