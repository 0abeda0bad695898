//! Requests that are handed over: A asks B, B hands over to C, C replies to A (Trapeze's delegated call, USENIX 1998).
//!
//! On each channel every request is answered once, as ever: C answers B when its direct reply has gone, and then B
//! answers A. So the windows and the queues of all three stay as bounded as they are without it. Only direct replies
//! need a bound of their own, for those that wait for A are the replies to requests of any number of Bs: at most
//! [`LARGE`] wait, and what C would reply beyond them is thrown away. C can hand it to nobody else: B would wait for an
//! answer that goes to A.

use cutthrough_wire::slot::CONTROL_MAX;

use super::calls::Ended;
use super::message::{CallId, Kind, Message, Origin};
use super::{Ask, Core, Failure, Keep, LARGE, ReplyTo, Transport, Unasked, Unsent};
use crate::time::Instant;

impl<K, L> Core<K, L> {
    /// Hands a request over to the endpoint of another row, which replies directly to who asked. Its requester is told
    /// who that is, at once if there is room. When whoever takes it has answered, or has not done so before `deadline`,
    /// [`Core::handed`] has to be called with the right to answer.
    ///
    /// # Errors
    /// [`Unasked`], the load and the right to answer; nothing has happened then.
    #[allow(clippy::too_many_arguments, reason = "those of a request, and the right to answer")]
    pub fn hand_over<B: Default>(
        &mut self,
        transport: &mut impl Transport<B>,
        to: ReplyTo,
        row: u32,
        ask: &Ask<'_>,
        load: B,
        deadline: Instant,
        context: impl FnOnce(ReplyTo) -> K,
    ) -> Result<CallId, (Unasked, B, ReplyTo)> {
        let first = self.peers.get(to.row as usize).filter(|peer| peer.open && peer.life == to.life);
        let (Some(first), None) = (first, &to.by) else { return Err((Unasked::Closed, load, to)) };
        let Some(taker) = self.peers.get(row as usize).filter(|peer| peer.open) else {
            return Err((Unasked::Closed, load, to));
        };
        let origin = Origin { generation: first.generation, call: to.call };
        let taker = Origin { generation: taker.generation, call: CallId::new(0, 0) };
        let again = ReplyTo { row: to.row, life: to.life, call: to.call, by: None };
        match self.request_for(transport, row, ask, Some(origin), load, deadline, context(to)) {
            Ok(call) => {
                self.calls.pass(call, (again.row, again.life, again.call));
                let notice = Message { origin: Some(taker), ..Message::new(Kind::HandOver, again.call) };
                self.say(transport, again.row, notice);
                Ok(call)
            }
            Err((why, load)) => Err((why, load, again)),
        }
    }

    /// Says something that has no load: now, unless there is no room or others wait already.
    fn say<B: Default>(&mut self, transport: &mut impl Transport<B>, row: u32, message: Message<'_>) {
        let mut control = [0; CONTROL_MAX];
        let Some(len) = message.encode(&mut control) else { return };
        let waits = !self.peers[row as usize].kept.is_empty();
        if waits || matches!(transport.send(row, &control[..len], None, B::default()), Err((Unsent::Full, _))) {
            self.keep(row, message);
        }
    }

    /// Whoever has taken a request over has answered: tells who asked first.
    pub fn handed(&mut self, to: &ReplyTo, failure: Option<Failure>) {
        let Some(peer) = self.peers.get_mut(to.row as usize).filter(|peer| peer.open && peer.life == to.life) else {
            return;
        };
        peer.answers_one();
        let window = core::mem::take(&mut peer.tell);
        let kind = if failure.is_some() { Kind::Failed } else { Kind::Handed };
        let code = failure.map_or(0, |failure| failure as u8);
        self.keep(to.row, Message { window, code, ..Message::new(kind, to.call) });
    }

    /// Whoever has made this request of a row does not wait for it any more: see [`Cancelled`](super::Got::Cancelled).
    /// If it was handed over and is not answered yet, whoever has taken it is told: what was to become of that call,
    /// and with the right to answer that is in it [`Core::handed`] has to be called.
    pub fn cancel_handed(&mut self, row: u32, call: CallId) -> Option<K> {
        let life = self.peers.get(row as usize).filter(|peer| peer.open)?.life;
        let handing = self.calls.passing((row, life), Some(call))?;
        self.cancel(handing)
    }

    /// The channel of a row has ended: the next call that hands over a request of it, and whose taker is told that
    /// nobody waits any more.
    pub(super) fn lost_handed(&mut self, row: u32) -> Option<Ended<K>> {
        let life = self.peers.get(row as usize)?.life;
        let handing = self.calls.passing((row, life), None)?;
        let ended = self.calls.forget(handing)?;
        self.tell_cancelled(&ended);
        Some(ended)
    }

    /// The reply goes to who asked first; then who has handed the request over is told.
    pub(super) fn answer_directly<B: Keep<L>>(
        &mut self,
        transport: &mut impl Transport<B>,
        to: &ReplyTo,
        (row, life, call): (u32, u32, CallId),
        failure: Option<Failure>,
        args: &[u8],
        load: B,
    ) -> bool {
        let first = self.peers.get(to.row as usize).filter(|peer| peer.open && peer.life == to.life);
        let why = match first {
            None => Some(Failure::NoRoute),
            Some(first) if first.direct >= LARGE => Some(Failure::Abandoned),
            Some(_) => None,
        };
        let went = if why.is_none() {
            let code = failure.map_or(0, |failure| failure as u8);
            let message = Message { code, args, ..Message::new(Kind::Direct, to.call) };
            self.send_or_keep(transport, to.row, message, None, load)
        } else {
            self.thrown += u64::from(failure.is_none());
            false
        };
        if let Some(peer) = self.peers.get_mut(row as usize).filter(|peer| peer.open && peer.life == life) {
            peer.answers_one();
            let window = core::mem::take(&mut peer.tell);
            let (kind, code) = why.map_or((Kind::Reply, 0), |why| (Kind::Failed, why as u8));
            self.keep(row, Message { window, code, ..Message::new(kind, call) });
        }
        went
    }
}
