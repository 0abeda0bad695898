//! Keys that move on with the numbers of frames: whatever is lost, late, repeated or told as a lie, no key seals two
//! texts under one number, and nothing comes twice, changed or never.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use cutthrough_engine::seal::{BoxedSeal, Guard, Handshake, OPENING_NUMBER, Seal, WrongKey};
use proptest::prelude::*;

use super::duo::{Duo, Told};
use super::wire::{Doorman, mix, sum};

/// Frames of an epoch: few enough that a world sees many.
const EPOCH: u64 = 128;

/// What was sealed: by which key, under which number.
type Ledger = Arc<Mutex<BTreeSet<(u64, u64)>>>;

/// The key of an epoch of one direction.
fn key(secret: u64, epoch: u64) -> u64 {
    mix(secret ^ mix(epoch))
}

const fn epoch(number: u64) -> u64 {
    (number & !OPENING_NUMBER) / EPOCH
}

/// Hides a body, and shows it.
fn hide(key: u64, number: u64, body: &mut [u8]) {
    let stream = mix(key ^ mix(number)).to_le_bytes();
    body.iter_mut().zip(stream.iter().cycle()).for_each(|(byte, with)| *byte ^= with);
}

/// A seal of the same rules as the library's: of its epoch, the one before and the one after.
struct Moving {
    secrets: [u64; 2],
    /// The epoch of what is sealed, and of what was opened last.
    at: [u64; 2],
    ledger: Ledger,
}

impl Moving {
    fn key_to_seal(&mut self, number: u64) -> u64 {
        let ahead = epoch(number).checked_sub(self.at[0]).expect("no frame of an epoch that has ended");
        assert!(ahead <= 1, "an epoch is skipped");
        self.at[0] += ahead;
        let key = key(self.secrets[0], epoch(number));
        assert!(self.ledger.lock().unwrap().insert((key, number)), "frame {number} was sealed twice");
        key
    }
}

impl Seal for Moving {
    fn is_bare(&self) -> bool {
        false
    }
    fn sum(&mut self, _: u64, _: &[u8], _: &[u8]) -> [u8; 16] {
        unreachable!("it hides what it seals")
    }
    fn seal(&mut self, number: u64, header: &[u8], body: &mut [u8]) -> [u8; 16] {
        let key = self.key_to_seal(number);
        hide(key, number, body);
        sum(key ^ number, [header, body])
    }
    fn seal_into(&mut self, number: u64, header: &[u8], plain: &[u8], out: &mut [u8]) -> [u8; 16] {
        out.copy_from_slice(plain);
        self.seal(number, header, out)
    }
    fn open(&mut self, number: u64, header: &[u8], seal: &[u8; 16], body: &mut [u8]) -> bool {
        let due = (self.at[1].saturating_sub(1)..=self.at[1] + 1).contains(&epoch(number));
        let key = key(self.secrets[1], epoch(number));
        if !due || sum(key ^ number, [header, body]) != *seal {
            return false;
        }
        self.at[1] = self.at[1].max(epoch(number));
        hide(key, number, body);
        true
    }
}

/// Lets everybody in; each handshake has a secret of its own.
struct Keeper {
    inner: Doorman,
    ledger: Ledger,
}

struct Begun {
    first: u64,
    ledger: Ledger,
}

/// The secrets of a handshake, those of who has called first.
fn secrets(first: u64, second: u64) -> [u64; 2] {
    [1, 2].map(|direction| mix(first ^ mix(second ^ mix(direction))))
}

impl Handshake for Begun {
    fn finish(&mut self, answer: &[u8]) -> Result<BoxedSeal, WrongKey> {
        let second = u64::from_le_bytes(answer.try_into().map_err(|_| WrongKey)?);
        let ledger = Arc::clone(&self.ledger);
        Ok(Box::new(Moving { secrets: secrets(self.first, second), at: [0; 2], ledger }))
    }
}

impl Guard for Keeper {
    fn call(&mut self, _: &[u8]) -> Result<(Box<dyn Handshake + Send>, Vec<u8>), WrongKey> {
        let first = self.inner.random();
        Ok((Box::new(Begun { first, ledger: Arc::clone(&self.ledger) }), first.to_le_bytes().to_vec()))
    }
    fn answer(&mut self, _: &[u8], first: &[u8]) -> Result<(BoxedSeal, Vec<u8>), WrongKey> {
        let first = u64::from_le_bytes(first.try_into().map_err(|_| WrongKey)?);
        let second = self.inner.random();
        let [theirs, ours] = secrets(first, second);
        let ledger = Arc::clone(&self.ledger);
        Ok((Box::new(Moving { secrets: [ours, theirs], at: [0; 2], ledger }), second.to_le_bytes().to_vec()))
    }
    fn plain(&mut self) -> &mut dyn Seal {
        self.inner.plain()
    }
    fn cookie(&self, bytes: &[u8]) -> u64 {
        self.inner.cookie(bytes)
    }
    fn random(&mut self) -> u64 {
        self.inner.random()
    }
}

/// What happens; `true` is the second of the two.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// Sends messages: bytes of their payloads.
    Send(bool, u8, Option<usize>),
    /// Both look, several times.
    Run(u8),
    Look(bool),
    Pass(u64),
    /// Of what comes, so many frames are lost.
    Lose(bool, usize),
    /// The next frame comes once more, that much later.
    Repeat(bool),
    /// The next frame comes late.
    Delay(bool),
    /// All that was kept late comes now, forwards or backwards.
    Late(bool),
    /// The next frame has so many epochs added to its number.
    Lie(bool, u64),
    Restart(bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let len = prop_oneof![2 => Just(None), 2 => (1..3000_usize).prop_map(Some), 1 => (1..120_000_usize).prop_map(Some)];
    let step = prop_oneof![
        8 => (any::<bool>(), 1..20_u8, len).prop_map(|(end, count, len)| Step::Send(end, count, len)),
        8 => (1..20_u8).prop_map(Step::Run),
        6 => any::<bool>().prop_map(Step::Look),
        3 => (0..3_000_000_u64).prop_map(Step::Pass),
        2 => (any::<bool>(), 1..12_usize).prop_map(|(end, count)| Step::Lose(end, count)),
        3 => any::<bool>().prop_map(Step::Repeat),
        3 => any::<bool>().prop_map(Step::Delay),
        2 => any::<bool>().prop_map(Step::Late),
        2 => (any::<bool>(), 1..4_u64).prop_map(|(end, ahead)| Step::Lie(end, ahead)),
        1 => any::<bool>().prop_map(Step::Restart),
    ];
    prop::collection::vec(step, 40..160)
}

/// Everything that was sent, since both have this channel, has come, once and in order.
fn all_came(duo: &mut Duo) -> Result<(), TestCaseError> {
    duo.come_to_rest();
    for end in 0..2 {
        let told = duo.ends[end].told.iter();
        let messages: Vec<u64> =
            told.filter_map(|told| if let Told::Message(number) = told { Some(*number) } else { None }).collect();
        prop_assert_eq!(messages, (0..duo.ends[1 - end].sent).collect::<Vec<_>>());
        prop_assert_eq!(duo.ends[end].net.leak(), None);
    }
    Ok(())
}

/// The greatest epoch of which anything was sealed.
fn go(steps: &[Step]) -> Result<u64, TestCaseError> {
    let ledger = Ledger::default();
    let guard = |life| Box::new(Keeper { inner: Doorman::new(life), ledger: Arc::clone(&ledger) });
    let mut duo = Duo::new(|life| guard(life) as Box<dyn Guard + Send>);
    let (mut late, mut lives) = ([Vec::new(), Vec::new()], 2);
    for step in steps {
        duo.pass(1_000);
        match *step {
            Step::Send(end, count, len) => {
                for number in 0..count {
                    duo.send(end.into(), len, number % 2 == 0);
                }
                duo.go_out(end.into());
            }
            Step::Run(rounds) => {
                for round in 0..2 * usize::from(rounds) {
                    duo.pass(2_000);
                    duo.look(round % 2);
                    duo.take(round % 2, usize::MAX);
                    duo.read(round % 2, false);
                }
            }
            Step::Look(end) => duo.look(end.into()),
            Step::Pass(nanos) => duo.pass(nanos),
            Step::Lose(end, count) => {
                let coming = &mut duo.ends[usize::from(end)].coming;
                coming.drain(..count.min(coming.len()));
            }
            Step::Repeat(end) => {
                let frame = duo.ends[usize::from(end)].coming.front().cloned();
                late[usize::from(end)].extend(frame);
            }
            Step::Delay(end) => {
                let frame = duo.ends[usize::from(end)].coming.pop_front();
                late[usize::from(end)].extend(frame);
            }
            Step::Late(end) => {
                let frames = std::mem::take(&mut late[usize::from(end)]);
                for frame in frames {
                    duo.bring(end.into(), Some(frame));
                }
            }
            Step::Lie(end, ahead) => {
                if let Some(mut frame) = duo.ends[usize::from(end)].coming.front().cloned() {
                    let number = u64::from_le_bytes(*frame[16..].first_chunk().unwrap());
                    frame[16..24].copy_from_slice(&(number + ahead * EPOCH).to_le_bytes());
                    duo.bring(end.into(), Some(frame));
                }
            }
            Step::Restart(end) => {
                lives += 1;
                all_came(&mut duo)?;
                duo.restart(end.into(), lives, guard(lives));
            }
        }
    }
    all_came(&mut duo)?;
    Ok(ledger.lock().unwrap().iter().map(|(_, number)| epoch(*number)).max().unwrap_or(0))
}

#[test]
fn keys_move_on_many_times_beside_late_frames_and_lies() {
    let late = [Step::Delay(true), Step::Repeat(true), Step::Lie(true, 1), Step::Lie(true, 2), Step::Lose(true, 2)];
    let round = [&[Step::Send(false, 16, Some(20_000))], &late[..], &[Step::Run(19)]].concat();
    let steps = [round.repeat(3), vec![Step::Late(true)]].concat().repeat(4);
    assert!(go(&steps).unwrap() > 8);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn no_key_seals_twice_under_one_number_while_keys_move_on(steps in steps()) {
        go(&steps)?;
    }
}
