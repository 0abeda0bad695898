//! The token: names where a coming payload shall land (rules T1 to T5; Trapeze's incoming payload table).

/// Index and key of a place that a receiver has granted to one payload of one channel. The granter puts it into a
/// request; the replier attaches it to its payload. It is good for one use and can be revoked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token {
    /// Place in the granter's table.
    pub index: u16,
    /// The key that the table must hold when the payload comes; never zero, never used twice on a channel.
    pub key: u64,
}

/// Bytes of a token in a control message.
pub const TOKEN_BYTES: usize = 16;
/// Places in a channel's table of tokens.
pub const TOKENS: u16 = 256;

impl Token {
    /// The token as bytes, to be put into a control message.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; TOKEN_BYTES] {
        let [i0, i1] = self.index.to_le_bytes();
        let [a, b, c, d, e, f, g, h] = self.key.to_le_bytes();
        [i0, i1, 0, 0, 0, 0, 0, 0, a, b, c, d, e, f, g, h]
    }

    /// The token that `bytes` hold. Any 16 bytes are some token; only the granter knows whether it is good.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; TOKEN_BYTES]) -> Self {
        let [i0, i1, _, _, _, _, _, _, a, b, c, d, e, f, g, h] = bytes;
        Self { index: u16::from_le_bytes([i0, i1]), key: u64::from_le_bytes([a, b, c, d, e, f, g, h]) }
    }
}

/// An entry of the table as the sender may read it (rule T2): where the payload shall go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Landing pages that the sender can write.
    Pages {
        /// First page.
        first: u32,
        /// Number of pages.
        count: u32,
    },
    /// Private memory of the granter: the payload has to go through the staging ring.
    Private {
        /// Bytes that fit.
        bytes: u32,
    },
}

impl Place {
    /// The second word of a table entry; the first is the key.
    #[must_use]
    pub const fn to_word(self) -> u64 {
        match self {
            Self::Pages { first, count } => first as u64 | (count as u64) << 32,
            Self::Private { bytes } => 1 << 63 | bytes as u64,
        }
    }

    /// Takes the second word of a table entry apart.
    #[must_use]
    pub const fn from_word(word: u64) -> Self {
        let [a, b, c, d, e, f, g, h] = word.to_le_bytes();
        let low = u32::from_le_bytes([a, b, c, d]);
        if word >> 63 == 1 {
            Self::Private { bytes: low }
        } else {
            Self::Pages { first: low, count: u32::from_le_bytes([e, f, g, h]) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_survives_its_bytes() {
        let token = Token { index: 255, key: 0x0123_4567_89ab_cdef };
        assert_eq!(Token::from_bytes(token.to_bytes()), token);
    }

    #[test]
    fn a_place_survives_its_word() {
        for place in [Place::Pages { first: 9, count: 1 << 20 }, Place::Private { bytes: 1 << 30 }] {
            assert_eq!(Place::from_word(place.to_word()), place);
        }
    }
}
