//! Bodies of the frames that make a channel: who calls, who answers, and why a caller is not let in.

use super::{BODY_MIN, Limits, Malformed, put, u16_at, u32_at, u64_at};

/// Bytes of a body of a greeting without the handshake of the cipher.
pub const GREETING_BYTES: usize = 56;
/// Most bytes of a cipher's handshake message.
pub const HANDSHAKE_MAX: usize = 512;

/// What two endpoints tell each other of themselves and of the channel to be (rule N10).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Greeting {
    /// Which channel frames for the one who greets shall name.
    pub tag: u32,
    /// Which life of it.
    pub generation: u32,
    /// Random number of this life of the endpoint.
    pub life: u64,
    /// What the caller was told by [`Kind::Retry`](super::Kind::Retry); 0 at first.
    pub cookie: u64,
    /// Longest body that the one who greets takes.
    pub body: u16,
    /// How far the other side may go at first.
    pub limits: Limits,
    /// Process and user, for people to read; not proved.
    pub process: u32,
    /// User.
    pub user: u32,
}

impl Greeting {
    /// The greeting as bytes, for a handshake message of `handshake` bytes behind it.
    #[must_use]
    pub fn to_bytes(&self, handshake: u16) -> [u8; GREETING_BYTES] {
        let mut bytes = [0; GREETING_BYTES];
        put(&mut bytes, 0, &self.tag.to_le_bytes());
        put(&mut bytes, 4, &self.generation.to_le_bytes());
        put(&mut bytes, 8, &self.life.to_le_bytes());
        put(&mut bytes, 16, &self.cookie.to_le_bytes());
        put(&mut bytes, 24, &self.body.to_le_bytes());
        put(&mut bytes, 26, &handshake.to_le_bytes());
        put(&mut bytes, 28, &self.limits.to_bytes());
        put(&mut bytes, 36, &self.process.to_le_bytes());
        put(&mut bytes, 40, &self.user.to_le_bytes());
        bytes
    }

    /// The greeting in a body, and the handshake message behind it.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn from_bytes(bytes: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let Some((head, rest)) = bytes.split_at_checked(GREETING_BYTES) else { return Err(Malformed::Short) };
        let handshake = usize::from(u16_at(head, 26));
        let body = u16_at(head, 24);
        if handshake > HANDSHAKE_MAX || body < BODY_MIN {
            return Err(Malformed::Field);
        }
        let Some(handshake) = rest.get(..handshake) else { return Err(Malformed::Short) };
        let greeting = Self {
            tag: u32_at(head, 0),
            generation: u32_at(head, 4),
            life: u64_at(head, 8),
            cookie: u64_at(head, 16),
            body,
            limits: Limits::from_bytes(&head[28..36]),
            process: u32_at(head, 36),
            user: u32_at(head, 40),
        };
        Ok((greeting, handshake))
    }
}

/// Why a caller is not let in (rule N11).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Refusal {
    /// Another version of the frames.
    Version = 1,
    /// The endpoint has all channels that its settings allow.
    Channels = 2,
    /// The keys do not fit, or one side wants a seal and the other does not.
    Key = 3,
    /// Nobody listens here.
    Nobody = 4,
    /// The call is its own: nobody can call itself.
    Itself = 5,
}

impl Refusal {
    /// The refusal with number `raw`, if there is one.
    #[must_use]
    pub const fn from_raw(raw: u8) -> Option<Self> {
        Some(match raw {
            1 => Self::Version,
            2 => Self::Channels,
            3 => Self::Key,
            4 => Self::Nobody,
            5 => Self::Itself,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_greeting_survives_its_bytes() {
        let greeting = Greeting {
            tag: 1,
            generation: 2,
            life: 3,
            cookie: 4,
            body: BODY_MIN,
            limits: Limits { messages: 5, unasked: 6 },
            process: 7,
            user: 8,
        };
        let mut bytes = [3; GREETING_BYTES + 20];
        bytes[..GREETING_BYTES].copy_from_slice(&greeting.to_bytes(10));
        assert_eq!(Greeting::from_bytes(&bytes), Ok((greeting, &[3; 10][..])));
        bytes[..GREETING_BYTES].copy_from_slice(&greeting.to_bytes(21));
        assert_eq!(Greeting::from_bytes(&bytes), Err(Malformed::Short));
        let short = Greeting { body: BODY_MIN - 1, ..greeting };
        assert_eq!(Greeting::from_bytes(&short.to_bytes(0)), Err(Malformed::Field));
    }
}
