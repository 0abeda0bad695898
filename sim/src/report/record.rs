//! A line as scripts read it.

use serde::Serialize;

use crate::outcome::{Line, Paper, Role};
use crate::report::number::significant;

/// A line of `sim --json` and of `lines.jsonl`: the fields of the contract, in its order. What does not apply is
/// absent. Figures have six digits that matter; the rest is noise of the arithmetic.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Record<'a> {
    /// Row of the table of results.
    pub id: &'a str,
    /// What was measured.
    pub what: &'a str,
    /// Under which conditions.
    pub conditions: &'a str,
    /// Unit of both figures.
    pub unit: &'a str,
    /// The published figure; absent if none is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paper: Option<Paper>,
    /// The simulated figure.
    pub sim: f64,
    /// How far it is off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_pct: Option<f64>,
    /// Fitted or predicted.
    pub role: Role,
    /// How far it may be off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tolerance_pct: Option<f64>,
    /// Whether it is near enough.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ok: Option<bool>,
    /// Where the published figure stands.
    pub source: &'a str,
}

impl<'a> Record<'a> {
    /// The record of a line.
    #[must_use]
    pub fn of(line: &'a Line) -> Self {
        Self {
            id: &line.id,
            what: &line.what,
            conditions: &line.conditions,
            unit: &line.unit,
            paper: line.paper,
            sim: significant(line.sim, 6),
            error_pct: line.error_pct.map(hundredths),
            role: line.role,
            tolerance_pct: line.tolerance_pct,
            ok: line.ok,
            source: &line.source,
        }
    }

    /// The record as one line of JSON, without its end.
    #[must_use]
    pub fn json(&self) -> String {
        // Texts and numbers always have a form in JSON.
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// To a hundredth of a percent, and no zero less than nothing.
fn hundredths(value: f64) -> f64 {
    (value * 100.0).round() / 100.0 + 0.0
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::Record;
    use crate::outcome::{Line, Paper};

    #[test]
    fn a_full_line_has_the_fields_of_the_contract_in_its_order() {
        let line = Line::new("T1", "latency", "8 KiB", "us", 310.0).against(Paper::Value(308.0), 10.0).source("hpdc97");
        assert_eq!(
            Record::of(&line).json(),
            concat!(
                r#"{"id":"T1","what":"latency","conditions":"8 KiB","unit":"us","paper":308.0,"sim":310.0,"#,
                r#""error_pct":0.65,"role":"predicted","tolerance_pct":10.0,"ok":true,"source":"hpdc97"}"#
            )
        );
    }

    #[test]
    fn fields_that_do_not_apply_are_absent_and_ranges_are_lists() {
        let bare = serde_json::to_value(Record::of(&Line::new("T3", "w", "c", "us", 1.0 / 3.0))).unwrap();
        let keys: Vec<_> = bare.as_object().unwrap().keys().cloned().collect();
        assert_eq!(keys.len(), 7, "{keys:?}");
        assert_eq!(bare["sim"], 0.333_333);
        let ranged = Line::new("T3", "w", "c", "us", 5.0).against(Paper::Range([1.0, 5.0]), 0.0);
        assert_eq!(serde_json::to_value(Record::of(&ranged)).unwrap()["paper"], Value::from(vec![1.0, 5.0]));
    }
}
