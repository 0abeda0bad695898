//! What the kernel counts for the receiver's socket, in the network namespace of the calling thread.

use std::fs;

/// The sockets of IPv4 that are bound to a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sockets {
    /// Bytes that stand in them, with all that the kernel needs around them.
    pub queued: u64,
    /// Datagrams for which they had no room.
    pub drops: u64,
}

/// What the kernel says of those of `port`; none if there are none, or it says nothing.
#[must_use]
pub fn sockets(port: u16) -> Option<Sockets> {
    listed(&fs::read_to_string("/proc/thread-self/net/udp").unwrap_or_default(), port)
}

fn listed(text: &str, port: u16) -> Option<Sockets> {
    let here = format!(":{port:04X}");
    let sockets = text.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    let ours = sockets.filter(|fields| fields.get(1).is_some_and(|local| local.ends_with(&here)));
    let each = ours.filter_map(|fields| {
        let queued = u64::from_str_radix(fields.get(4)?.split_once(':')?.1, 16).ok()?;
        Some(Sockets { queued, drops: fields.get(12)?.parse().ok()? })
    });
    each.reduce(|all, one| Sockets { queued: all.queued + one.queued, drops: all.drops + one.drops })
}

/// Resident memory of this process that does not come from files, in bytes: shared memory included.
#[must_use]
pub fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kib = |name: &str| -> Option<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse().ok()
    };
    ["RssAnon:", "RssShmem:"].into_iter().filter_map(kib).sum::<u64>() << 10
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_writes_is_understood() {
        let socket = |port: &str, queue: &str| {
            format!(" 27: 0100490A:{port} 00000000:0000 07 00000000:{queue} 00:00000000 00000000 0 0 1 2 0 7\n")
        };
        let head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";
        let text = &[head, &socket("1B58", "00012A00"), &socket("1B59", "00000001"), &socket("1B59", "2")].concat();
        assert_eq!(listed(text, 7000), Some(Sockets { queued: 0x12a00, drops: 7 }));
        assert_eq!(listed(text, 7001), Some(Sockets { queued: 3, drops: 14 }));
        assert_eq!((listed(text, 7002), listed("", 7000)), (None, None));
    }
}
