//! Platforms: machines to simulate, as TOML files whose every number says where it comes from.
//!
//! ```toml
//! name = "alphastation500"
//! title = "AlphaStation 500 pair, LANai 4.1 on Myrinet"
//! model = "staged"
//!
//! [bus.read]
//! value = 128
//! unit = "MB/s"
//! source = "hpdc97 Figure 5"
//!
//! [bus.setup]
//! value = 1.8
//! unit = "us"
//! fitted = "T1: 308 us store-and-forward, 195 us at 1280 B"
//! range = [0.5, 5.0]
//! ```
//!
//! A parameter has either a `source` or, if no text gives it, the figures that it was `fitted` to and the `range` in
//! which it is plausible. Prefixes are decimal for rates (1 MB/s is 1,000,000 bytes a second) and binary for sizes.
//! What is wrong with a file is said with its line, its key and the unit that was expected.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::time::{Rate, Span};

/// Where a parameter's value comes from.
#[derive(Debug, Clone, PartialEq)]
pub enum Origin {
    /// A text gives it, or it follows from one.
    Source(String),
    /// It is unknown and was chosen so that a few published figures come out.
    Fitted {
        /// Which figures.
        to: String,
        /// Least and most that is physically plausible.
        range: [f64; 2],
    },
}

/// A number of a platform.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameter {
    /// In `unit`.
    pub value: f64,
    /// As written in the file.
    pub unit: String,
    /// Where it comes from.
    pub origin: Origin,
    line: usize,
}

/// What is wrong with a platform.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {what}")]
pub struct PlatformError {
    /// Name of the file.
    pub file: String,
    /// Line, from 1; 1 for what is missing.
    pub line: usize,
    /// What is wrong: the key, and the unit or value that was expected.
    pub what: String,
}

/// A machine to simulate.
#[derive(Debug)]
pub struct Platform {
    file: String,
    name: String,
    title: String,
    model: (String, usize),
    parameters: BTreeMap<String, Parameter>,
    /// Keys that somebody has asked for; the others are mistakes.
    used: RefCell<BTreeSet<String>>,
}

/// Kinds of quantities, their units, and how many of the basic unit each of them is.
const TIMES: &[(&str, f64)] = &[("ps", 1.0), ("ns", 1e3), ("us", 1e6), ("ms", 1e9)];
const RATES: &[(&str, f64)] = &[
    ("B/s", 1.0),
    ("kB/s", 1e3),
    ("MB/s", 1e6),
    ("GB/s", 1e9),
    ("kb/s", 1e3 / 8.0),
    ("Mb/s", 1e6 / 8.0),
    ("Gb/s", 1e9 / 8.0),
];
const SIZES: &[(&str, f64)] = &[("B", 1.0), ("KiB", 1024.0), ("MiB", 1_048_576.0), ("GiB", 1_073_741_824.0)];
const CLOCKS: &[(&str, f64)] = &[("kHz", 1e3), ("MHz", 1e6), ("GHz", 1e9)];
const COUNTS: &[(&str, f64)] = &[("", 1.0), ("cells", 1.0), ("frames", 1.0), ("hosts", 1.0), ("instructions", 1.0)];

/// Longest time and largest size that a platform may name: sums of many must stay far from the end of the range.
const MOST: f64 = 1e15;

impl Platform {
    /// Reads a platform; `file` is the name that errors give.
    ///
    /// # Errors
    /// The first thing that is wrong, with its line.
    pub fn parse(text: &str, file: &str) -> Result<Self, PlatformError> {
        let fail = |at: usize, what: String| PlatformError { file: file.to_owned(), line: line_of(text, at), what };
        let table = DeTable::parse(text)
            .map_err(|error| fail(error.span().map_or(0, |span| span.start), one_line(error.message())))?;
        let mut platform = Self {
            file: file.to_owned(),
            name: String::new(),
            title: String::new(),
            model: (String::new(), 1),
            parameters: BTreeMap::new(),
            used: RefCell::default(),
        };
        for (key, value) in table.get_ref() {
            let at = key.span().start;
            match (key.get_ref().as_ref(), value.get_ref()) {
                ("name", DeValue::String(name)) => platform.name = name.to_string(),
                ("title", DeValue::String(title)) => platform.title = title.to_string(),
                ("model", DeValue::String(model)) => platform.model = (model.to_string(), line_of(text, at)),
                (word @ ("name" | "title" | "model"), _) => return Err(fail(at, format!("`{word}` must be a text"))),
                (word, DeValue::Table(inner)) => platform.gather(word, inner, at, &fail)?,
                (word, _) => {
                    let hint = "; a parameter is a table with value, unit and source (or fitted and range)";
                    return Err(fail(at, format!("`{word}` is unknown here{hint}")));
                }
            }
        }
        for (word, text) in [("name", &platform.name), ("title", &platform.title), ("model", &platform.model.0)] {
            if text.is_empty() {
                return Err(fail(0, format!("`{word}` is missing")));
            }
        }
        Ok(platform)
    }

    /// Takes in a table: a parameter if it has a value, else a group of parameters.
    fn gather(
        &mut self,
        key: &str,
        table: &DeTable<'_>,
        at: usize,
        fail: &impl Fn(usize, String) -> PlatformError,
    ) -> Result<(), PlatformError> {
        let is_leaf = table.values().any(|value| !matches!(value.get_ref(), DeValue::Table(_)));
        if is_leaf {
            let parameter = parameter(key, table, at, fail)?;
            self.parameters.insert(key.to_owned(), parameter);
            return Ok(());
        }
        for (name, value) in table {
            if let DeValue::Table(inner) = value.get_ref() {
                self.gather(&format!("{key}.{}", name.get_ref()), inner, name.span().start, fail)?;
            }
        }
        Ok(())
    }

    /// The platform's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it is, in one line.
    #[must_use]
    pub fn title(&self) -> &str {
        &self.title
    }

    /// Which model simulates it.
    #[must_use]
    pub fn model(&self) -> &str {
        &self.model.0
    }

    /// Every parameter, by key.
    pub fn parameters(&self) -> impl Iterator<Item = (&str, &Parameter)> {
        self.parameters.iter().map(|(key, parameter)| (key.as_str(), parameter))
    }

    /// Whether the platform names this parameter.
    #[must_use]
    pub fn has(&self, key: &str) -> bool {
        self.parameters.contains_key(key)
    }

    /// A time, in `ps`, `ns`, `us` or `ms`.
    ///
    /// # Errors
    /// It is missing, or has another unit.
    pub fn time(&self, key: &str) -> Result<Span, PlatformError> {
        self.quantity(key, "a time", TIMES).map(|ps| Span::from_ps(whole(ps)))
    }

    /// A rate, in bytes (`B/s`, `kB/s`, `MB/s`, `GB/s`) or bits (`kb/s`, `Mb/s`, `Gb/s`) per second; never 0.
    ///
    /// # Errors
    /// It is missing, 0, or has another unit.
    pub fn rate(&self, key: &str) -> Result<Rate, PlatformError> {
        let rate = self.quantity(key, "a rate", RATES).map(whole)?;
        Rate::from_bytes_per_s(rate).ok_or_else(|| self.refuse(key, "a rate must not be 0"))
    }

    /// A size in bytes, given in `B`, `KiB`, `MiB` or `GiB`.
    ///
    /// # Errors
    /// It is missing, or has another unit.
    pub fn size(&self, key: &str) -> Result<u64, PlatformError> {
        self.quantity(key, "a size", SIZES).map(whole)
    }

    /// The length of one cycle of a clock, given in `kHz`, `MHz` or `GHz`.
    ///
    /// # Errors
    /// It is missing, 0, or has another unit.
    pub fn cycle(&self, key: &str) -> Result<Span, PlatformError> {
        let hertz = self.quantity(key, "a clock", CLOCKS)?;
        if hertz <= 0.0 {
            Err(self.refuse(key, "a clock must not be 0"))
        } else {
            Ok(Span::from_ps(whole(1e12 / hertz)))
        }
    }

    /// A number of things, with the unit `""`, `cells`, `frames`, `hosts` or `instructions`.
    ///
    /// # Errors
    /// It is missing, or has another unit.
    pub fn count(&self, key: &str) -> Result<u64, PlatformError> {
        self.quantity(key, "a number", COUNTS).map(whole)
    }

    /// Says that a parameter's value will not do: an error with its line.
    #[must_use]
    pub fn refuse(&self, key: &str, why: &str) -> PlatformError {
        let line = self.parameters.get(key).map_or(1, |parameter| parameter.line);
        PlatformError { file: self.file.clone(), line, what: format!("`{key}`: {why}") }
    }

    /// Says that no model has this platform's name of one.
    #[must_use]
    pub fn unknown_model(&self, known: &[&str]) -> PlatformError {
        let what = format!("`model`: `{}` is unknown; known are {}", self.model.0, known.join(", "));
        PlatformError { file: self.file.clone(), line: self.model.1, what }
    }

    /// Refuses parameters that no model has asked for: called once a model is built.
    ///
    /// # Errors
    /// The first such parameter.
    pub fn all_used(&self) -> Result<(), PlatformError> {
        let used = self.used.borrow();
        let stray = self.parameters.keys().find(|key| !used.contains(*key));
        stray
            .map_or(Ok(()), |key| Err(self.refuse(key, &format!("the model `{}` has no such parameter", self.model.0))))
    }

    fn quantity(&self, key: &str, kind: &str, units: &[(&str, f64)]) -> Result<f64, PlatformError> {
        self.used.borrow_mut().insert(key.to_owned());
        let names = units.iter().map(|(name, _)| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        let Some(parameter) = self.parameters.get(key) else {
            let what = format!("`{key}` is missing: {kind}, in {names}");
            return Err(PlatformError { file: self.file.clone(), line: 1, what });
        };
        let Some((_, basic)) = units.iter().find(|(name, _)| *name == parameter.unit) else {
            return Err(self.refuse(key, &format!("`{}` is no unit of {kind}; use {names}", parameter.unit)));
        };
        let value = parameter.value * basic;
        if value <= MOST { Ok(value) } else { Err(self.refuse(key, "the value is too large")) }
    }
}

/// A leaf: value, unit, and where it comes from.
fn parameter(
    key: &str,
    table: &DeTable<'_>,
    at: usize,
    fail: &impl Fn(usize, String) -> PlatformError,
) -> Result<Parameter, PlatformError> {
    let (mut value, mut unit, mut source, mut fitted, mut range) = (None, None, None, None, None);
    let mut line = at;
    for (name, item) in table {
        let here = name.span().start;
        let refuse = |what: &str| fail(here, format!("`{key}.{}` {what}", name.get_ref()));
        match (name.get_ref().as_ref(), item.get_ref()) {
            ("value", _) => {
                line = here;
                value = Some(number(item).ok_or_else(|| refuse("must be a number, not negative"))?);
            }
            ("unit", DeValue::String(text)) => unit = Some(text.to_string()),
            ("source", DeValue::String(text)) => source = Some(text.to_string()),
            ("fitted", DeValue::String(text)) => fitted = Some(text.to_string()),
            ("range", DeValue::Array(ends)) => {
                let ends: Vec<f64> = ends.iter().filter_map(number).collect();
                match ends[..] {
                    [low, high] if low <= high => range = Some([low, high]),
                    _ => return Err(refuse("must be the least and the most that is plausible")),
                }
            }
            ("unit" | "source" | "fitted", _) => return Err(refuse("must be a text")),
            ("range", _) => return Err(refuse("must be the least and the most that is plausible")),
            _ => return Err(refuse("is unknown; a parameter has value, unit and source (or fitted and range)")),
        }
    }
    let missing = |what: &str| fail(at, format!("`{key}` has no `{what}`"));
    let value = value.ok_or_else(|| missing("value"))?;
    let unit = unit.ok_or_else(|| missing("unit"))?;
    let origin = match (source, fitted, range) {
        (Some(source), None, None) => Origin::Source(source),
        (None, Some(to), Some(range)) if (range[0]..=range[1]).contains(&value) => Origin::Fitted { to, range },
        (None, Some(_), Some(_)) => return Err(fail(line, format!("`{key}.value` is not within its `range`"))),
        (None, Some(_), None) => return Err(missing("range")),
        (None, None, _) => return Err(missing("source` or `fitted")),
        (Some(_), _, _) => return Err(fail(at, format!("`{key}` has a `source`, and so no `fitted` or `range`"))),
    };
    Ok(Parameter { value, unit, origin, line: fail(line, String::new()).line })
}

/// A number that is finite and not negative.
fn number(value: &Spanned<DeValue<'_>>) -> Option<f64> {
    let text = match value.get_ref() {
        DeValue::Integer(integer) => {
            let radix = integer.radix();
            return i64::from_str_radix(integer.as_str(), radix)
                .ok()
                .filter(|&number| number >= 0)
                .map(|number| number as f64);
        }
        DeValue::Float(float) => float.as_str(),
        _ => return None,
    };
    text.parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0)
}

/// The nearest whole number; the caller has bounded it.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative, and at most 1e15")]
fn whole(value: f64) -> u64 {
    value.round() as u64
}

fn line_of(text: &str, at: usize) -> usize {
    1 + text.bytes().take(at).filter(|&byte| byte == b'\n').count()
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Origin, Platform};
    use crate::time::{Rate, Span};

    const GOOD: &str = "name = \"x\"\ntitle = \"X\"\nmodel = \"staged\"\n\n[bus.read]\nvalue = 128\nunit = \"MB/s\"\n\
        source = \"a text\"\n\n[bus.setup]\nvalue = 1.5\nunit = \"us\"\nfitted = \"T1\"\nrange = [0.5, 4]\n";

    #[test]
    fn parameters_have_units_and_origins() {
        let platform = Platform::parse(GOOD, "x.toml").unwrap();
        assert_eq!(platform.rate("bus.read"), Ok(Rate::from_bytes_per_s(128_000_000).unwrap()));
        assert!(platform.all_used().is_err());
        assert_eq!(platform.time("bus.setup"), Ok(Span::from_ns(1500)));
        assert_eq!(platform.all_used(), Ok(()));
        let fitted = platform.parameters().filter(|(_, p)| matches!(p.origin, Origin::Fitted { .. })).count();
        assert_eq!(fitted, 1);
    }

    #[test]
    fn an_error_names_line_key_and_unit() {
        let wrong = |from: &str, to: &str| {
            let text = GOOD.replace(from, to);
            let platform = Platform::parse(&text, "x.toml");
            platform.and_then(|platform| platform.rate("bus.read")).unwrap_err().to_string()
        };
        assert!(wrong("\"MB/s\"", "\"us\"").starts_with("x.toml:6: `bus.read`: `us` is no unit of a rate; use `B/s`"));
        assert!(wrong("value = 128", "value = -1").starts_with("x.toml:6: `bus.read.value` must be a number"));
        assert!(wrong("value = 1.5", "value = 9").starts_with("x.toml:11: `bus.setup.value` is not within"));
        assert!(wrong("source = \"a text\"", "").starts_with("x.toml:5: `bus.read` has no `source` or `fitted`"));
        assert!(wrong("value = 128", "valeu = 128").starts_with("x.toml:6: `bus.read.valeu` is unknown"));
        assert!(wrong("[bus.read]", "[bus.red]").starts_with("x.toml:1: `bus.read` is missing: a rate"));
        assert!(wrong("name = \"x\"", "name = 3").starts_with("x.toml:1: `name` must be a text"));
        assert!(wrong("[bus.setup]", "[bus.setup").starts_with("x.toml:10: "));
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(cut in 0..GOOD.len(), junk in "\\PC{0,12}") {
            let mut text = GOOD.to_owned();
            text.insert_str(cut, &junk);
            if let Ok(platform) = Platform::parse(&text, "x") {
                let _ = (platform.rate("bus.read"), platform.time("bus.setup"), platform.all_used());
            }
        }
    }
}
