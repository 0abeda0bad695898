//! What the adapter `shm` needs of the kernel, each thing tried.

use std::io;

use cutthrough::{Config, Endpoint};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::thread::{MembarrierQuery, membarrier_query};

use super::Check;

/// Tries everything that shared memory between two processes needs, and last opens an endpoint that listens.
#[must_use]
pub fn checks() -> Vec<Check> {
    vec![
        needed("memory files", memory_file(SealFlags::empty())),
        needed("seals", memory_file(SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)),
        needed("seal F_FUTURE_WRITE", memory_file(SealFlags::FUTURE_WRITE)),
        needed("eventfd", event()),
        needed("Unix sockets", socket_pair()),
        membarrier(),
        needed("listening endpoint", listening_endpoint()),
    ]
}

fn needed(what: &'static str, tried: Result<String, String>) -> Check {
    let ok = tried.is_ok();
    Check { what, ok, optional: false, detail: tried.unwrap_or_else(|why| why) }
}

fn memory_file(seals: SealFlags) -> Result<String, String> {
    let make = || {
        let file = memfd_create("cutthrough.info", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        fcntl_add_seals(&file, seals)
    };
    without_detail(make(), "needs Linux 5.1, and a sandbox that lets memfd_create through")
}

fn event() -> Result<String, String> {
    let made = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
    without_detail(made.map(drop), "raise the limit of open files (ulimit -n)")
}

fn socket_pair() -> Result<String, String> {
    let made = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
    without_detail(made.map(drop), "needs a kernel with Unix sockets, and a sandbox that lets them through")
}

fn without_detail(tried: rustix::io::Result<()>, remedy: &str) -> Result<String, String> {
    match tried {
        Ok(()) => Ok(String::new()),
        Err(errno) => Err(format!("{}; {remedy}", io::Error::from(errno))),
    }
}

/// Without it a sleeping receiver is woken late, but it is woken.
fn membarrier() -> Check {
    let offered = membarrier_query();
    let fast = MembarrierQuery::GLOBAL_EXPEDITED | MembarrierQuery::REGISTER_GLOBAL_EXPEDITED;
    let detail = match () {
        () if offered.contains(fast) => "",
        () if offered.contains(MembarrierQuery::GLOBAL) => "going to sleep takes milliseconds; needs Linux 4.16",
        () => "a sleeping receiver looks every millisecond instead of being woken; needs Linux 4.16",
    };
    Check { what: "membarrier expedited", ok: detail.is_empty(), optional: true, detail: detail.into() }
}

fn listening_endpoint() -> Result<String, String> {
    let mut endpoint = Endpoint::open(Config::default()).map_err(|error| error.to_string())?;
    let address = format!("shm:info-{}", std::process::id());
    endpoint.listen(&address).map_err(|error| error.to_string())?;
    Ok(format!("names live in {}", cutthrough::folder().display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_check_says_what_to_do() {
        let refused = without_detail(Err(rustix::io::Errno::NOSYS), "use a newer kernel");
        let message = refused.expect_err("it was refused");
        assert!(message.ends_with("; use a newer kernel"), "{message}");
    }

    #[test]
    fn a_seal_that_no_kernel_has_is_refused() {
        assert!(memory_file(SealFlags::from_bits_retain(1 << 30)).is_err());
    }

    #[test]
    fn checks_leave_no_name_behind() {
        listening_endpoint().expect("this machine can listen");
        listening_endpoint().expect("the name is free again");
    }
}
