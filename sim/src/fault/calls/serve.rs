//! Handlers: every request is answered once, now or later, here or by another endpoint.

use cutthrough_engine::am::budget::Budget;
use cutthrough_engine::am::calls::{NEVER, UNDATED};
use cutthrough_engine::am::message::{Arguments, Message as Request};
use cutthrough_engine::am::{Ask, Failure, ReplyTo};
use cutthrough_engine::net::Net;
use cutthrough_engine::token::Token;

use super::super::memory::Host;
use super::super::user::Around;
use super::ledger::{self, Said};
use super::party::{Came, Context, Freight, Message, Out, Party, PutOff, UNSENDABLE, freight};
use super::{ECHO, GRANT, HUGE, LATER, PAGE, PASS, REFUSE};

/// Answers that are given at a time, of those that were put off.
const AT_A_TIME: usize = 8;

/// An answer, and where its payload shall land.
enum Answer {
    Reply(Vec<u8>, Option<Freight>, Option<Token>),
    Fail(Failure, Vec<u8>),
}

impl Party {
    /// A request has come.
    pub(super) fn serve(
        &mut self,
        net: &mut Net<Host>,
        request: &Request<'_>,
        to: ReplyTo,
        message: &Message,
        around: &mut Around<'_>,
    ) -> Result<(), String> {
        let door = self.doors.get_mut(&message.row).ok_or("a request of no channel")?;
        door.serving += 1;
        let came = Came { row: message.row, line: door.line };
        let number = around.watch.calls.serves(self.me, door.peer, request, to.is_handed_over())?;
        around.summary.calls.served += 1;
        let answer = if message.dropped {
            Answer::Fail(Failure::Token, Vec::new())
        } else if self.put_off.len() >= around.options.calls.serve {
            Answer::Fail(Failure::Busy, Vec::new())
        } else {
            match request.handler {
                ECHO => echo(number, around),
                PAGE => Answer::Reply(ledger::args(number, 8), Some(payload(around)), request.token),
                LATER => {
                    around.summary.calls.put_off += 1;
                    self.put_off.push(PutOff { number, to, came, token: request.token, over: false });
                    return Ok(());
                }
                PASS => match self.pass(net, number, request, to, came, around)? {
                    None => {
                        // It counts where it is answered.
                        around.summary.calls.served -= 1;
                        return Ok(());
                    }
                    Some(to) => return self.answer(net, number, to, came, fail(Failure::NoRoute), around),
                },
                GRANT => {
                    let mut args = ledger::args(number, 8);
                    let bytes = around.random.between(1, around.options.longest);
                    if let Some(token) = self.grant(net, message.row, bytes, around) {
                        args.extend(GRANT.to_le_bytes());
                        args.extend(token.index.to_le_bytes());
                        args.extend(token.key.to_le_bytes());
                        args.extend(u32::try_from(bytes).unwrap_or(0).to_le_bytes());
                    }
                    Answer::Reply(args, None, None)
                }
                REFUSE => Answer::Fail(Failure::Refused, ledger::args(number, 30)),
                HUGE => {
                    let huge = Freight { seed: number, len: UNSENDABLE, pages: true };
                    Answer::Reply(ledger::args(number, 8), Some(huge), request.token)
                }
                _ => Answer::Fail(Failure::Unknown, Vec::new()),
            }
        };
        self.answer(net, number, to, came, answer, around)
    }

    /// Hands a request over to any other channel; the right to answer comes back if there is none.
    fn pass(
        &mut self,
        net: &mut Net<Host>,
        number: u64,
        request: &Request<'_>,
        to: ReplyTo,
        came: Came,
        around: &mut Around<'_>,
    ) -> Result<Option<ReplyTo>, String> {
        let others: Vec<u32> = self.doors.keys().copied().filter(|row| *row != came.row).collect();
        if others.is_empty() {
            return Ok(Some(to));
        }
        let row = around.random.pick(&others);
        let peer = self.doors[&row].peer;
        let handler = around.random.pick(&[ECHO, PAGE, LATER, REFUSE, HUGE]);
        let load = around.random.chance(300).then(|| payload(around));
        let budget = request.budget.map(|budget| Budget::at(around.now, budget.nanos() / 2));
        let ask = Ask { handler, args: Arguments::Bytes(request.args), budget, ..Ask::default() };
        around.watch.calls.passed(number, self.me, peer, handler)?;
        let mut out = Out { net, watch: around.watch, doors: &mut self.doors, page: around.options.page };
        // One without a deadline gets it when the endpoint next looks at its clock.
        let deadline = if around.random.chance(500) { UNDATED } else { NEVER };
        match self.core.hand_over(&mut out, to, row, &ask, load, deadline, |to| Context::Passed(to, came)) {
            Ok(_) => {
                around.summary.calls.handed_over += 1;
                Ok(None)
            }
            Err((_, _, to)) => {
                around.watch.calls.kept(number)?;
                Ok(Some(to))
            }
        }
    }

    /// Answers some of what was put off.
    pub(super) fn answer_put_off(&mut self, net: &mut Net<Host>, around: &mut Around<'_>) -> Result<(), String> {
        if around.calm.is_none() && !around.random.chance(around.options.calls.answers) {
            return Ok(());
        }
        for _ in 0..AT_A_TIME.min(self.put_off.len()) {
            let PutOff { number, to, came, token, over } =
                self.put_off.swap_remove(around.random.index(self.put_off.len()));
            let answer = match around.random.below(6) {
                _ if over => fail(Failure::Cancelled),
                0 => fail(Failure::Abandoned),
                1 => Answer::Reply(ledger::args(number, 8), Some(payload(around)), token),
                _ => echo(number, around),
            };
            self.answer(net, number, to, came, answer, around)?;
        }
        Ok(())
    }

    fn answer(
        &mut self,
        net: &mut Net<Host>,
        number: u64,
        to: ReplyTo,
        came: Came,
        answer: Answer,
        around: &mut Around<'_>,
    ) -> Result<(), String> {
        self.answered(came);
        let said = match &answer {
            Answer::Reply(args, load, _) => {
                Said::Reply(args.clone(), load.map(|load| (load.seed, load.len < UNSENDABLE)))
            }
            Answer::Fail(why, args) => Said::Failed(*why, args.clone()),
        };
        around.watch.calls.said(number, said)?;
        let mut out = Out { net, watch: around.watch, doors: &mut self.doors, page: around.options.page };
        match answer {
            Answer::Reply(args, load, token) => self.core.reply(&mut out, to, Arguments::Bytes(&args), token, load),
            Answer::Fail(why, args) => self.core.fail(&mut out, to, why, &args, None),
        };
        Ok(())
    }
}

const fn fail(why: Failure) -> Answer {
    Answer::Fail(why, Vec::new())
}

fn echo(number: u64, around: &mut Around<'_>) -> Answer {
    // Up to the 64 bytes that there are; never what reads as a place.
    let len = ledger::NUMBER + around.random.index(57);
    let mut args = ledger::args(number, len);
    args.get_mut(ledger::NUMBER..).into_iter().flatten().take(1).for_each(|byte| *byte = u8::MAX);
    Answer::Reply(args, None, None)
}

fn payload(around: &mut Around<'_>) -> Freight {
    freight(around.random, around.options.longest)
}
