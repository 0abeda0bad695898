//! XXH3 of 64 bits by the widest vectors of this processor: the check sum of a frame's body in plain text, which each
//! side computes of every byte. `docs/performance.md` has what that saves.

/// The fastest function here for the sum, with the seed 0, of more than [`CheckSum::SHORT`] bytes. None where a
/// library's is as good.
///
/// [`CheckSum::SHORT`]: cutthrough_seal::CheckSum::SHORT
#[must_use]
pub fn of_long() -> Option<fn(&[u8]) -> u64> {
    #[cfg(target_arch = "x86_64")]
    {
        // Processors that had AVX-512 before this part of it are slower for a while after each use.
        if std::arch::is_x86_feature_detected!("avx512f") && std::arch::is_x86_feature_detected!("avx512vbmi") {
            return Some(x86::by_avx512);
        }
        if std::arch::is_x86_feature_detected!("avx2") {
            return Some(x86::by_avx2);
        }
    }
    None
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __m256i, __m512i, _mm256_add_epi64, _mm256_loadu_si256, _mm256_mul_epu32, _mm256_set1_epi64x,
        _mm256_setzero_si256, _mm256_shuffle_epi32, _mm256_slli_epi64, _mm256_srli_epi64, _mm256_storeu_si256,
        _mm256_xor_si256, _mm512_add_epi64, _mm512_loadu_si512, _mm512_mul_epu32, _mm512_set1_epi64,
        _mm512_setzero_si512, _mm512_shuffle_epi32, _mm512_slli_epi64, _mm512_srli_epi64, _mm512_storeu_si512,
        _mm512_xor_si512,
    };

    /// So many bytes at a time are mixed into as many that are accumulated: eight numbers, in the order of bytes of
    /// this processor, which is that of the sum.
    type Stripe = [u8; 64];

    /// Stripes between two scrambles of what is accumulated; each has the secret from 8 bytes further on.
    const BLOCK: usize = (SECRET.len() - size_of::<Stripe>()) / 8;

    const PRIME32_1: u64 = 0x9e37_79b1;
    const PRIME32_2: u64 = 0x85eb_ca77;
    const PRIME32_3: u64 = 0xc2b2_ae3d;
    const PRIME64_1: u64 = 0x9e37_79b1_85eb_ca87;
    const PRIME64_2: u64 = 0xc2b2_ae3d_27d4_eb4f;
    const PRIME64_3: u64 = 0x1656_67b1_9e37_79f9;
    const PRIME64_4: u64 = 0x85eb_ca77_c2b2_ae63;
    const PRIME64_5: u64 = 0x27d4_eb2f_1656_67c5;
    const PRIME_MX1: u64 = 0x1656_6791_9e37_79f9;

    /// The secret of who has no own.
    #[rustfmt::skip]
    const SECRET: [u8; 192] = [
        0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c,
        0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f,
        0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
        0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c,
        0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
        0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
        0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
        0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
        0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
        0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
        0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce,
        0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
    ];

    static START: Stripe = {
        let numbers = [PRIME32_3, PRIME64_1, PRIME64_2, PRIME64_3, PRIME64_4, PRIME32_2, PRIME64_5, PRIME32_1];
        let mut bytes = [0; size_of::<Stripe>()];
        let mut at = 0;
        while at < bytes.len() {
            bytes[at] = numbers[at / 8].to_le_bytes()[at % 8];
            at += 1;
        }
        bytes
    };

    /// What the stripes of a block are mixed with.
    static KEYS: Aligned<[Stripe; BLOCK]> = {
        let mut keys = [[0; size_of::<Stripe>()]; BLOCK];
        let mut number = 0;
        while number < BLOCK {
            keys[number] = key(8 * number);
            number += 1;
        }
        Aligned(keys)
    };
    static SCRAMBLE: Aligned<Stripe> = Aligned(key(SECRET.len() - size_of::<Stripe>()));
    static LAST: Aligned<Stripe> = Aligned(key(SECRET.len() - size_of::<Stripe>() - 7));
    static MERGE: Aligned<Stripe> = Aligned(key(11));

    /// No load of it crosses a line of the cache.
    #[repr(align(64))]
    struct Aligned<T>(T);

    const fn key(from: usize) -> Stripe {
        let mut key = [0; size_of::<Stripe>()];
        let mut at = 0;
        while at < key.len() {
            key[at] = SECRET[from + at];
            at += 1;
        }
        key
    }

    pub(super) fn by_avx512(bytes: &[u8]) -> u64 {
        #[target_feature(enable = "avx512f")]
        fn sum(bytes: &[u8]) -> u64 {
            let load = |from: &Stripe| -> __m512i {
                // SAFETY: a stripe has the bytes of this vector, at any address.
                unsafe { _mm512_loadu_si512(from.as_ptr().cast()) }
            };
            let prime = _mm512_set1_epi64(PRIME32_1.cast_signed());
            xxh3(
                bytes,
                [load(&START), _mm512_setzero_si512()],
                |[products, plain], stripe, key| {
                    let data = load(stripe);
                    let keyed = _mm512_xor_si512(data, load(key));
                    let product = _mm512_mul_epu32(keyed, _mm512_srli_epi64::<32>(keyed));
                    [_mm512_add_epi64(products, product), _mm512_add_epi64(plain, data)]
                },
                |one, other| {
                    let plain = _mm512_add_epi64(one[1], other[1]);
                    let products = _mm512_add_epi64(one[0], other[0]);
                    _mm512_add_epi64(products, _mm512_shuffle_epi32::<SWAPPED>(plain))
                },
                |sum| {
                    let keyed = _mm512_xor_si512(sum, _mm512_srli_epi64::<47>(sum));
                    let keyed = _mm512_xor_si512(keyed, load(&SCRAMBLE.0));
                    let high = _mm512_mul_epu32(_mm512_srli_epi64::<32>(keyed), prime);
                    _mm512_add_epi64(_mm512_mul_epu32(keyed, prime), _mm512_slli_epi64::<32>(high))
                },
                |sum| {
                    let mut numbers = [0; 8];
                    // SAFETY: eight numbers have the bytes of this vector.
                    unsafe { _mm512_storeu_si512(numbers.as_mut_ptr().cast(), _mm512_xor_si512(sum, load(&MERGE.0))) };
                    numbers
                },
            )
        }
        // SAFETY: who gives this function away has asked whether this processor has AVX-512.
        unsafe { sum(bytes) }
    }

    pub(super) fn by_avx2(bytes: &[u8]) -> u64 {
        #[target_feature(enable = "avx2")]
        fn sum(bytes: &[u8]) -> u64 {
            let load = |from: &Stripe| -> [__m256i; 2] {
                let [first, second] = halves(from);
                // SAFETY: each half of a stripe has the bytes of this vector, at any address.
                unsafe { [_mm256_loadu_si256(first.as_ptr().cast()), _mm256_loadu_si256(second.as_ptr().cast())] }
            };
            let add = |one: [__m256i; 2], other: [__m256i; 2]| {
                [_mm256_add_epi64(one[0], other[0]), _mm256_add_epi64(one[1], other[1])]
            };
            let xor = |one: [__m256i; 2], other: [__m256i; 2]| {
                [_mm256_xor_si256(one[0], other[0]), _mm256_xor_si256(one[1], other[1])]
            };
            let prime = _mm256_set1_epi64x(PRIME32_1.cast_signed());
            xxh3(
                bytes,
                [load(&START), [_mm256_setzero_si256(); 2]],
                |[products, plain], stripe, key| {
                    let data = load(stripe);
                    let product =
                        xor(data, load(key)).map(|keyed| _mm256_mul_epu32(keyed, _mm256_srli_epi64::<32>(keyed)));
                    [add(products, product), add(plain, data)]
                },
                |one, other| {
                    let plain = add(one[1], other[1]).map(|plain| _mm256_shuffle_epi32::<SWAPPED>(plain));
                    add(add(one[0], other[0]), plain)
                },
                |sum| {
                    let keyed = xor(sum, sum.map(|sum| _mm256_srli_epi64::<47>(sum)));
                    xor(keyed, load(&SCRAMBLE.0)).map(|keyed| {
                        let high = _mm256_mul_epu32(_mm256_srli_epi64::<32>(keyed), prime);
                        _mm256_add_epi64(_mm256_mul_epu32(keyed, prime), _mm256_slli_epi64::<32>(high))
                    })
                },
                |sum| {
                    let mut numbers = [0; 8];
                    let (halves, _) = numbers.as_chunks_mut::<4>();
                    for (half, keyed) in halves.iter_mut().zip(xor(sum, load(&MERGE.0))) {
                        // SAFETY: four numbers have the bytes of this vector.
                        unsafe { _mm256_storeu_si256(half.as_mut_ptr().cast(), keyed) };
                    }
                    numbers
                },
            )
        }
        // SAFETY: who gives this function away has asked whether this processor has AVX2.
        unsafe { sum(bytes) }
    }

    /// Numbers of 64 bits trade places in pairs, each of which is two of 32 bits.
    const SWAPPED: i32 = 0b01_00_11_10;

    fn halves(stripe: &Stripe) -> [&[u8; 32]; 2] {
        let (halves, _) = stripe.as_chunks();
        [&halves[0], &halves[1]]
    }

    /// The sum of more than 240 bytes, whatever holds what is accumulated.
    ///
    /// `mix` adds products of a stripe with its key to the first of two accumulators, and the stripe to the second one;
    /// `join` makes what the order of adding does not change of two such pairs, where the numbers of stripes count for
    /// their neighbours: so they are swapped once for a block, and neither addition waits for another one before it.
    /// `scramble` ends a block, and `merge` gives the numbers of which the sum is made.
    #[inline(always)]
    fn xxh3<A: Copy>(
        bytes: &[u8],
        [start, zero]: [A; 2],
        mix: impl Fn([A; 2], &Stripe, &Stripe) -> [A; 2],
        join: impl Fn([A; 2], [A; 2]) -> A,
        scramble: impl Fn(A) -> A,
        merge: impl Fn(A) -> [u64; 8],
    ) -> u64 {
        let length = bytes.len() as u64;
        let last = bytes.last_chunk().expect("more bytes than a stripe");
        // The last stripe is mixed in by itself, and may share bytes with the one before it: here it counts for none.
        let (stripes, _) = bytes[..bytes.len() - 1].as_chunks();
        let (blocks, rest) = stripes.as_chunks::<BLOCK>();
        let (pairs_of_keys, _) = KEYS.0.as_chunks::<2>();
        let mut sum = start;
        for block in blocks {
            let (mut even, mut odd) = ([sum, zero], [zero; 2]);
            for ([first, second], keys) in block.as_chunks().0.iter().zip(pairs_of_keys) {
                even = mix(even, first, &keys[0]);
                odd = mix(odd, second, &keys[1]);
            }
            sum = scramble(join(even, odd));
        }
        let (mut even, mut odd) = ([sum, zero], mix([zero; 2], last, &LAST.0));
        let (pairs, single) = rest.as_chunks();
        for ([first, second], keys) in pairs.iter().zip(pairs_of_keys) {
            even = mix(even, first, &keys[0]);
            odd = mix(odd, second, &keys[1]);
        }
        for (stripe, key) in single.iter().zip(&KEYS.0[2 * pairs.len()..]) {
            even = mix(even, stripe, key);
        }
        let numbers = merge(join(even, odd));
        let (pairs, _) = numbers.as_chunks::<2>();
        let merged = pairs.iter().fold(length.wrapping_mul(PRIME64_1), |merged, [one, other]| {
            let (low, high) = one.carrying_mul(*other, 0);
            merged.wrapping_add(low ^ high)
        });
        let mixed = (merged ^ merged >> 37).wrapping_mul(PRIME_MX1);
        mixed ^ mixed >> 32
    }

    #[cfg(test)]
    mod tests {
        use proptest::prelude::*;
        use twox_hash::XxHash3_64;

        use super::*;

        /// All of which this processor can run.
        fn functions() -> Vec<fn(&[u8]) -> u64> {
            let here = [
                (std::arch::is_x86_feature_detected!("avx512f"), by_avx512 as fn(&[u8]) -> u64),
                (std::arch::is_x86_feature_detected!("avx2"), by_avx2),
            ];
            here.into_iter().filter_map(|(has, function)| has.then_some(function)).collect()
        }

        /// Ends of stripes and of blocks are where it could differ.
        #[test]
        fn every_length_has_the_sum_of_the_library() {
            let bytes: Vec<u8> = (0..9100u32).map(|at| at.wrapping_mul(2_654_435_761).to_le_bytes()[2]).collect();
            for function in functions() {
                for length in cutthrough_seal::CheckSum::SHORT + 1..bytes.len() {
                    let part = &bytes[bytes.len() - length..];
                    assert_eq!(function(part), XxHash3_64::oneshot(part), "{length} bytes");
                }
            }
        }

        proptest! {
            #[test]
            fn any_bytes_have_the_sum_of_the_library(bytes in prop::collection::vec(any::<u8>(), 241..4000)) {
                for function in functions() {
                    prop_assert_eq!(function(&bytes), XxHash3_64::oneshot(&bytes));
                }
            }
        }
    }
}
