//! The hello: the first thing that two sides say to each other (rules H1 to H6).
//!
//! One fixed record of 64 bytes in each direction. Over shared memory the file descriptors of the out memory and of the
//! landing memory travel beside it.

use crate::{VERSION, layout::Sizes};

/// Bytes of a hello.
pub const HELLO_BYTES: usize = 64;

/// The first eight bytes of every hello.
pub const MAGIC: [u8; 8] = *b"CUTTHRU\x01";

/// What a hello says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    /// From the side that connects, and as the answer of the side that listens: my sizes and generation.
    Hello {
        /// Random number of this life of the endpoint: a restarted process has another.
        generation: u64,
        /// Sizes of the sayer's memory.
        sizes: Sizes,
    },
    /// The answer of a side that will not have the channel.
    Refuse(Refusal),
}

/// Why a hello is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Refusal {
    /// Another version of the wire.
    Version = 1,
    /// A size out of its bounds.
    Sizes = 2,
    /// Memory that is smaller than the sizes say, is not sealed, or cannot be mapped.
    Memory = 3,
    /// No more channels here.
    Channels = 4,
    /// Not a hello at all.
    Malformed = 5,
    /// No open file is left for the channel, in its process or on its machine.
    Files = 6,
    /// No memory is left for the channel, or no addresses.
    Room = 7,
}

/// Why bytes are not a hello.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HelloError {
    /// Wrong length, magic or kind.
    Malformed,
    /// The sayer speaks this other version.
    Version(u16),
}

impl Refusal {
    /// The refusal with number `raw`, if there is one.
    #[must_use]
    pub const fn from_raw(raw: u8) -> Option<Self> {
        Some(match raw {
            1 => Self::Version,
            2 => Self::Sizes,
            3 => Self::Memory,
            4 => Self::Channels,
            5 => Self::Malformed,
            6 => Self::Files,
            7 => Self::Room,
            _ => return None,
        })
    }
}

impl Word {
    /// The record.
    #[must_use]
    pub fn to_bytes(self) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
        match self {
            Self::Hello { generation, sizes } => {
                bytes[10] = 1;
                bytes[16..24].copy_from_slice(&generation.to_le_bytes());
                let fields =
                    [sizes.slots, sizes.page_bytes, sizes.staging_bytes, sizes.pool_pages, sizes.landing_pages];
                for (place, field) in bytes[24..44].chunks_exact_mut(4).zip(fields) {
                    place.copy_from_slice(&field.to_le_bytes());
                }
            }
            Self::Refuse(reason) => {
                bytes[10] = 2;
                bytes[11] = reason as u8;
            }
        }
        bytes
    }

    /// Reads a record. The sizes are not checked against their bounds; [`Sizes::layout`] does that.
    ///
    /// # Errors
    /// [`HelloError`], if the bytes are no hello of this version. The version is looked at before anything else that
    /// may differ between versions, so that both sides can name it.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, HelloError> {
        let record: &[u8; HELLO_BYTES] = bytes.try_into().map_err(|_| HelloError::Malformed)?;
        if record[..8] != MAGIC {
            return Err(HelloError::Malformed);
        }
        let version = u16::from_le_bytes([record[8], record[9]]);
        if version != VERSION {
            return Err(HelloError::Version(version));
        }
        let field = |at: usize| u32::from_le_bytes([record[at], record[at + 1], record[at + 2], record[at + 3]]);
        match record[10] {
            1 => Ok(Self::Hello {
                generation: u64::from(field(16)) | u64::from(field(20)) << 32,
                sizes: Sizes {
                    slots: field(24),
                    page_bytes: field(28),
                    staging_bytes: field(32),
                    pool_pages: field(36),
                    landing_pages: field(40),
                },
            }),
            2 => Refusal::from_raw(record[11]).map(Self::Refuse).ok_or(HelloError::Malformed),
            _ => Err(HelloError::Malformed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> Word {
        let sizes = Sizes { slots: 1, page_bytes: 2, staging_bytes: 3, pool_pages: 4, landing_pages: 5 };
        Word::Hello { generation: 0x1122_3344_5566_7788, sizes }
    }

    #[test]
    fn words_survive_their_bytes() {
        for word in (1..=7).filter_map(Refusal::from_raw).map(Word::Refuse).chain([hello()]) {
            assert_eq!(Word::from_bytes(&word.to_bytes()), Ok(word));
        }
        assert_eq!([0, 7, 8].map(|raw| Refusal::from_raw(raw).map(|why| why as u8)), [None, Some(7), None]);
    }

    #[test]
    fn another_version_is_named() {
        let mut bytes = hello().to_bytes();
        bytes[8] = 9;
        bytes[10] = 77;
        assert_eq!(Word::from_bytes(&bytes), Err(HelloError::Version(9)));
    }

    #[test]
    fn anything_else_is_malformed() {
        assert_eq!(Word::from_bytes(&[]), Err(HelloError::Malformed));
        assert_eq!(Word::from_bytes(&[0; HELLO_BYTES]), Err(HelloError::Malformed));
        let mut bytes = Word::Refuse(Refusal::Sizes).to_bytes();
        bytes[11] = 0;
        assert_eq!(Word::from_bytes(&bytes), Err(HelloError::Malformed));
    }
}
