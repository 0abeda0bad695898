//! What the program prints: lines of JSON for scripts, text for people.
//!
//! With `--json` standard output carries one object per line and nothing else, and text for people goes to standard
//! error. Without it, text goes to standard output. A field that does not apply is absent, never null.

use std::io::{self, Write};

use rustix::termios::tcgetwinsize;
use serde::Serialize;

use crate::args::Memory;
use crate::failure::Failure;
use crate::machine::Machine;
use crate::stats::Quantiles;
use crate::table::narrowed;

/// Where results and text for people go.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    json: bool,
}

impl Output {
    /// An output that prints JSON lines if `json`, else text for people.
    #[must_use]
    pub fn new(json: bool) -> Self {
        Self { json }
    }

    /// Whether standard output carries JSON lines.
    #[must_use]
    pub fn is_json(self) -> bool {
        self.json
    }

    /// Prints one JSON line if JSON was asked for, else nothing.
    ///
    /// # Errors
    /// If standard output cannot be written.
    pub fn line(self, line: &impl Serialize) -> Result<(), Failure> {
        if !self.json {
            return Ok(());
        }
        let text = serde_json::to_string(line).map_err(|error| Failure::output(&error.into()))?;
        writeln!(io::stdout(), "{text}").map_err(|error| Failure::output(&error))
    }

    /// Prints text for people. Where results are lines of JSON, it is no loss if nobody can have the text.
    ///
    /// # Errors
    /// If the text is the result, and standard output cannot be written.
    pub fn say(self, text: &str) -> Result<(), Failure> {
        let text = narrowed(text);
        if self.json {
            let _ = writeln!(io::stderr(), "{text}");
            return Ok(());
        }
        writeln!(io::stdout(), "{text}").map_err(|error| Failure::output(&error))
    }

    /// Columns of the terminal that text for people goes to; none if it goes elsewhere.
    #[must_use]
    pub fn columns(self) -> Option<usize> {
        let size = if self.json { tcgetwinsize(io::stderr()) } else { tcgetwinsize(io::stdout()) };
        size.ok().map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0)
    }
}

/// The measured times of a line, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Times {
    /// The shortest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_ns: Option<f64>,
    /// Half of all are at most this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50_ns: Option<f64>,
    /// 90 % are at most this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p90_ns: Option<f64>,
    /// 99 % are at most this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_ns: Option<f64>,
    /// 99.9 % are at most this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p999_ns: Option<f64>,
    /// The mean.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean_ns: Option<f64>,
}

impl From<&Quantiles> for Times {
    fn from(quantiles: &Quantiles) -> Self {
        let tenths = |ns| Some(tenths(ns));
        Self {
            min_ns: tenths(quantiles.min_ns),
            p50_ns: tenths(quantiles.p50_ns),
            p90_ns: tenths(quantiles.p90_ns),
            p99_ns: tenths(quantiles.p99_ns),
            p999_ns: tenths(quantiles.p999_ns),
            mean_ns: tenths(quantiles.mean_ns),
        }
    }
}

/// To a tenth: what comes after it is noise.
#[must_use]
pub fn tenths(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

/// To a thousandth, and what is less than a tenth to three digits: so ratios are printed. One side may have stood still
/// for so long that little is left of a ratio, which is not none.
#[must_use]
pub fn thousandths(value: f64) -> f64 {
    let digits = if value == 0.0 { 0.0 } else { (-value.abs().log10().floor() - 1.0).clamp(0.0, 30.0) };
    let scale = 1000.0 * 10_f64.powf(digits);
    (value * scale).round() / scale
}

/// One result of `perf`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PerfLine {
    /// The test: `lat`, `bw`, `rate`, `fetch`, `wake`, `am`, `rpc`.
    pub test: &'static str,
    /// Which part of the test, where it has several, such as `short` of `am`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub what: Option<&'static str>,
    /// The adapter that carried the messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adapter: Option<String>,
    /// Whether the adapter net had a ring of AF_XDP too; absent if not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub net_xdp: Option<bool>,
    /// Where the program of rings of AF_XDP ran, if that was chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub xdp_mode: Option<&'static str>,
    /// The MTU of the veth pair between the two ends; absent if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub veth: Option<u32>,
    /// Percent of the frames on that pair that were to be lost, at random; absent if no loss was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<f64>,
    /// Frames that crossed the pair meanwhile in either direction, those that were lost among them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frames: Option<u64>,
    /// Those of them that were lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frames_lost: Option<u64>,
    /// Whether messages were sealed; absent if they crossed no wire.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sealed: Option<bool>,
    /// The pulse policy; absent where nothing travels in pulses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// Where the payloads were kept; absent if there were none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// Payload bytes of one message, or control bytes if there is no payload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// How many messages or whole operations were measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// Half a round trip each, or the whole operation in `fetch` and `rpc`.
    #[serde(flatten)]
    pub times: Times,
    /// Payload bytes delivered per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_s: Option<f64>,
    /// Messages delivered per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub msgs_per_s: Option<f64>,
    /// How often one payload was copied on its way, from the receipt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copies: Option<u32>,
    /// Mean number of pulses of one message, from the receipt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pulses: Option<f64>,
    /// Part of the payload bytes that landed in their final place at once, 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placed_ratio: Option<f64>,
    /// The limit of the machine that this result is held against.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    /// The median of that limit, measured in the same run: in turn with the result if there are `rounds`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_ns: Option<f64>,
    /// This result over the limit: of two times, or of two rates if the result is a rate. The median of the ratios of
    /// the rounds, in each of which both were measured, if there are `rounds`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio_to_limit: Option<f64>,
    /// The least of the ratios of the rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio_min: Option<f64>,
    /// The most of them: far from the least one if the machine was another one in between.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio_max: Option<f64>,
    /// In how many rounds it was measured, in turn with its limit. Times are those of all rounds, a rate is the median
    /// of the rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rounds: Option<u32>,
    /// The limit of one core's cipher that a sealed stream is held against, beside `limit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cipher: Option<String>,
    /// What that cipher takes at the median for the bytes of one message, in frames as long as the wire lets them be,
    /// measured in turn with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cipher_ns: Option<f64>,
    /// The rate of this result over the cipher's: the median of the rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio_to_cipher: Option<f64>,
    /// Mean time of one operation of a batch beyond the limit's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overhead_ns: Option<f64>,
    /// Which share of the time of the cores of both ends other work had meanwhile, 0 to 1; absent if that is not known.
    /// Two ends that spin and wait for a core measure that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub others_share: Option<f64>,
    /// Where it was measured.
    pub machine: Machine,
}

/// One result of `perf limits`.
#[derive(Clone, Debug, Serialize)]
pub struct LimitLine {
    /// Always `limits`.
    pub test: &'static str,
    /// Which limit.
    pub limit: String,
    /// The bytes of one operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// How many samples the times are taken from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// One way, or one whole operation where there is no way.
    #[serde(flatten)]
    pub times: Times,
    /// Bytes per second at the median.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_s: Option<f64>,
    /// Why this machine cannot show this limit; then the figures are absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unavailable: Option<String>,
    /// The MTU of the veth pair across which it was measured; absent if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub veth: Option<u32>,
    /// Where the program of its rings of AF_XDP ran, if that was chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub xdp_mode: Option<&'static str>,
    /// Where it was measured.
    pub machine: Machine,
}

/// What `perf sweep` says of one size: the default policy against the best fixed pulse.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct RegretLine {
    /// Always `regret`.
    pub test: &'static str,
    /// Payload bytes of one message.
    pub size: u64,
    /// Median latency of the default over the best of all fixed pulses; 1 or less is no regret.
    pub latency_ratio: f64,
    /// Bandwidth of the default over the best of all fixed pulses; 1 or more is no regret.
    pub bandwidth_ratio: f64,
}

/// What `perf compare` says of one size.
#[derive(Clone, Debug, Serialize)]
pub struct CompareLine {
    /// Always `compare`.
    pub test: &'static str,
    /// Which row of `am` or `rpc`; absent of other tests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub what: Option<&'static str>,
    /// The options of A.
    pub a: String,
    /// The options of B.
    pub b: String,
    /// Whether the messages of A were sealed; absent if they crossed no wire.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub a_sealed: Option<bool>,
    /// Whether those of B were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub b_sealed: Option<bool>,
    /// Payload bytes of one message.
    pub size: u64,
    /// Median over rounds of A over B.
    pub ratio_p50: f64,
    /// The 10th percentile of rounds.
    pub ratio_lo: f64,
    /// The 90th percentile of rounds.
    pub ratio_hi: f64,
    /// How many rounds each side ran.
    pub rounds: u32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn fields(line: &impl Serialize) -> Vec<String> {
        match serde_json::to_value(line).expect("a line is always an object") {
            Value::Object(object) => object.keys().cloned().collect(),
            other => panic!("not an object: {other}"),
        }
    }

    fn machine() -> Machine {
        Machine { cpu: "a processor".into(), cores: 2, kernel: "6.1.0".into(), date: "2026-01-02".into() }
    }

    fn quantiles() -> Quantiles {
        Quantiles { count: 10, min_ns: 1.04, p50_ns: 2.0, p90_ns: 3.0, p99_ns: 4.0, p999_ns: 5.0, mean_ns: 2.5 }
    }

    #[test]
    fn a_full_perf_line_has_the_fields_of_the_contract() {
        let line = PerfLine {
            test: "lat",
            what: Some("short"),
            adapter: Some("shm".into()),
            net_xdp: Some(true),
            xdp_mode: Some("native"),
            veth: Some(1500),
            loss: Some(1.0),
            frames: Some(100),
            frames_lost: Some(1),
            sealed: Some(true),
            policy: Some("adaptive".into()),
            memory: Some(Memory::Private),
            size: Some(64),
            count: Some(10),
            times: Times::from(&quantiles()),
            bytes_per_s: Some(1.0),
            msgs_per_s: Some(1.0),
            copies: Some(0),
            pulses: Some(1.0),
            placed_ratio: Some(1.0),
            limit: Some("cacheline_pingpong".into()),
            limit_ns: Some(2.0),
            ratio_to_limit: Some(1.0),
            ratio_min: Some(0.9),
            ratio_max: Some(1.1),
            rounds: Some(5),
            cipher: Some("aead_aes256gcm".into()),
            cipher_ns: Some(2.0),
            ratio_to_cipher: Some(1.0),
            overhead_ns: Some(1.0),
            others_share: Some(0.5),
            machine: machine(),
        };
        let mut contract = vec![
            "test",
            "adapter",
            "net_xdp",
            "xdp_mode",
            "veth",
            "loss",
            "frames",
            "frames_lost",
            "sealed",
            "policy",
            "memory",
            "size",
            "count",
            "min_ns",
            "p50_ns",
            "p90_ns",
            "p99_ns",
            "p999_ns",
            "mean_ns",
            "bytes_per_s",
            "msgs_per_s",
            "copies",
            "pulses",
            "placed_ratio",
            "limit",
            "limit_ns",
            "ratio_to_limit",
            "ratio_min",
            "ratio_max",
            "rounds",
            "cipher",
            "cipher_ns",
            "ratio_to_cipher",
            "overhead_ns",
            "others_share",
            "what",
            "machine",
        ];
        let mut printed = fields(&line);
        contract.sort_unstable();
        printed.sort_unstable();
        assert_eq!(printed, contract);
    }

    #[test]
    fn fields_that_do_not_apply_are_absent() {
        let line = PerfLine { test: "lat", machine: machine(), ..PerfLine::default() };
        let mut printed = fields(&line);
        printed.sort_unstable();
        assert_eq!(printed, ["machine", "test"]);
    }

    #[test]
    fn limit_regret_and_compare_lines_follow_the_contract() {
        let limit = LimitLine {
            test: "limits",
            limit: "memcpy_1core".into(),
            size: Some(8192),
            count: None,
            times: Times::default(),
            bytes_per_s: Some(5e9),
            unavailable: None,
            veth: None,
            xdp_mode: None,
            machine: machine(),
        };
        let printed = serde_json::to_string(&limit).expect("serializable");
        assert!(printed.starts_with(
            r#"{"test":"limits","limit":"memcpy_1core","size":8192,"bytes_per_s":5000000000.0,"machine":{"#
        ));

        let regret = RegretLine { test: "regret", size: 64, latency_ratio: 1.0, bandwidth_ratio: 1.0 };
        assert_eq!(
            serde_json::to_string(&regret).expect("serializable"),
            r#"{"test":"regret","size":64,"latency_ratio":1.0,"bandwidth_ratio":1.0}"#
        );

        let compare = CompareLine {
            test: "compare",
            what: None,
            a: "--policy adaptive".into(),
            b: String::new(),
            a_sealed: Some(true),
            b_sealed: None,
            size: 64,
            ratio_p50: 1.0,
            ratio_lo: 0.5,
            ratio_hi: 2.0,
            rounds: 9,
        };
        assert_eq!(
            serde_json::to_string(&compare).expect("serializable"),
            concat!(
                r#"{"test":"compare","a":"--policy adaptive","b":"","a_sealed":true,"size":64,"#,
                r#""ratio_p50":1.0,"ratio_lo":0.5,"ratio_hi":2.0,"rounds":9}"#
            )
        );
    }

    #[test]
    fn times_are_rounded_to_a_tenth_of_a_nanosecond() {
        assert_eq!(Times::from(&quantiles()).min_ns, Some(1.0));
    }

    #[test]
    fn ratios_have_three_places_or_three_digits() {
        for (ratio, told) in [
            (1234.56789, "1234.568"),
            (1.0, "1.0"),
            (0.46449, "0.464"),
            (0.1, "0.1"),
            (0.046449, "0.0464"),
            (0.000_234_51, "0.000235"),
            (0.0, "0.0"),
        ] {
            assert_eq!(serde_json::to_string(&thousandths(ratio)).expect("a number"), told);
        }
    }
}
