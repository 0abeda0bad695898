//! Values as bytes: what a method takes and gives.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::time::Duration;

/// A value that travels as bytes: numbers, `bool`, `char`, `()`, `String`, `Duration`, `SocketAddr`, `Option`,
/// `Result`, `Box`, `Vec`, arrays, maps, sets, tuples of up to eight values, what names memory
/// ([`Key`](crate::rma::Key), [`Extent`](crate::rma::Extent), [`Token`](crate::Token)), and whatever else has this
/// trait. Numbers are little-endian; where several values follow each other, each says its length first, unless they
/// are the numbers of a list or an array. A map is the list of its pairs, a set that of its values.
///
/// A type of one's own is written as what it is made of:
///
/// ```
/// use cutthrough::rpc::{Message, Method};
///
/// #[derive(Debug, PartialEq)]
/// struct Place {
///     name: String,
///     heights: Vec<f64>,
/// }
///
/// impl Message for Place {
///     fn encode(&self, into: &mut Vec<u8>) {
///         (self.name.clone(), self.heights.clone()).encode(into);
///     }
///
///     fn decode(bytes: &[u8]) -> Option<Self> {
///         <(String, Vec<f64>)>::decode(bytes).map(|(name, heights)| Self { name, heights })
///     }
/// }
///
/// const HIGHEST: Method<Vec<Place>, Option<Place>> = Method::new(7);
/// # let place = || Place { name: "here".into(), heights: vec![1.0, 2.5] };
/// # let mut bytes = Vec::new();
/// # vec![place(), place()].encode(&mut bytes);
/// # assert_eq!(Vec::decode(&bytes), Some(vec![place(), place()]));
/// ```
///
/// `decode` gets exactly the bytes that `encode` has appended, but the other side lies: it must not panic on any.
pub trait Message: Sized + Send + 'static {
    /// Appends the value.
    fn encode(&self, into: &mut Vec<u8>);

    /// The value of exactly these bytes.
    fn decode(bytes: &[u8]) -> Option<Self>;

    /// The same from memory that may be kept: long values come in such.
    fn decode_owned(bytes: Vec<u8>) -> Option<Self> {
        Self::decode(&bytes)
    }

    /// Appends a list of such values: what a `Vec` of them is. Only numbers have a shorter way.
    fn encode_list(list: &[Self], into: &mut Vec<u8>) {
        for value in list {
            put(value, into);
        }
    }

    /// The list of exactly these bytes.
    fn decode_list(mut bytes: &[u8]) -> Option<Vec<Self>> {
        let mut list = Vec::new();
        while !bytes.is_empty() {
            list.push(take(&mut bytes)?);
        }
        Some(list)
    }

    /// The same from memory that may be kept.
    fn decode_list_owned(bytes: Vec<u8>) -> Option<Vec<Self>> {
        Self::decode_list(&bytes)
    }
}

impl Message for () {
    fn encode(&self, _: &mut Vec<u8>) {}

    fn decode(bytes: &[u8]) -> Option<Self> {
        bytes.is_empty().then_some(())
    }
}

macro_rules! numbers {
    ($($number:ty),+) => { $(
        impl Message for $number {
            fn encode(&self, into: &mut Vec<u8>) {
                into.extend_from_slice(&self.to_le_bytes());
            }

            fn decode(bytes: &[u8]) -> Option<Self> {
                Some(Self::from_le_bytes(bytes.try_into().ok()?))
            }

            fn encode_list(list: &[Self], into: &mut Vec<u8>) {
                into.extend(list.iter().flat_map(|number| number.to_le_bytes()));
            }

            fn decode_list(bytes: &[u8]) -> Option<Vec<Self>> {
                let (numbers, rest) = bytes.as_chunks();
                rest.is_empty().then(|| numbers.iter().map(|number| Self::from_le_bytes(*number)).collect())
            }
        }
    )+ };
}

numbers!(u16, u32, u64, u128, i8, i16, i32, i64, i128, f32, f64);

impl Message for bool {
    fn encode(&self, into: &mut Vec<u8>) {
        into.push(u8::from(*self));
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [0] => Some(false),
            [1] => Some(true),
            _ => None,
        }
    }
}

/// A list of them is raw bytes, which are copied as a whole, or not at all.
impl Message for u8 {
    fn encode(&self, into: &mut Vec<u8>) {
        into.push(*self);
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        if let [byte] = bytes { Some(*byte) } else { None }
    }

    fn encode_list(list: &[Self], into: &mut Vec<u8>) {
        into.extend_from_slice(list);
    }

    fn decode_list(bytes: &[u8]) -> Option<Vec<Self>> {
        Some(bytes.to_vec())
    }

    fn decode_list_owned(bytes: Vec<u8>) -> Option<Vec<Self>> {
        Some(bytes)
    }
}

impl<T: Message> Message for Vec<T> {
    fn encode(&self, into: &mut Vec<u8>) {
        T::encode_list(self, into);
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        T::decode_list(bytes)
    }

    fn decode_owned(bytes: Vec<u8>) -> Option<Self> {
        T::decode_list_owned(bytes)
    }
}

impl Message for String {
    fn encode(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(self.as_bytes());
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        std::str::from_utf8(bytes).ok().map(str::to_owned)
    }

    fn decode_owned(bytes: Vec<u8>) -> Option<Self> {
        Self::from_utf8(bytes).ok()
    }
}

impl<T: Message> Message for Option<T> {
    fn encode(&self, into: &mut Vec<u8>) {
        into.push(u8::from(self.is_some()));
        if let Some(value) = self {
            value.encode(into);
        }
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        match bytes.split_first()? {
            (0, []) => Some(None),
            (1, rest) => T::decode(rest).map(Some),
            _ => None,
        }
    }
}

/// As an option, with what has gone wrong in place of nothing.
impl<T: Message, E: Message> Message for Result<T, E> {
    fn encode(&self, into: &mut Vec<u8>) {
        into.push(u8::from(self.is_ok()));
        match self {
            Ok(value) => value.encode(into),
            Err(error) => error.encode(into),
        }
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        match bytes.split_first()? {
            (0, rest) => E::decode(rest).map(Err),
            (1, rest) => T::decode(rest).map(Ok),
            _ => None,
        }
    }
}

/// The number of its code point.
impl Message for char {
    fn encode(&self, into: &mut Vec<u8>) {
        u32::from(*self).encode(into);
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        u32::decode(bytes).and_then(Self::from_u32)
    }
}

/// Whole seconds, and nanoseconds of less than one.
impl Message for Duration {
    fn encode(&self, into: &mut Vec<u8>) {
        self.as_secs().encode(into);
        self.subsec_nanos().encode(into);
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (seconds, nanos) = bytes.split_first_chunk::<8>()?;
        let nanos = u32::decode(nanos).filter(|nanos| *nanos < 1_000_000_000)?;
        Some(Self::new(u64::from_le_bytes(*seconds), nanos))
    }
}

/// As a list of so many.
impl<T: Message, const N: usize> Message for [T; N] {
    fn encode(&self, into: &mut Vec<u8>) {
        T::encode_list(self, into);
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        T::decode_list(bytes)?.try_into().ok()
    }
}

/// In the order of the keys.
impl<K: Message + Ord, V: Message> Message for BTreeMap<K, V> {
    fn encode(&self, into: &mut Vec<u8>) {
        self.iter().for_each(|(key, value)| put_pair(key, value, into));
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let pairs = <(K, V)>::decode_list(bytes)?;
        pairs.is_sorted_by(|(one, _), (next, _)| one < next).then(|| pairs.into_iter().collect())
    }
}

/// In any order, each key once.
impl<K: Message + Hash + Eq, V: Message> Message for HashMap<K, V> {
    fn encode(&self, into: &mut Vec<u8>) {
        self.iter().for_each(|(key, value)| put_pair(key, value, into));
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let pairs = <(K, V)>::decode_list(bytes)?;
        let many = pairs.len();
        Some(pairs.into_iter().collect()).filter(|map: &Self| map.len() == many)
    }
}

/// Appends a pair as it stands in a list.
fn put_pair(key: &impl Message, value: &impl Message, into: &mut Vec<u8>) {
    put_as(into, |into| {
        put(key, into);
        put(value, into);
    });
}

/// Appends a value with its length before it.
fn put(value: &impl Message, into: &mut Vec<u8>) {
    put_as(into, |into| value.encode(into));
}

/// Appends what this appends, with its length before it.
fn put_as(into: &mut Vec<u8>, encode: impl FnOnce(&mut Vec<u8>)) {
    let at = into.len();
    into.extend_from_slice(&[0; 4]);
    encode(into);
    let len = u32::try_from(into.len() - at - 4).unwrap_or(u32::MAX);
    into[at..at + 4].copy_from_slice(&len.to_le_bytes());
}

/// Takes a value with its length before it.
fn take<T: Message>(bytes: &mut &[u8]) -> Option<T> {
    let (len, rest) = bytes.split_first_chunk()?;
    let (value, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
    *bytes = rest;
    T::decode(value)
}

macro_rules! tuples {
    ($($($name:ident $place:tt),+;)+) => { $(
        impl<$($name: Message),+> Message for ($($name,)+) {
            fn encode(&self, into: &mut Vec<u8>) {
                $( put(&self.$place, into); )+
            }

            fn decode(mut bytes: &[u8]) -> Option<Self> {
                let value = ($(take::<$name>(&mut bytes)?,)+);
                bytes.is_empty().then_some(value)
            }
        }
    )+ };
}

tuples! {
    A 0;
    A 0, B 1;
    A 0, B 1, C 2;
    A 0, B 1, C 2, D 3;
    A 0, B 1, C 2, D 3, E 4;
    A 0, B 1, C 2, D 3, E 4, F 5;
    A 0, B 1, C 2, D 3, E 4, F 5, G 6;
    A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7;
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Mixed = (u64, String, Option<Vec<u8>>, (bool, i32));
    type Lists = (Vec<String>, Vec<i32>, Vec<(u16, Vec<bool>)>);
    type Others = (Result<char, [u16; 3]>, BTreeMap<u8, String>, Duration, [Option<bool>; 2]);

    /// Reads a value, which says the same again if it is one.
    fn read<T: Message>(bytes: &[u8]) -> Result<(), TestCaseError> {
        let owned = T::decode_owned(bytes.to_vec());
        let value = T::decode(bytes);
        prop_assert_eq!(owned.is_some(), value.is_some());
        for value in [owned, value].into_iter().flatten() {
            let mut again = Vec::new();
            value.encode(&mut again);
            prop_assert_eq!(again, bytes);
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn values_survive(number: u64, text: String, bytes: Option<Vec<u8>>, flag: bool, small: i32) {
            let value: Mixed = (number, text, bytes, (flag, small));
            let mut encoded = Vec::new();
            value.encode(&mut encoded);
            prop_assert_eq!(Mixed::decode(&encoded), Some(value));
            encoded.push(0);
            prop_assert_eq!(Mixed::decode(&encoded), None);
        }

        #[test]
        fn lists_survive(value: Lists) {
            let mut encoded = Vec::new();
            value.encode(&mut encoded);
            prop_assert_eq!(Lists::decode(&encoded), Some(value));
        }

        #[test]
        fn other_values_survive(value: Others) {
            let mut encoded = Vec::new();
            value.encode(&mut encoded);
            prop_assert_eq!(Others::decode(&encoded), Some(value));
        }

        /// In whatever order the pairs stand; not if one stands there twice.
        #[test]
        fn maps_survive(map: HashMap<u16, Vec<u8>>) {
            let (mut encoded, mut list) = (Vec::new(), Vec::new());
            map.encode(&mut encoded);
            prop_assert_eq!(HashMap::decode(&encoded), Some(map.clone()));
            let pairs: Vec<_> = map.into_iter().collect();
            pairs.encode(&mut list);
            prop_assert_eq!(&encoded, &list);
            let sorted: BTreeMap<_, _> = pairs.iter().cloned().collect();
            let mut ordered = Vec::new();
            sorted.encode(&mut ordered);
            prop_assert_eq!(BTreeMap::decode(&ordered), Some(sorted));
            if let Some((key, _)) = pairs.first() {
                put_pair(key, &vec![1_u8], &mut encoded);
                prop_assert_eq!(HashMap::<u16, Vec<u8>>::decode(&encoded), None);
                prop_assert_eq!(BTreeMap::<u16, Vec<u8>>::decode(&encoded), None);
            }
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            read::<Mixed>(&bytes)?;
            read::<()>(&bytes)?;
            read::<bool>(&bytes)?;
            read::<u128>(&bytes)?;
            read::<String>(&bytes)?;
            read::<Option<Option<(u8, bool)>>>(&bytes)?;
            read::<Vec<u8>>(&bytes)?;
            read::<Vec<i64>>(&bytes)?;
            read::<Vec<Option<u8>>>(&bytes)?;
            read::<Lists>(&bytes)?;
            read::<char>(&bytes)?;
            read::<Duration>(&bytes)?;
            read::<[u16; 4]>(&bytes)?;
            read::<(String,)>(&bytes)?;
            read::<[u8; 4]>(&bytes)?;
            read::<Result<char, String>>(&bytes)?;
            read::<BTreeMap<u8, u8>>(&bytes)?;
            HashMap::<u8, u8>::decode(&bytes);
            read::<Others>(&bytes)?;
        }

        /// What is true but for a byte, or is cut, or has an end that is too long, comes deeper.
        #[test]
        fn changed_bytes_do_not_panic(
            value: Mixed,
            (at, byte) in (any::<proptest::sample::Index>(), any::<u8>()),
            (cut, more) in (any::<proptest::sample::Index>(), 0..3_usize),
        ) {
            let mut bytes = Vec::new();
            value.encode(&mut bytes);
            let at = at.index(bytes.len());
            bytes[at] = byte;
            read::<Mixed>(&bytes)?;
            read::<(Vec<u8>, String, Option<(u8, bool)>)>(&bytes)?;
            read::<Mixed>(&bytes[..cut.index(bytes.len())])?;
            bytes.resize(bytes.len() + more, byte);
            read::<Mixed>(&bytes)?;
        }

        #[test]
        fn changed_bytes_of_others_do_not_panic(value: Others, at: proptest::sample::Index, byte: u8) {
            let mut bytes = Vec::new();
            value.encode(&mut bytes);
            let at = at.index(bytes.len());
            bytes[at] = byte;
            read::<Others>(&bytes)?;
        }
    }
}
