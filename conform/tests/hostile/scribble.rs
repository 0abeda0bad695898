//! A peer that writes over everything that it may write, while its victim does everything that it can.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cutthrough::{Config, Event, Incoming, Landing, Payload, Token};
use cutthrough_conform::random::Random;
use cutthrough_wire::layout::{LINE_BYTES, Line};
use cutthrough_wire::slot::{Header, Kind};

use crate::liar::{Liar, Victim, config, sizes};

/// Channels that are scribbled to death.
const ROUNDS: u64 = 300;
/// Longest life of one of them.
const LIFE: Duration = Duration::from_millis(15);
/// Kinds of messages.
const KINDS: u64 = Kind::Share as u64 + 1;
/// Longest payload that the victim reads.
const READ_MAX: usize = 1 << 20;

/// What is scribbled.
pub(crate) struct Dice(Random);

impl Dice {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(Random(seed))
    }

    fn next(&mut self) -> u64 {
        self.0.draw()
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0.below(end)
    }

    /// A number of the kind that rings are full of: small, near a limit, or anything.
    pub(crate) fn number(&mut self) -> u64 {
        match self.below(8) {
            0..=3 => self.below(70),
            4 => self.below(1 << 17),
            5 => u64::MAX - self.below(3),
            6 => (self.below(5) << 12).wrapping_sub(self.below(2)),
            _ => self.next(),
        }
    }
}

/// Writes nonsense until it is told to stop: some of it good enough to get further than the first check.
fn scribble(liar: &mut Liar, seed: u64, stop: &AtomicBool) {
    let mut dice = Dice::new(seed);
    let layout = sizes().layout().expect("good sizes");
    let out = Arc::clone(&liar.out);
    let landing = liar.peer.landing().clone();
    while !stop.load(Ordering::Relaxed) {
        match dice.below(16) {
            0..=6 => {
                let words = plausible(&mut dice);
                liar.publish(words);
            }
            7 => {
                let line = 1 + dice.below(Line::Recalled as u64);
                out.word(line * LINE_BYTES + dice.below(3) * 8).store(dice.number(), Ordering::Release);
            }
            8 => liar.own.set(Line::Staged, liar.peer.get(Line::Drained) + dice.below(1 << 16)),
            9 => liar.own.set(Line::Drained, liar.peer.get(Line::Staged)),
            10 => out.word(layout.free + dice.below(64) * 8).store(dice.number(), Ordering::Relaxed),
            11 => out.word(layout.runs + dice.below(64) * 8).store(dice.number(), Ordering::Relaxed),
            12 => out.word(layout.returns + dice.below(64) * 8).store(dice.number(), Ordering::Relaxed),
            13 => out.word(layout.tokens + dice.below(512) * 8).store(dice.number(), Ordering::Relaxed),
            14 => out.word(dice.below(layout.out_bytes / 8) * 8).store(dice.next(), Ordering::Relaxed),
            _ => landing.word(dice.below(layout.landing_bytes / 8) * 8).store(dice.next(), Ordering::Relaxed),
        }
        if dice.below(4) == 0 {
            thread::yield_now();
        }
    }
}

/// Keeps every rule that can be kept, so as to live long, and writes nonsense wherever no rule is: into payloads while
/// they are read, into tokens, into slots that were published already.
fn scribble_quietly(liar: &mut Liar, seed: u64, stop: &AtomicBool) {
    let mut dice = Dice::new(seed);
    let layout = sizes().layout().expect("good sizes");
    let out = Arc::clone(&liar.out);
    let landing = liar.peer.landing().clone();
    while !stop.load(Ordering::Relaxed) {
        liar.take();
        let len = u32::try_from(dice.below(30_000)).unwrap_or(0);
        match dice.below(8) {
            0..=3 if !liar.has_room() => thread::yield_now(),
            0 => liar.stage(len),
            1 => {
                let run = dice.below(248) | 8 << 28;
                liar.say(Kind::Reference, 1, len, run, dice.next());
            }
            2 => liar.say(Kind::PutToken, 0, len, dice.below(256), dice.next()),
            3 => liar.say(Kind::Dropped, 0, len, dice.next(), dice.next()),
            4 => out.word(layout.tokens + dice.below(512) * 8).store(dice.number(), Ordering::Relaxed),
            5 => out.word(layout.staging + dice.below(8 << 10) * 8).store(dice.next(), Ordering::Relaxed),
            6 => out.word(layout.pool + dice.below(1 << 17) * 8).store(dice.next(), Ordering::Relaxed),
            _ => landing.word(dice.below(layout.landing_bytes / 8) * 8).store(dice.next(), Ordering::Relaxed),
        }
    }
}

/// Words 1 to 3 of a slot which may even be good.
fn plausible(dice: &mut Dice) -> [u64; 3] {
    let kind = Kind::from_raw(u8::try_from(dice.below(KINDS)).unwrap_or(0)).unwrap_or(Kind::Control);
    let with_runs = matches!(kind, Kind::Reference | Kind::Put | Kind::GetToken | Kind::Share);
    let runs = u16::try_from(if with_runs { 1 + dice.below(3) } else { 0 }).unwrap_or(0);
    let payload_len = if kind == Kind::Control { 0 } else { u32::try_from(dice.below(20_000)).unwrap_or(0) };
    let detail = match kind {
        Kind::Staged => dice.below(u64::from(payload_len) + 1),
        Kind::Reference | Kind::Put => dice.below(200) | (1 + dice.below(8)) << 28 | dice.below(4) << 48,
        _ => dice.number(),
    };
    let mut words = Header { control_len: 8, kind, runs, payload_len, detail, name: dice.number() }.to_words();
    if dice.below(60) == 0 {
        words[usize::try_from(dice.below(3)).unwrap_or(0)] = dice.next();
    }
    words
}

/// The victim does one thing on the liar's channel. Errors are expected; anything else is not.
fn act(victim: &mut Victim, liar: cutthrough::Channel, dice: &mut Dice, held: &mut Vec<Incoming>) {
    let len = usize::try_from(dice.below(100_000)).unwrap_or(0);
    let token = Token { index: u16::try_from(dice.below(260)).unwrap_or(0), key: dice.number() };
    match dice.below(12) {
        0 => drop(victim.endpoint.send(liar, b"control")),
        1 => {
            if let Ok(outgoing) = victim.endpoint.outgoing(liar) {
                let _ = outgoing.attach_copy(&vec![7; len]).send();
            }
        }
        2 => {
            if let Ok(page) = victim.endpoint.page(liar, len)
                && let Ok(outgoing) = victim.endpoint.outgoing(liar)
            {
                let _ = outgoing.attach(page).track(dice.next()).send();
            }
        }
        3 => {
            if let Ok(outgoing) = victim.endpoint.outgoing(liar) {
                let _ = outgoing.attach_copy(&vec![7; len / 4]).to(token).send();
            }
        }
        4 => drop(victim.endpoint.post(liar, len / 8, 2)),
        5 => {
            let landing = if len % 2 == 0 { Landing::Pages(len / 8) } else { Landing::Buffer(vec![0; len]) };
            if let Ok(token) = victim.endpoint.grant(liar, landing)
                && dice.below(2) == 0
            {
                let _ = victim.endpoint.revoke(liar, token);
            }
        }
        6 => held.clear(),
        7 if len % 2 == 0 => drop(victim.endpoint.recall(liar)),
        7 => {
            if let Some(Payload::Landed(landed)) = held.pop().map(|mut message| message.take_payload())
                && let Ok(outgoing) = victim.endpoint.outgoing(liar)
            {
                let _ = outgoing.attach_landed(landed).send();
            }
        }
        _ => {
            if let Some(Event::Message(mut message)) = victim.endpoint.poll() {
                if dice.below(2) == 0 {
                    look(victim, &mut message);
                }
                held.push(message);
            }
        }
    }
    held.truncate(30);
}

/// Reads a payload of sensible length, into memory with something behind it that has to stay as it is.
fn look(victim: &mut Victim, message: &mut Incoming) {
    let len = message.payload_len();
    if len > READ_MAX {
        return;
    }
    if let Payload::Landed(landed) = message.payload() {
        assert_eq!(landed.to_vec().len(), len);
    }
    let mut bytes = vec![0xc5; len + 64];
    let _ = victim.endpoint.read(message, &mut bytes);
    assert_eq!(bytes[len..], [0xc5; 64], "written beyond the payload");
}

/// Ends the process when the rounds stop: a hang would otherwise only be seen by whoever waits for the tests.
fn watch(rounds: &'static AtomicU64) {
    thread::spawn(move || {
        let mut seen = (0, Instant::now());
        loop {
            thread::sleep(Duration::from_millis(100));
            let now = rounds.load(Ordering::Relaxed);
            if now != seen.0 {
                seen = (now, Instant::now());
            }
            if seen.1.elapsed() > Duration::from_secs(30) {
                eprintln!("the victim hangs in round {now}");
                std::process::abort();
            }
            if now > ROUNDS {
                return;
            }
        }
    });
}

/// How a peer scribbles.
type Mood = fn(&mut Liar, u64, &AtomicBool);

/// Lets a victim live with one scribbler after another: how many of the channels were closed on them.
fn survive(mood: Mood, deadline: Duration, rounds: &'static AtomicU64) -> u64 {
    watch(rounds);
    let mut victim = Victim::with(Config { deadline, ..config() });
    let canaries: Vec<Box<[u64; 512]>> = (0..64).map(|number| Box::new([number; 512])).collect();
    let mut closed = 0;
    for round in 0..ROUNDS {
        let mut liar = Liar::join(&mut victim);
        let channel = liar.channel;
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| mood(&mut liar, round, &stop));
            let mut dice = Dice::new(!round);
            let mut held = Vec::new();
            let begun = Instant::now();
            while begun.elapsed() < LIFE && victim.endpoint.peer(channel).is_some() {
                act(&mut victim, channel, &mut dice, &mut held);
            }
            stop.store(true, Ordering::Relaxed);
        });
        drop(liar);
        closed += u64::from(victim.endpoint.peer(channel).is_none());
        victim.endpoint.close(channel);
        victim.honest_channel_works(round);
        rounds.store(round + 1, Ordering::Relaxed);
    }
    rounds.store(ROUNDS + 1, Ordering::Relaxed);
    for (number, canary) in (0..).zip(&canaries) {
        assert!(canary.iter().all(|word| *word == number), "canary {number}");
    }
    closed
}

#[test]
fn a_victim_survives_a_scribbler() {
    static DONE: AtomicU64 = AtomicU64::new(0);
    let closed = survive(scribble, Duration::from_millis(3), &DONE);
    assert!(closed > ROUNDS / 2, "lies go unnoticed: only {closed} of {ROUNDS} channels were closed");
}

#[test]
fn a_victim_survives_a_scribbler_that_keeps_the_rules() {
    static DONE: AtomicU64 = AtomicU64::new(0);
    let closed = survive(scribble_quietly, Duration::from_millis(200), &DONE);
    eprintln!("{closed} of {ROUNDS} channels were closed");
}
