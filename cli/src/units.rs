//! Sizes, times and rates: how people write them and how the program prints them.

use std::fmt;
use std::str::FromStr;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// A number of bytes, written `64`, `8KiB`, `1MiB` or `1GiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

impl Size {
    /// The largest payload of a message.
    pub const MAX: Self = Self(GIB);

    /// The number of bytes as a length of memory.
    #[must_use]
    pub fn bytes(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit = match &text[digits.len()..] {
            "" | "B" => 1,
            "KiB" => KIB,
            "MiB" => MIB,
            "GiB" => GIB,
            _ => return Err("write bytes (64) or 8KiB, 1MiB, 1GiB".into()),
        };
        if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
            return Err("write bytes (64) or 8KiB, 1MiB, 1GiB".into());
        }
        // A number that fits nowhere is too large, too.
        let bytes = digits.parse().ok().and_then(|count: u64| count.checked_mul(unit));
        let size = bytes.filter(|bytes| *bytes <= Self::MAX.0).map(Self);
        size.ok_or_else(|| format!("the largest size is {}", Self::MAX))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            n if n >= GIB && n.is_multiple_of(GIB) => write!(f, "{} GiB", n / GIB),
            n if n >= MIB && n.is_multiple_of(MIB) => write!(f, "{} MiB", n / MIB),
            n if n >= KIB && n.is_multiple_of(KIB) => write!(f, "{} KiB", n / KIB),
            n => write!(f, "{n} B"),
        }
    }
}

/// A time in nanoseconds with three digits that matter: `62.5 ns`, `5.31 us`, `1.20 ms`.
#[must_use]
pub fn time(ns: f64) -> String {
    match ns {
        ns if ns < 1e3 => three_digits(ns, "ns"),
        ns if ns < 1e6 => three_digits(ns / 1e3, "us"),
        ns if ns < 1e9 => three_digits(ns / 1e6, "ms"),
        ns => three_digits(ns / 1e9, "s"),
    }
}

/// A rate in bytes per second: `31.2 GB/s` (decimal, as links and memory are sold).
#[must_use]
pub fn bandwidth(bytes_per_s: f64) -> String {
    match bytes_per_s {
        rate if rate < 1e9 => three_digits(rate / 1e6, "MB/s"),
        rate => three_digits(rate / 1e9, "GB/s"),
    }
}

/// A rate of messages per second: `61.2 M/s`.
#[must_use]
pub fn rate(per_s: f64) -> String {
    match per_s {
        rate if rate < 1e3 => three_digits(rate, "/s"),
        rate if rate < 1e6 => three_digits(rate / 1e3, "k/s"),
        rate => three_digits(rate / 1e6, "M/s"),
    }
}

/// A ratio with as many digits as tell something: `0.004`, `1.07`, `15.3`, `9985`.
#[must_use]
pub fn ratio(value: f64) -> String {
    let decimals = match value {
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        v if v >= 0.0995 => 2,
        _ => 3,
    };
    format!("{value:.decimals$}")
}

fn three_digits(value: f64, unit: &str) -> String {
    let decimals = match value {
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.decimals$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_has_the_digits_that_matter() {
        let printed = [0.0037, 0.5, 1.0, 9.999, 15.32, 9985.45].map(ratio);
        assert_eq!(printed, ["0.004", "0.50", "1.00", "10.0", "15.3", "9985"]);
    }

    #[test]
    fn sizes_are_read_as_people_write_them() {
        assert_eq!("0".parse(), Ok(Size(0)));
        assert_eq!("64".parse(), Ok(Size(64)));
        assert_eq!("64B".parse(), Ok(Size(64)));
        assert_eq!("99999999999999999999".parse::<Size>(), Err("the largest size is 1 GiB".into()));
        assert_eq!("8KiB".parse(), Ok(Size(8192)));
        assert_eq!("4MiB".parse(), Ok(Size(4 << 20)));
        assert_eq!("1GiB".parse(), Ok(Size::MAX));
    }

    #[test]
    fn bad_sizes_are_refused() {
        for bad in [
            "",
            "KiB",
            "8KB",
            "8k",
            "-1",
            "1.5MiB",
            "8 KiB",
            "2GiB",
            "99999999999999999999",
            "18014398509481985KiB",
            "é",
        ] {
            assert!(bad.parse::<Size>().is_err(), "{bad:?} was accepted");
        }
    }

    #[test]
    fn sizes_are_printed_in_the_largest_whole_unit() {
        let printed: Vec<String> = [0, 64, 1000, 1024, 1536, 1 << 20, 1 << 30].map(|n| Size(n).to_string()).into();
        assert_eq!(printed, ["0 B", "64 B", "1000 B", "1 KiB", "1536 B", "1 MiB", "1 GiB"]);
    }

    #[test]
    fn times_and_rates_keep_three_digits() {
        assert_eq!(time(62.49), "62.5 ns");
        assert_eq!(time(999.99), "1000 ns");
        assert_eq!(time(5312.0), "5.31 us");
        assert_eq!(time(1_204_000.0), "1.20 ms");
        assert_eq!(time(2.5e9), "2.50 s");
        assert_eq!(bandwidth(31.24e9), "31.2 GB/s");
        assert_eq!(bandwidth(850e6), "850 MB/s");
        assert_eq!((rate(61.23e6), rate(4500.0), rate(7.0)), ("61.2 M/s".into(), "4.50 k/s".into(), "7.00 /s".into()));
    }
}
