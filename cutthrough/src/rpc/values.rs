//! Further values as bytes: what names memory of a peer or a host, sets, boxes, and numbers of this machine's width.

use std::collections::{BTreeSet, HashSet};
use std::hash::Hash;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::slice;

use cutthrough_engine::token::Token;

use super::Message;
use crate::rma::{Extent, Key};

/// As a `u64`, which is no value here if it does not fit.
impl Message for usize {
    fn encode(&self, into: &mut Vec<u8>) {
        (*self as u64).encode(into);
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        u64::decode(bytes)?.try_into().ok()
    }

    fn encode_list(list: &[Self], into: &mut Vec<u8>) {
        list.iter().for_each(|number| number.encode(into));
    }

    fn decode_list(bytes: &[u8]) -> Option<Vec<Self>> {
        let (numbers, rest) = bytes.as_chunks::<8>();
        let all = numbers.iter().map(|number| Self::decode(number));
        if rest.is_empty() { all.collect() } else { None }
    }
}

/// As what is in it.
impl<T: Message> Message for Box<T> {
    fn encode(&self, into: &mut Vec<u8>) {
        T::encode(self, into);
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        T::decode(bytes).map(Self::new)
    }

    fn decode_owned(bytes: Vec<u8>) -> Option<Self> {
        T::decode_owned(bytes).map(Self::new)
    }
}

/// As a list, in order.
impl<T: Message + Ord> Message for BTreeSet<T> {
    fn encode(&self, into: &mut Vec<u8>) {
        self.iter().for_each(|value| T::encode_list(slice::from_ref(value), into));
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let list = T::decode_list(bytes)?;
        list.is_sorted_by(|one, next| one < next).then(|| list.into_iter().collect())
    }
}

/// As a list in any order, each value once.
impl<T: Message + Hash + Eq> Message for HashSet<T> {
    fn encode(&self, into: &mut Vec<u8>) {
        self.iter().for_each(|value| T::encode_list(slice::from_ref(value), into));
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let list = T::decode_list(bytes)?;
        let many = list.len();
        Some(list.into_iter().collect()).filter(|set: &Self| set.len() == many)
    }
}

/// The octets of the address and its port; of IPv6 also flow and scope.
impl Message for SocketAddr {
    fn encode(&self, into: &mut Vec<u8>) {
        match self {
            Self::V4(address) => {
                into.extend_from_slice(&address.ip().octets());
                address.port().encode(into);
            }
            Self::V6(address) => {
                into.extend_from_slice(&address.ip().octets());
                address.port().encode(into);
                address.flowinfo().encode(into);
                address.scope_id().encode(into);
            }
        }
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        if let Ok([ip @ .., low, high]) = <[u8; 6]>::try_from(bytes) {
            return Some(SocketAddrV4::new(Ipv4Addr::from(ip), u16::from_le_bytes([low, high])).into());
        }
        let (ip, rest) = bytes.split_first_chunk::<16>()?;
        let (port, rest) = rest.split_first_chunk::<2>()?;
        let (flow, scope) = rest.split_first_chunk::<4>()?;
        let (port, flow) = (u16::from_le_bytes(*port), u32::from_le_bytes(*flow));
        Some(SocketAddrV6::new(Ipv6Addr::from(*ip), port, flow, u32::decode(scope)?).into())
    }
}

/// The number that it is.
impl Message for Key {
    fn encode(&self, into: &mut Vec<u8>) {
        self.0.encode(into);
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        u64::decode(bytes).map(Self)
    }
}

/// Where it begins, and its length.
impl Message for Extent {
    fn encode(&self, into: &mut Vec<u8>) {
        self.offset.encode(into);
        self.len.encode(into);
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (offset, len) = bytes.split_first_chunk::<8>()?;
        Some(Self { offset: u64::from_le_bytes(*offset), len: u32::decode(len)? })
    }
}

/// As [`Token::to_bytes`] has it. Only who granted it knows whether it is good.
impl Message for Token {
    fn encode(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(&self.to_bytes());
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.try_into().ok()?;
        Some(Self::from_bytes(bytes)).filter(|token| token.to_bytes() == bytes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::Index;

    use super::*;

    type Names = (Token, SocketAddr, usize, Vec<usize>, Box<(Key,)>);
    type Sets = (BTreeSet<u16>, BTreeSet<String>, HashSet<usize>, HashSet<SocketAddr>, BTreeSet<Box<u8>>);

    fn encoded(value: &impl Message) -> Vec<u8> {
        let mut bytes = Vec::new();
        value.encode(&mut bytes);
        bytes
    }

    /// A value is read back alike from memory that may be kept and from other; and from no longer or shorter bytes.
    fn survives<T: Message + PartialEq + std::fmt::Debug>(value: &T) -> Result<(), TestCaseError> {
        let mut bytes = encoded(value);
        let (read, owned) = (T::decode(&bytes), T::decode_owned(bytes.clone()));
        prop_assert_eq!(read.as_ref(), Some(value));
        prop_assert_eq!(owned.as_ref(), Some(value));
        prop_assert_eq!(T::decode(&bytes[..bytes.len() - 1]), None);
        bytes.push(0);
        prop_assert_eq!(T::decode(&bytes), None);
        Ok(())
    }

    /// Whatever the bytes are: no value, or the one value that is written so.
    fn reads<T: Message>(bytes: &[u8]) -> Result<(), TestCaseError> {
        let (owned, value) = (T::decode_owned(bytes.to_vec()), T::decode(bytes));
        prop_assert_eq!(owned.is_some(), value.is_some());
        for value in [owned, value].into_iter().flatten() {
            prop_assert_eq!(&encoded(&value), bytes);
        }
        Ok(())
    }

    fn reads_all(bytes: &[u8]) -> Result<(), TestCaseError> {
        reads::<usize>(bytes)?;
        reads::<Vec<usize>>(bytes)?;
        reads::<Box<String>>(bytes)?;
        reads::<Vec<Box<u8>>>(bytes)?;
        reads::<(u32,)>(bytes)?;
        reads::<BTreeSet<u8>>(bytes)?;
        reads::<BTreeSet<String>>(bytes)?;
        reads::<BTreeSet<()>>(bytes)?;
        reads::<SocketAddr>(bytes)?;
        reads::<Vec<SocketAddr>>(bytes)?;
        reads::<Key>(bytes)?;
        reads::<Extent>(bytes)?;
        reads::<Vec<Extent>>(bytes)?;
        reads::<Token>(bytes)?;
        reads::<Names>(bytes)?;
        // In which order the values of these stand is not known.
        drop((HashSet::<u8>::decode(bytes), HashSet::<String>::decode(bytes), Sets::decode(bytes)));
        Ok(())
    }

    fn names() -> impl Strategy<Value = Names> {
        let token = any::<(u16, u64)>().prop_map(|(index, key)| Token { index, key });
        let scoped = any::<(Ipv6Addr, u16, u32, u32)>();
        let scoped = scoped.prop_map(|(ip, port, flow, scope)| SocketAddrV6::new(ip, port, flow, scope).into());
        let address = prop_oneof![any::<SocketAddr>(), scoped];
        (token, address, any::<usize>(), any::<Vec<usize>>(), any::<u64>().prop_map(|key| Box::new((Key(key),))))
    }

    proptest! {
        #[test]
        fn names_survive(value in names(), (offset, len) in any::<(u64, u32)>()) {
            survives(&value.0)?;
            survives(&value.1)?;
            survives(&value.2)?;
            survives(&value.4)?;
            survives(&value)?;
            survives(&Extent { offset, len })?;
        }

        #[test]
        fn sets_survive(value: Sets) {
            survives(&value)?;
            // As the list of their values.
            prop_assert_eq!(encoded(&value.0), encoded(&value.0.iter().copied().collect::<Vec<_>>()));
            prop_assert_eq!(encoded(&value.2), encoded(&value.2.iter().copied().collect::<Vec<_>>()));
        }

        /// A value twice is no set; nor, where they have an order, are values in another one.
        #[test]
        fn what_stands_twice_is_no_set(mut list in proptest::collection::vec(any::<u16>(), 1..9), at: Index) {
            list.push(list[at.index(list.len())]);
            prop_assert_eq!(HashSet::<u16>::decode(&encoded(&list)), None);
            list.sort_unstable();
            prop_assert_eq!(BTreeSet::<u16>::decode(&encoded(&list)), None);
            list.dedup();
            prop_assert!(BTreeSet::<u16>::decode(&encoded(&list)).is_some());
            list.reverse();
            prop_assert_eq!(BTreeSet::<u16>::decode(&encoded(&list)).is_some(), list.len() == 1);
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            reads_all(&bytes)?;
        }

        /// What is true but for a byte, or is cut, comes deeper.
        #[test]
        fn changed_bytes_do_not_panic(names in names(), sets: Sets, at: Index, byte: u8, cut: Index) {
            for mut bytes in [encoded(&names), encoded(&sets)] {
                reads_all(&bytes[..cut.index(bytes.len())])?;
                let at = at.index(bytes.len());
                bytes[at] = byte;
                reads_all(&bytes)?;
            }
        }
    }

    /// A length that says more than there is makes no memory, and what it would be is no value.
    #[test]
    fn a_long_length_is_refused() {
        let bytes = [0xff; 24];
        assert_eq!(BTreeSet::<String>::decode(&bytes), None);
        assert_eq!(HashSet::<Vec<u64>>::decode(&bytes), None);
        assert_eq!(<(Box<String>,)>::decode(&bytes), None);
    }

    #[test]
    fn numbers_wider_than_this_machine_are_refused() {
        let widest = u64::MAX.to_le_bytes();
        assert_eq!(usize::decode(&widest).is_some(), size_of::<usize>() >= 8);
        assert_eq!(usize::decode(&[1, 0, 0, 0]), None);
    }
}
