//! A victim whose kernel refuses `membarrier`, and a liar that publishes and never rings.
//!
//! Without that fence an honest publisher may overlook that its receiver has armed: once in many millions of messages,
//! and only on some processors. The liar overlooks it every time, and the receiver has to hear of the message anyway.

use std::future::Future;
use std::os::fd::AsFd as _;
use std::pin::pin;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use cutthrough::{Event, Fence};
use cutthrough_wire::slot::Kind;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::liar::{Liar, PATIENCE, Victim};

/// Runs something on a thread that has no `membarrier`; nothing runs if that cannot be had here.
fn without_membarrier(run: impl FnOnce() + Send + 'static) {
    losing_membarrier(|| (), |()| run());
}

/// The same behind something that is done before the kernel begins to refuse it.
fn losing_membarrier<T: 'static>(before: impl FnOnce() -> T + Send + 'static, run: impl FnOnce(T) + Send + 'static) {
    let (done, ended) = mpsc::channel();
    let thread = thread::Builder::new().name("naps".to_owned());
    let thread = thread.spawn(move || {
        let made = before();
        match refuse_membarrier() {
            Ok(()) => run(made),
            Err(error) => cutthrough_conform::skipped(format_args!("no system call can be refused here: {error}")),
        }
        let _ = done.send(());
    });
    let thread = thread.expect("a thread");
    // Who sleeps for ever cannot be joined.
    let over = ended.recv_timeout(6 * PATIENCE);
    assert_ne!(over, Err(mpsc::RecvTimeoutError::Timeout), "it sleeps for ever");
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// From now on the kernel refuses this thread every `membarrier`, as a kernel that lacks it does.
fn refuse_membarrier() -> std::io::Result<()> {
    let number = u32::try_from(libc::SYS_membarrier).expect("a small number");
    let refused = libc::SECCOMP_RET_ERRNO | u32::try_from(libc::ENOSYS).expect("a small number");
    let step = |code: u32, k: u32, jf: u8| libc::sock_filter {
        code: u16::try_from(code).expect("a short code"),
        jt: 0,
        jf,
        k,
    };
    // The first word of what a filter looks at is the number of the system call.
    let mut steps = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, number, 1),
        step(libc::BPF_RET | libc::BPF_K, refused, 0),
        step(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0),
    ];
    let program = libc::sock_fprog { len: 4, filter: steps.as_mut_ptr() };
    // SAFETY: the program is read by the second call and not kept; both change what this thread may ask for, no memory.
    let answers = unsafe {
        [
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
            libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program),
        ]
    };
    if answers == [0, 0] { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// Polls until there is nothing to poll for, and the victim may sleep on its file descriptor.
fn arm(victim: &mut Victim) {
    while !victim.endpoint.arm() {
        while victim.endpoint.poll().is_some() {}
    }
}

/// Says something, and does not ring.
fn say(liar: &mut Liar) {
    liar.say(Kind::Control, 0, 0, 0, 0);
}

#[test]
fn who_sleeps_on_the_file_descriptor_finds_what_nobody_rang_for() {
    without_membarrier(|| {
        let mut victim = Victim::open();
        assert_eq!(victim.endpoint.fence(), Fence::None);
        // Nor do the fences of others reach this process, so what it publishes it fences itself.
        assert!(!cutthrough_segment::bell::is_reached());
        let mut liars: Vec<Liar> = (0..8).map(|_| Liar::join(&mut victim)).collect();
        // Channels without work for so long are looked at one by one.
        for _ in 0..20_000 {
            assert!(victim.endpoint.poll().is_none());
        }
        for _ in 0..3 {
            for liar in &mut liars {
                arm(&mut victim);
                say(liar);
                let mut polled = [PollFd::from_borrowed_fd(victim.endpoint.as_fd(), PollFlags::IN)];
                let most = Timespec::try_from(PATIENCE).expect("a short time");
                assert_eq!(poll(&mut polled, Some(&most)), Ok(1), "it sleeps for ever");
                // Before the next nap, whatever channel's turn it is.
                let event = loop {
                    match victim.endpoint.poll() {
                        Some(event) => break event,
                        None => assert!(!victim.endpoint.arm(), "it may sleep on"),
                    }
                };
                let Event::Message(message) = event else { panic!("{event:?}") };
                assert_eq!(message.channel(), liar.channel);
            }
        }
        victim.honest_channel_works(1);
    });
}

#[test]
fn who_sleeps_in_tokio_finds_what_nobody_rang_for() {
    without_membarrier(|| {
        let mut victim = Victim::open();
        let mut liar = Liar::join(&mut victim);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().expect("a runtime");
        runtime.block_on(async {
            let mut endpoint = cutthrough::AsyncEndpoint::new(victim.endpoint).expect("registered");
            assert_eq!(endpoint.fence(), Fence::None);
            for _ in 0..3 {
                let mut next = pin!(endpoint.next());
                let mut said = false;
                let event = std::future::poll_fn(|context| {
                    let polled = next.as_mut().poll(context);
                    if polled.is_pending() && !said {
                        said = true;
                        say(&mut liar);
                    }
                    polled
                });
                let Ok(Event::Message(message)) = event.await else { panic!("no message") };
                assert_eq!(message.channel(), liar.channel);
                assert!(said, "it was there before anybody slept");
            }
        });
    });
}

/// Something is said, and nobody rings, once the victim sleeps in a wait: it finds that.
fn hears_once_it_sleeps(victim: &mut Victim, liar: &mut Liar) {
    thread::scope(|scope| {
        let said = scope.spawn(|| {
            while !liar.peer.armed() {
                thread::sleep(Duration::from_millis(1));
            }
            say(liar);
        });
        assert_eq!(victim.message().control().len(), 3);
        said.join().expect("said");
    });
}

/// A process that shuts itself in, as many do once they have opened what they need, is refused what it was offered.
#[test]
fn who_is_refused_the_fence_later_finds_what_nobody_rang_for() {
    let before = || {
        let mut victim = Victim::open();
        let liar = Liar::join(&mut victim);
        (victim, liar)
    };
    losing_membarrier(before, |(mut victim, mut liar)| {
        hears_once_it_sleeps(&mut victim, &mut liar);
        assert_eq!(victim.endpoint.fence(), Fence::None);
        victim.honest_channel_works(1);
    });
}

#[test]
fn who_sleeps_in_a_wait_finds_what_nobody_rang_for() {
    without_membarrier(|| {
        let mut victim = Victim::open();
        let mut liar = Liar::join(&mut victim);
        hears_once_it_sleeps(&mut victim, &mut liar);
    });
}
