//! Counts system calls of this thread, by having the kernel hand them back to it ("syscall user dispatch").
//!
//! While the selector says so, a system call is not made; a signal tells of it instead. The handler lets calls through
//! from then on, makes the one that was asked for, and puts its result where the caller looks for it. So a piece of
//! work that makes system calls is counted once, however many it makes.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Selector: calls are made.
const ALLOW: u8 = 0;
/// Selector: calls are handed back.
const BLOCK: u8 = 1;
/// `PR_SET_SYSCALL_USER_DISPATCH`, with its two modes.
const DISPATCH: i32 = 59;
const ON: u64 = 1;
const OFF: u64 = 0;

static SELECTOR: AtomicU8 = AtomicU8::new(ALLOW);
static SEEN: AtomicU64 = AtomicU64::new(0);

extern "C" fn handle(_signal: i32, _info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    SELECTOR.store(ALLOW, Ordering::Relaxed);
    SEEN.fetch_add(1, Ordering::Relaxed);
    let context = context.cast::<libc::ucontext_t>();
    // SAFETY: the kernel passes the context of the interrupted thread to a handler with SA_SIGINFO; its registers hold
    // the number and the arguments of the call that was handed back, which the interrupted code asked for itself.
    unsafe {
        let registers = &mut (*context).uc_mcontext.gregs;
        let register = |name: i32| registers[usize::try_from(name).unwrap_or(0)];
        let result = libc::syscall(
            register(libc::REG_RAX),
            register(libc::REG_RDI),
            register(libc::REG_RSI),
            register(libc::REG_RDX),
            register(libc::REG_R10),
            register(libc::REG_R8),
            register(libc::REG_R9),
        );
        let failed = || -i64::from(*libc::__errno_location());
        registers[usize::try_from(libc::REG_RAX).unwrap_or(0)] = if result == -1 { failed() } else { result };
    }
}

/// Switches dispatch for this thread; false if the kernel cannot.
fn switch(mode: u64) -> bool {
    let selector: *const AtomicU8 = if mode == ON { &raw const SELECTOR } else { std::ptr::null() };
    // SAFETY: the selector is a static byte; with an empty range of exempt code, and no selector to switch it off.
    unsafe { libc::prctl(DISPATCH, mode, 0u64, 0u64, selector) == 0 }
}

/// Does a piece of work so many times: how many of them made system calls. `None` if this kernel cannot tell.
pub(crate) fn count(times: u64, mut work: impl FnMut()) -> Option<u64> {
    let action = libc::sigaction {
        sa_sigaction: handle as *const () as usize,
        // SAFETY: an empty set of signals is all zeroes.
        sa_mask: unsafe { std::mem::zeroed() },
        sa_flags: libc::SA_SIGINFO,
        sa_restorer: None,
    };
    // SAFETY: installs a handler that does nothing but what its own note says.
    let installed = unsafe { libc::sigaction(libc::SIGSYS, &raw const action, std::ptr::null_mut()) };
    if installed != 0 || !switch(ON) {
        return None;
    }
    let before = SEEN.load(Ordering::Relaxed);
    for _ in 0..times {
        SELECTOR.store(BLOCK, Ordering::Relaxed);
        work();
        SELECTOR.store(ALLOW, Ordering::Relaxed);
    }
    let counted = SEEN.load(Ordering::Relaxed) - before;
    switch(OFF).then_some(counted)
}
