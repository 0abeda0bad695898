//! Ethernet frames, to the byte: how a page or a datagram is cut into them, and what they take on the wire.

use cutthrough_engine::place::{Layout, LayoutError};

/// Bytes of an Ethernet header.
pub(super) const ETHERNET: u64 = 14;
/// Bytes of an IP header.
pub(super) const IP: u64 = 20;
/// Bytes of a TCP header.
pub(super) const TCP: u64 = 20;
/// Bytes of a UDP header.
pub(super) const UDP: u64 = 8;
/// Most bytes that follow an Ethernet header.
pub(super) const MTU: u64 = 1500;
/// Fewest bytes of a frame, check sequence excluded.
pub(super) const SHORTEST: u64 = 60;
/// What a frame takes on the wire besides: check sequence 4, preamble 8, gap 12.
pub(super) const AROUND: u64 = 24;
/// Bytes of a page.
pub(super) const PAGE: u64 = 4096;
/// Most bytes of payload in a UDP datagram.
pub(super) const DATAGRAM: u64 = 65_535 - IP - UDP;
/// Most bytes of payload in a TCP segment of one frame.
pub(super) const MSS: u64 = MTU - IP - TCP;

/// The length of one frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Length {
    /// Bytes of headers: Ethernet, IP, and TCP or UDP in the first fragment.
    pub(super) header: u64,
    /// Bytes of payload.
    pub(super) payload: u64,
}

impl Length {
    /// Bytes that the adapter moves over the host's bus.
    #[must_use]
    pub(super) fn bytes(self) -> u64 {
        (self.header + self.payload).max(SHORTEST)
    }

    /// Bytes of time on the wire.
    #[must_use]
    pub(super) fn wire(self) -> u64 {
        self.bytes() + AROUND
    }
}

/// The frames of a datagram with a `transport` header (of TCP or UDP) and `payload` bytes: IP fragments whose lengths
/// are multiples of 8 but for the last. There is at least one.
#[must_use]
pub(super) fn fragments(transport: u64, payload: u64) -> Vec<Length> {
    let most = (MTU - IP) / 8 * 8;
    let mut left = transport + payload;
    let mut frames = Vec::new();
    loop {
        let part = left.min(most);
        let inner = if frames.is_empty() { transport } else { 0 };
        frames.push(Length { header: ETHERNET + IP + inner, payload: part - inner });
        left -= part;
        if left == 0 {
            return frames;
        }
    }
}

/// Where the fragments of a page belong: the layout that the receiver guesses by.
///
/// # Errors
/// Never: a page has three fragments. The error is the engine's.
pub(super) fn page_layout() -> Result<Layout, LayoutError> {
    let lengths: Vec<u32> =
        fragments(TCP, PAGE).iter().map(|length| u32::try_from(length.payload).unwrap_or(u32::MAX)).collect();
    Layout::first_first(&lengths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_travels_in_three_frames() {
        let frames = fragments(TCP, PAGE);
        let lengths: Vec<_> = frames.iter().map(|frame| (frame.header, frame.payload, frame.wire())).collect();
        assert_eq!(lengths, [(54, 1460, 1538), (34, 1480, 1538), (34, 1156, 1214)]);
        assert_eq!(page_layout().unwrap().page_len(), 4096);
    }

    #[test]
    fn no_byte_is_lost_between_fragments() {
        for payload in [0, 1, 1460, 1461, 1472, 1473, 2940, 4096, 8192, 65_000] {
            for transport in [TCP, UDP] {
                let frames = fragments(transport, payload);
                assert_eq!(frames.iter().map(|frame| frame.payload).sum::<u64>(), payload);
                assert!(frames.iter().all(|frame| frame.header + frame.payload <= ETHERNET + MTU));
                assert_eq!(frames.len() as u64, (transport + payload).div_ceil(1480).max(1));
            }
        }
        assert_eq!(Length { header: 54, payload: 0 }.wire(), 84, "the shortest frame");
    }
}
