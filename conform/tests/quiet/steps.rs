//! Counts instructions, and those among them that lock: a process is traced through its sends and receives, one
//! instruction at a time.
//!
//! Every lock that threads or processes can share is taken by an instruction with the prefix LOCK, or by an exchange
//! with memory, which locks without one. So where there is no such instruction there is no lock, contended or not.

use std::arch::asm;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::ptr::null_mut;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use cutthrough::Event;
use cutthrough::am::{self, Node};

/// Says to the test of this name that it is the process to be traced.
const PART: &str = "QUIET_STEPPED";
/// Times that each part is done.
const ROUNDS: u64 = 16;

/// What comes after a mark.
const SEND: u64 = 1;
const RECEIVE: u64 = 2;
const LOCK: u64 = 3;
const ASK: u64 = 7;
const SERVE: u64 = 8;
const TAKE: u64 = 9;
const SLEEP: u64 = 10;
/// Nothing that is looked at.
const REST: u64 = 4;
/// The end; or the end, and the parts are not alone what was traced.
const DONE: u64 = 5;
const DISTURBED: u64 = 6;

/// What a piece of work was made of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Steps {
    pub(crate) instructions: u64,
    /// Those of them that lock the memory they work on, or wait until all before them is seen by everybody.
    pub(crate) locked: u64,
}

/// Every round of what was traced.
#[derive(Debug, Default)]
pub(crate) struct Traced {
    /// Sending a control message of 64 bytes.
    pub(crate) send: Vec<Steps>,
    /// Polling for it, looking at it and dropping it.
    pub(crate) receive: Vec<Steps>,
    /// Making a request of four words.
    pub(crate) ask: Vec<Steps>,
    /// Polling for it, which runs its handler and sends the reply.
    pub(crate) serve: Vec<Steps>,
    /// Polling for the reply, looking at it and dropping it.
    pub(crate) take: Vec<Steps>,
    /// Taking a free lock of the standard library, and giving it back.
    pub(crate) lock: Vec<Steps>,
    /// Waiting for a control message until it comes, asleep: its system calls.
    pub(crate) sleep: Vec<Vec<Call>>,
}

/// A system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) number: u64,
    /// Its fourth argument.
    pub(crate) fourth: u64,
}

/// Says to the tracing process what comes next.
fn mark(next: u64) {
    // SAFETY: a breakpoint. The tracing process takes it; this one goes on behind it with everything as it was.
    unsafe { asm!("int3", in("rdi") next) }
}

/// The process that is traced; returns at once in any other.
pub(crate) fn play() {
    if std::env::var_os(PART).is_none() {
        return;
    }
    let [mut a, mut b] = crate::pair();
    for number in 0..100 {
        crate::pass(&mut a, &mut b, number);
        crate::pass(&mut b, &mut a, number);
    }
    let mut pair = [a, b];
    let (mut far, mut node, channel) = crate::nodes();
    (0..100).for_each(|number| crate::ask(&mut far, &mut node, channel, number));
    let asides = |pair: &_, far: &Node, node: &Node| {
        crate::asides(pair) + crate::asides_of(far.endpoint()) + crate::asides_of(node.endpoint())
    };
    let before = asides(&pair, &far, &node);
    let lock = Mutex::new(0_u64);
    // SAFETY: asks to be traced by the process that has started this one; no pointer is used.
    let traced = unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, null_mut::<u8>(), null_mut::<u8>()) == 0 };
    // SAFETY: asks for a number.
    let thread = unsafe { libc::gettid() };
    println!("SAYS {}", if traced { thread } else { 0 });
    if !traced {
        return;
    }
    for number in 0..ROUNDS {
        let [from, to] = &mut pair;
        let control = [u8::try_from(number).unwrap_or(0); 64];
        mark(SEND);
        let sent = from.0.send(from.1, &control);
        mark(REST);
        assert_eq!(sent, Ok(()));
        mark(RECEIVE);
        let arrived = match to.0.poll() {
            Some(Event::Message(message)) => message.control() == control,
            _ => false,
        };
        mark(REST);
        assert!(arrived, "message {number}");
        mark(ASK);
        let asked = node.request(channel, 1, &[7, 2, 3, 4]);
        mark(REST);
        assert!(asked.is_ok());
        mark(SERVE);
        let served = far.poll().is_none();
        mark(REST);
        assert!(served);
        mark(TAKE);
        let answered = matches!(node.poll(), Some(am::Event::Replied(reply)) if reply.word(0) == 7);
        mark(REST);
        assert!(answered, "request {number}");
        mark(LOCK);
        if let Ok(mut inside) = std::hint::black_box(&lock).lock() {
            *inside += 1;
        }
        mark(REST);
        pair.reverse();
    }
    let end = if asides(&pair, &far, &node) == before { DONE } else { DISTURBED };
    for _ in 0..ROUNDS {
        let [from, to] = &mut pair;
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(10));
                from.0.send(from.1, b"wake").expect("room");
            });
            mark(SLEEP);
            let woken = matches!(to.0.wait(Some(Duration::from_secs(20))), Ok(Event::Message(_)));
            mark(REST);
            assert!(woken);
        });
        pair.reverse();
    }
    mark(end);
}

/// Traces a process through its work. `None` if this system lets nobody be traced.
pub(crate) fn trace() -> Option<Traced> {
    for _ in 0..20 {
        let (traced, end) = Tracee::start()?.follow();
        if end == DONE {
            return Some(traced);
        }
        assert_eq!(end, DISTURBED, "an unknown mark");
    }
    panic!("endpoints do other things all the time");
}

/// A process that this thread traces; killed when dropped.
struct Tracee {
    process: Child,
    thread: libc::pid_t,
}

impl Drop for Tracee {
    fn drop(&mut self) {
        let _ = self.process.kill();
        // A thread that is traced ends for whoever traces it, and the process only after all of its threads.
        let mut status = 0;
        // SAFETY: the kernel writes a number.
        while self.thread != 0 && unsafe { libc::waitpid(self.thread, &raw mut status, libc::__WALL) } == self.thread {}
        let _ = self.process.wait();
        // It was killed, so it has removed nothing; nobody listens at its name again.
        for kind in ["", "am-"] {
            let name = format!("cutthrough-quiet-{kind}{}.sock", self.process.id());
            for name in [format!("{name}.lock"), name] {
                let _ = std::fs::remove_file(std::env::temp_dir().join(name));
            }
        }
    }
}

impl Tracee {
    fn start() -> Option<Self> {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["--exact", "stepped", "--nocapture", "--test-threads=1"]).env(PART, "1");
        let mut process = command.stdout(Stdio::piped()).stdin(Stdio::null()).spawn().expect("another process");
        let said = BufReader::new(process.stdout.take().expect("its output"));
        let mut tracee = Self { process, thread: 0 };
        let mut lines = said.lines().map_while(Result::ok);
        let word = lines.find_map(|line| line.split_once("SAYS ").map(|(_, word)| word.to_owned()));
        tracee.thread = word.expect("it says who it is").trim().parse().expect("a number");
        (tracee.thread != 0).then_some(tracee)
    }

    /// Goes through all of it: what was traced, and the last mark.
    fn follow(&self) -> (Traced, u64) {
        let mut traced = Traced::default();
        self.stopped();
        loop {
            let mark = self.registers().rdi;
            let part = match mark {
                SEND => &mut traced.send,
                RECEIVE => &mut traced.receive,
                ASK => &mut traced.ask,
                SERVE => &mut traced.serve,
                TAKE => &mut traced.take,
                LOCK => &mut traced.lock,
                REST => {
                    self.go_on(libc::PTRACE_CONT);
                    continue;
                }
                SLEEP => {
                    traced.sleep.push(self.calls());
                    continue;
                }
                end => return (traced, end),
            };
            part.push(self.step());
            self.go_on(libc::PTRACE_CONT);
        }
    }

    /// Steps as far as the next mark.
    fn step(&self) -> Steps {
        let mut steps = Steps::default();
        loop {
            let code = self.code(self.registers().rip);
            if code[0] == BREAKPOINT {
                return steps;
            }
            steps.instructions += 1;
            steps.locked += u64::from(locks(&code));
            self.go_on(libc::PTRACE_SINGLESTEP);
        }
    }

    /// Its system calls up to the next mark, where it stops.
    fn calls(&self) -> Vec<Call> {
        let mut calls = Vec::new();
        let mut inside = false;
        loop {
            self.go_on(libc::PTRACE_SYSCALL);
            let registers = self.registers();
            // What is no system call has no number.
            if registers.orig_rax == u64::MAX {
                return calls;
            }
            inside = !inside;
            if inside {
                calls.push(Call { number: registers.orig_rax, fourth: registers.r10 });
            }
        }
    }

    fn registers(&self) -> libc::user_regs_struct {
        // SAFETY: registers are numbers, for which zeroes are good.
        let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel writes the registers of a stopped thread of ours into memory of their type.
        let got = unsafe {
            libc::ptrace(libc::PTRACE_GETREGS, self.thread, null_mut::<u8>(), (&raw mut registers).cast::<u8>())
        };
        assert_eq!(got, 0, "its registers");
        registers
    }

    /// The longest instruction that may begin here.
    fn code(&self, address: u64) -> [u8; 16] {
        let mut code = [0; 16];
        for (part, address) in code.chunks_exact_mut(8).zip([address, address + 8]) {
            let address = usize::try_from(address).map_or(null_mut(), std::ptr::without_provenance_mut::<u8>);
            // SAFETY: the kernel reads from the other process; what is not there is an error, and stays zero here.
            let word = unsafe { libc::ptrace(libc::PTRACE_PEEKTEXT, self.thread, address, null_mut::<u8>()) };
            part.copy_from_slice(&word.to_ne_bytes());
        }
        code
    }

    /// Lets it go on, as far as its next stop.
    fn go_on(&self, how: libc::c_uint) {
        // SAFETY: a stopped thread of ours goes on; no pointer is used.
        let went = unsafe { libc::ptrace(how, self.thread, null_mut::<u8>(), null_mut::<u8>()) };
        assert_eq!(went, 0, "it goes on");
        self.stopped();
    }

    fn stopped(&self) {
        let mut status = 0;
        // SAFETY: the kernel writes a number.
        let waited = unsafe { libc::waitpid(self.thread, &raw mut status, libc::__WALL) };
        let trapped = libc::WIFSTOPPED(status) && libc::WSTOPSIG(status) == libc::SIGTRAP;
        assert!(waited == self.thread && trapped, "it has failed: status {status:#x}");
    }
}

/// The instruction that a mark consists of.
const BREAKPOINT: u8 = 0xcc;

/// Whether an instruction locks: the prefix LOCK, XCHG with memory; or MFENCE, which waits as they do.
fn locks(code: &[u8]) -> bool {
    let is_prefix = |byte: &u8| matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3);
    let prefixes = code.iter().take_while(|byte| is_prefix(byte)).count();
    let (prefixes, rest) = code.split_at(prefixes);
    let rest = if matches!(rest, [0x40..=0x4f, ..]) { &rest[1..] } else { rest };
    match rest {
        _ if prefixes.contains(&0xf0) => true,
        [0x86 | 0x87, operands, ..] => operands >> 6 != 3,
        [0x0f, 0xae, fence, ..] => (0xf0..=0xf7).contains(fence),
        _ => false,
    }
}

#[test]
fn locking_instructions_are_known() {
    // lock cmpxchg [rdi], ecx; lock xadd with REX; xchg [rdi], eax; xchg with REX, byte; mfence
    for code in [
        &[0xf0, 0x0f, 0xb1, 0x0f][..],
        &[0x66, 0xf0, 0x48, 0x0f, 0xc1, 0x07],
        &[0x87, 0x07],
        &[0x44, 0x86, 0x07],
        &[0x0f, 0xae, 0xf0],
    ] {
        assert!(locks(code), "{code:02x?}");
    }
    // mov; xchg ax, ax and xchg ebx, ecx; lfence, sfence; cmpxchg without lock; mov with 0xf0 in its operand
    for code in [
        &[0x48, 0x89, 0x07][..],
        &[0x66, 0x90],
        &[0x87, 0xcb],
        &[0x0f, 0xae, 0xe8],
        &[0x0f, 0xae, 0xf8],
        &[0x0f, 0xb1, 0x0f],
        &[0xb8, 0xf0, 0xf0, 0xf0, 0xf0],
    ] {
        assert!(!locks(code), "{code:02x?}");
    }
}
