//! The handshake: what a side makes of the first record of the other (rules H1 to H6).
//!
//! One record each way. The side that connects speaks first; the side that listens answers with its own hello, or with
//! a refusal that says why. Both generations together name one life of the channel.

pub use cutthrough_wire::hello::Refusal;
use cutthrough_wire::hello::{HelloError, Word};
use cutthrough_wire::layout::{Layout, SizeError, Sizes};

/// What the other side is, checked against the bounds of this version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Greeting {
    /// Random number of this life of the other endpoint.
    pub generation: u64,
    /// Sizes of its memory.
    pub sizes: Sizes,
    /// Where everything lies in it.
    pub layout: Layout,
}

/// Why no channel comes of a hello.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoChannel {
    /// The other side said no.
    #[error("the other side refused: {}", text(*.0))]
    Refused(Refusal),
    /// It speaks another version of the wire.
    #[error("the other side speaks version {0} of the wire, this one version {ours}", ours = cutthrough_wire::VERSION)]
    Version(u16),
    /// Its sizes are out of their bounds.
    #[error("the other side's sizes are out of bounds: {0:?}")]
    Sizes(SizeError),
    /// It did not say hello.
    #[error("the other side did not say hello")]
    Malformed,
}

impl NoChannel {
    /// What to answer to a side that says this; nothing to a side that refused itself.
    #[must_use]
    pub const fn answer(self) -> Option<Refusal> {
        match self {
            Self::Refused(_) => None,
            Self::Version(_) => Some(Refusal::Version),
            Self::Sizes(_) => Some(Refusal::Sizes),
            Self::Malformed => Some(Refusal::Malformed),
        }
    }
}

/// What a refusal means, in words.
const fn text(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::Version => "it speaks another version of the wire",
        Refusal::Sizes => "a size is out of its bounds",
        Refusal::Memory => "the memory passed to it is too small, not sealed, or cannot be mapped",
        Refusal::Channels => "it has no more channels",
        Refusal::Malformed => "it could not read our hello",
        Refusal::Files => "it has no open file left for a channel; raise the limit there (ulimit -n), or close some",
        Refusal::Room => {
            "it has no memory or addresses left for a channel; free some there, raise its limits (ulimit -v, -f), or \
             choose smaller pools"
        }
    }
}

/// Reads the other side's record.
///
/// # Errors
/// [`NoChannel`], whatever the bytes are.
pub fn hear(bytes: &[u8]) -> Result<Greeting, NoChannel> {
    match Word::from_bytes(bytes) {
        Ok(Word::Hello { generation, sizes }) => {
            let layout = sizes.layout().map_err(NoChannel::Sizes)?;
            Ok(Greeting { generation, sizes, layout })
        }
        Ok(Word::Refuse(refusal)) => Err(NoChannel::Refused(refusal)),
        Err(HelloError::Version(version)) => Err(NoChannel::Version(version)),
        Err(HelloError::Malformed) => Err(NoChannel::Malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: Sizes = Sizes { slots: 64, page_bytes: 4096, staging_bytes: 1 << 16, pool_pages: 4, landing_pages: 4 };

    #[test]
    fn a_hello_is_laid_out() {
        let greeting = hear(&Word::Hello { generation: 3, sizes: SIZES }.to_bytes()).unwrap();
        assert_eq!((greeting.generation, greeting.layout), (3, SIZES.layout().unwrap()));
    }

    #[test]
    fn every_other_record_has_its_answer() {
        let huge = Word::Hello { generation: 3, sizes: Sizes { pool_pages: u32::MAX, ..SIZES } };
        assert_eq!(hear(&huge.to_bytes()).unwrap_err().answer(), Some(Refusal::Sizes));
        assert_eq!(hear(b"GET / HTTP/1.1").unwrap_err().answer(), Some(Refusal::Malformed));
        let refusal = Word::Refuse(Refusal::Channels);
        assert_eq!(hear(&refusal.to_bytes()).unwrap_err().answer(), None);
        let mut other = Word::Refuse(Refusal::Channels).to_bytes();
        other[8..10].copy_from_slice(&2_u16.to_le_bytes());
        assert_eq!(hear(&other), Err(NoChannel::Version(2)));
    }
}
