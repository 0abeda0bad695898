//! What the kernel counts for the receiver's socket, in the network namespace of the calling thread.

use std::fs;

/// Datagrams for which a socket had no room (`RcvbufErrors` of `/proc/net/snmp`); `None` if the kernel does not say.
/// One without IPv6 says nothing of that, and has lost none.
#[must_use]
pub fn overruns() -> Option<u64> {
    let of = |family| fs::read_to_string(format!("/proc/thread-self/net/{family}")).unwrap_or_default();
    Some(snmp(&of("snmp"))? + snmp6(&of("snmp6")))
}

fn snmp(text: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let (names, values) = (lines.next()?, lines.next()?);
    let found = names.split(' ').zip(values.split(' ')).find(|(name, _)| *name == "RcvbufErrors");
    found.and_then(|(_, value)| value.parse().ok())
}

fn snmp6(text: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix("Udp6RcvbufErrors"));
    line.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
}

/// Bytes that stand in the socket of IPv4 that is bound to `port`, with all that the kernel needs around them; 0 if
/// there is none.
#[must_use]
pub fn queued(port: u16) -> u64 {
    queue(&fs::read_to_string("/proc/thread-self/net/udp").unwrap_or_default(), port)
}

fn queue(text: &str, port: u16) -> u64 {
    let here = format!(":{port:04X}");
    let sockets = text.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    let found = sockets.filter(|fields| fields.get(1).is_some_and(|local| local.ends_with(&here)));
    found.filter_map(|fields| u64::from_str_radix(fields.get(4)?.split_once(':')?.1, 16).ok()).sum()
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
        let text = "Ip: Forwarding DefaultTTL\nIp: 2 64\nUdp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors \
                    SndbufErrors\nUdp: 10 2 5 11 3 0\nUdpLite: InDatagrams\nUdpLite: 0\n";
        assert_eq!((snmp(text), snmp("")), (Some(3), None));
        assert_eq!(snmp6("Udp6InErrors                    \t9\nUdp6RcvbufErrors                \t4\n"), 4);
        let socket = |port: &str, queue: &str| {
            format!(" 27: 0100490A:{port} 00000000:0000 07 00000000:{queue} 00:00000000 00000000 0 0 1 2 0 0\n")
        };
        let head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";
        let text = &[head, &socket("1B58", "00012A00"), &socket("1B59", "00000001")].concat();
        assert_eq!((queue(text, 7000), queue(text, 7001), queue(text, 7002)), (0x12a00, 1, 0));
    }
}
