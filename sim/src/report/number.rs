//! Numbers as people read them.

/// A number with the digits that matter: four of them, without useless zeros, thousands apart. A whole number, such as
/// a size in bytes, keeps all of them.
#[must_use]
pub fn short(value: f64) -> String {
    if !value.is_finite() {
        return "none".to_owned();
    }
    let is_whole = value.fract() == 0.0 && value.abs() < 1e15;
    grouped(&plain(if is_whole { value } else { significant(value, 4) }))
}

/// An error in percent, with its sign: `+1.2 %`.
#[must_use]
pub fn percent(value: f64) -> String {
    let text = format!("{value:+.1} %");
    if text == "-0.0 %" { "+0.0 %".to_owned() } else { text }
}

/// The value to so many digits that are not leading zeros.
#[must_use]
pub fn significant(value: f64, digits: usize) -> f64 {
    format!("{value:.*e}", digits.saturating_sub(1)).parse().unwrap_or(value)
}

/// A count, thousands apart.
#[must_use]
pub fn count(value: u64) -> String {
    grouped(&value.to_string())
}

/// A unit, or what ends in one, as it is printed where every sign is at hand: `us` becomes `µs`.
#[must_use]
pub fn unit(text: &str) -> String {
    match text.strip_suffix("us") {
        Some(before) if before.is_empty() || before.ends_with(' ') => format!("{before}µs"),
        _ => text.to_owned(),
    }
}

/// Without an exponent, and no zero less than nothing.
fn plain(value: f64) -> String {
    if value == 0.0 { "0".to_owned() } else { value.to_string() }
}

/// Sets commas between the thousands of a number of five digits or more.
fn grouped(text: &str) -> String {
    let (sign, digits) = text.strip_prefix('-').map_or(("", text), |digits| ("-", digits));
    let (whole, fraction) = digits.split_once('.').map_or((digits, None), |(whole, rest)| (whole, Some(rest)));
    let mut out = sign.to_owned();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && whole.len() > 4 && (whole.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if let Some(fraction) = fraction {
        out.push('.');
        out.push_str(fraction);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{count, percent, short, significant, unit};

    #[test]
    fn four_digits_matter() {
        let written = [0.0, 308.0, 195.25, 1408.4, 49_152.0, 49_152.5, -1.204_56, 0.001_234_5].map(short);
        assert_eq!(written, ["0", "308", "195.2", "1408", "49,152", "49,150", "-1.205", "0.001234"]);
        assert_eq!((short(f64::NAN), short(-0.0)), ("none".into(), "0".into()));
        assert_eq!(significant(1234.567, 6), 1234.57);
    }

    #[test]
    fn microseconds_get_their_letter() {
        assert_eq!(["us", "latency, us", "bonus", "MB/s"].map(unit), ["µs", "latency, µs", "bonus", "MB/s"]);
    }

    #[test]
    fn counts_and_errors() {
        assert_eq!((count(999), count(1_048_576)), ("999".into(), "1,048,576".into()));
        assert_eq!(
            (percent(1.25), percent(-0.01), percent(-37.0)),
            ("+1.2 %".into(), "+0.0 %".into(), "-37.0 %".into())
        );
    }
}
