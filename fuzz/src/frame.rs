//! Bytes of a datagram, decoded. None of these functions may panic on any input.

use cutthrough_wire::frame::{
    Greeting, HANDSHAKE_MAX, HEADER_BYTES, Header, Kind, LIMITS_BYTES, Limits, NOTE_BYTES, NOTE_ENTRY_BYTES, Note,
    OPENING_BYTES, Opening, RECORD_BYTES, Records, Refusal, SEALED_BYTES,
};
use cutthrough_wire::slot::{CONTROL_MAX, PAYLOAD_MAX};

/// Takes any bytes apart as everything that a frame may be. What is understood says the same when it is said again.
///
/// # Panics
/// If it does not, or is out of its bounds.
pub fn decode(bytes: &[u8]) {
    if let Some((head, body)) = bytes.split_first_chunk::<HEADER_BYTES>() {
        header(head);
        bodies(body);
    }
    bodies(bytes);
    for raw in bytes.iter().copied().take(2) {
        assert!(Kind::from_raw(raw).is_none_or(|kind| kind as u8 == raw));
        assert!(Refusal::from_raw(raw).is_none_or(|refusal| refusal as u8 == raw));
    }
}

fn header(bytes: &[u8; HEADER_BYTES]) {
    if let Ok(header) = Header::from_bytes(bytes) {
        assert_eq!(header.to_bytes()[..SEALED_BYTES], bytes[..SEALED_BYTES]);
    }
}

fn bodies(bytes: &[u8]) {
    if let Some(opening) = bytes.first_chunk::<OPENING_BYTES>()
        && let Ok(opening) = Opening::from_bytes(opening)
    {
        assert_eq!(Opening::from_bytes(&opening.to_bytes()), Ok(opening));
        assert!(u64::from(opening.payload) <= PAYLOAD_MAX && opening.unasked <= opening.payload);
        assert!(usize::from(opening.control_len) <= CONTROL_MAX);
    }
    if let Some((limits, records)) = bytes.split_at_checked(LIMITS_BYTES) {
        assert_eq!(Limits::from_bytes(limits).to_bytes(), limits);
        count(records);
    }
    if let Ok(note) = Note::from_bytes(bytes) {
        let (ranges, grants): (Vec<_>, Vec<_>) = (note.ranges().collect(), note.grants().collect());
        let long = |entries: &[(u32, u32)]| u16::try_from(entries.len()).expect("counts have 16 bits");
        let mut again = Note::head(note.limits, long(&ranges), long(&grants)).to_vec();
        ranges.iter().chain(&grants).for_each(|entry| again.extend_from_slice(&Note::entry(entry.0, entry.1)));
        assert_eq!(again, bytes);
        assert_eq!(bytes.len(), NOTE_BYTES + (ranges.len() + grants.len()) * NOTE_ENTRY_BYTES);
    }
    if let Ok((greeting, handshake)) = Greeting::from_bytes(bytes) {
        assert!(handshake.len() <= HANDSHAKE_MAX);
        let mut again = greeting.to_bytes(u16::try_from(handshake.len()).expect("at most 512")).to_vec();
        again.extend_from_slice(handshake);
        assert_eq!(Greeting::from_bytes(&again), Ok((greeting, handshake)));
    }
}

/// Whole records are as many as they are, cover their bytes, and are no other number.
fn count(bytes: &[u8]) {
    let all: Vec<&[u8]> = Records::new(bytes).collect();
    let long = u32::try_from(all.len()).expect("two bytes each");
    let covered: usize = all.iter().map(|record| RECORD_BYTES + record.len()).sum();
    assert!(all.iter().all(|record| record.len() <= CONTROL_MAX) && covered <= bytes.len());
    assert_eq!(Records::new(bytes).are(long), covered == bytes.len());
    assert!(!Records::new(bytes).are(long + 1));
}
