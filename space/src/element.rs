//! What a global address space can hold: numbers, as little-endian bytes.

/// How ranks' values become one ([`Space::reduce`](crate::Space::reduce)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// Their sum; whole numbers wrap around.
    Sum,
    /// The least. A NaN is less than nothing and greater than nothing, so it stays where it is first.
    Min,
    /// The greatest, of NaN as above.
    Max,
}

impl Op {
    /// Two values as one.
    #[must_use]
    pub fn apply<T: Element>(self, a: T, b: T) -> T {
        match self {
            Self::Sum => a.plus(b),
            Self::Min if b < a => b,
            Self::Max if b > a => b,
            Self::Min | Self::Max => a,
        }
    }
}

/// A number that can lie in the global address space: `u8` to `u64`, `i32`, `i64`, `f32`, `f64`.
pub trait Element: Copy + Default + PartialOrd + Send + std::fmt::Debug + sealed::Sealed + 'static {
    /// Bytes of one.
    const BYTES: usize;

    /// Writes it as little-endian bytes.
    ///
    /// # Panics
    /// If `into` has not [`Element::BYTES`] bytes.
    fn write(self, into: &mut [u8]);

    /// Reads it from little-endian bytes.
    ///
    /// # Panics
    /// If `from` has not [`Element::BYTES`] bytes.
    fn read(from: &[u8]) -> Self;

    /// The sum; whole numbers wrap around.
    #[must_use]
    fn plus(self, other: Self) -> Self;

    /// Writes many, one behind the other.
    ///
    /// # Panics
    /// If `into` is shorter than they are.
    fn write_all(values: &[Self], into: &mut [u8]) {
        let into = &mut into[..values.len() * Self::BYTES];
        for (value, place) in values.iter().zip(into.chunks_exact_mut(Self::BYTES)) {
            value.write(place);
        }
    }

    /// Reads as many as there is room for.
    ///
    /// # Panics
    /// If `from` is shorter than they are.
    fn read_all(from: &[u8], into: &mut [Self]) {
        let from = &from[..into.len() * Self::BYTES];
        for (value, place) in into.iter_mut().zip(from.chunks_exact(Self::BYTES)) {
            *value = Self::read(place);
        }
    }
}

mod sealed {
    pub trait Sealed: bytemuck::Pod {}
}

macro_rules! elements {
    ($plus:expr; $($number:ty),+) => { $(
        impl sealed::Sealed for $number {}
        impl Element for $number {
            const BYTES: usize = size_of::<$number>();
            #[inline]
            fn write(self, into: &mut [u8]) {
                into.copy_from_slice(&self.to_le_bytes());
            }
            #[inline]
            fn read(from: &[u8]) -> Self {
                let mut bytes = [0; size_of::<$number>()];
                bytes.copy_from_slice(from);
                Self::from_le_bytes(bytes)
            }
            #[inline]
            fn plus(self, other: Self) -> Self {
                $plus(self, other)
            }
        }
    )+ };
}

macro_rules! whole {
    ($($number:ty),+) => { $( elements!(<$number>::wrapping_add; $number); )+ };
}

whole!(u8, u16, u32, u64, i32, i64);
elements!(|a, b| a + b; f32, f64);
