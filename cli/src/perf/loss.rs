//! `--loss`: a veth pair that loses frames at random, in both directions, while something is measured across it.
//!
//! A program at each end of the pair drops them (see [`loss`]). It stays there with any share, also with 0 %: so what
//! is measured with loss and without it goes the same way, in frames of the MTU.

use std::fmt;
use std::io;
use std::str::FromStr;

use cutthrough_node::sys::xdp::loss;
use cutthrough_node::sys::xdp::{Interface, XdpError};

use super::way::Way;
use crate::args::{Adapter, Measure};
use crate::failure::Failure;
use crate::output::PerfLine;
use crate::veth::Pair;

/// A share of frames, in millionths: half of them at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loss(u32);

impl Loss {
    /// In percent.
    #[must_use]
    pub fn percent(self) -> f64 {
        f64::from(self.0) / 1e4
    }
}

impl FromStr for Loss {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.parse::<f64>() {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to half a million")]
            Ok(percent) if (0.0..=50.0).contains(&percent) => Ok(Self((percent * 1e4).round() as u32)),
            _ => Err("write percent from 0 to 50, such as 1 or 0.1"),
        }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} %", self.percent())
    }
}

/// The programs at both ends of a veth pair; they go with this value.
#[derive(Debug)]
pub struct Lossy {
    ends: [loss::Lossy; 2],
}

/// Frames that came to either end, and those of them that were dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Frames {
    /// All of them.
    pub came: u64,
    /// Those that were dropped.
    pub dropped: u64,
}

impl Frames {
    /// Adds what crossed it later.
    pub fn add(&mut self, more: Self) {
        self.came += more.came;
        self.dropped += more.dropped;
    }
}

/// Whether these options, in whose place a side of a comparison may have its own, can be served.
///
/// # Errors
/// If frames shall be lost where no veth pair is, or that are not for sockets.
pub fn check(options: &Measure) -> Result<(), Failure> {
    if options.loss.is_none() {
        return Ok(());
    }
    if options.across.veth.is_none() {
        return Err(Failure::new("--loss loses frames of a veth pair, and there is none", "give --veth 1500, too"));
    }
    let remedy = "leave --loss away, or --adapter";
    match options.across.adapter(options.far.peer.as_deref().or(options.far.listen.as_deref()))? {
        Adapter::Udp => Ok(()),
        Adapter::Xdp => {
            Err(Failure::new("--loss needs a program at the interface, where a ring of xdp has its own", remedy))
        }
        other => Err(Failure::new(format!("--loss is for the adapter udp, and this is {}", other.name()), remedy)),
    }
}

impl Lossy {
    /// At both ends of this way, if these options, which have been [`check`]ed, ask for it; nothing is lost yet.
    ///
    /// # Errors
    /// As [`Lossy::between`].
    pub fn asked(options: &Measure, way: &Way) -> Result<Option<Self>, Failure> {
        options.loss.and(way.wire.pair()).map(Self::between).transpose()
    }

    /// At both ends of this pair; nothing is lost yet.
    ///
    /// # Errors
    /// If a privilege or feature is missing.
    pub fn between(pair: &Pair) -> Result<Self, Failure> {
        let attach = |name| Interface::named(name).and_then(|interface| loss::Lossy::attach(&interface));
        let unreachable = |error: io::Error| Failure::new(format!("--loss: the namespace: {error}"), "run it as root");
        let near = pair.near.within(|| attach("near")).map_err(unreachable)?.map_err(refused)?;
        let far = pair.far.within(|| attach("far")).map_err(unreachable)?.map_err(refused)?;
        Ok(Self { ends: [near, far] })
    }

    /// So many frames are lost from now on.
    pub fn set(&self, loss: Loss) {
        self.ends.iter().for_each(|end| end.set(loss.0));
    }

    fn frames(&self) -> [loss::Frames; 2] {
        [self.ends[0].frames(), self.ends[1].frames()]
    }
}

/// Has frames lost, as was asked for, while this runs; none if nothing was. Returns what it returns, and what crossed
/// the pair meanwhile.
///
/// # Errors
/// Those of what runs.
pub fn during<R>(
    lossy: Option<&Lossy>,
    loss: Option<Loss>,
    run: impl FnOnce() -> Result<R, Failure>,
) -> Result<(R, Option<(Loss, Frames)>), Failure> {
    let (Some(lossy), Some(loss)) = (lossy, loss) else { return Ok((run()?, None)) };
    let before = lossy.frames();
    lossy.set(loss);
    let result = run();
    lossy.set(Loss::default());
    let mut frames = Frames::default();
    for (after, before) in lossy.frames().iter().zip(before) {
        frames.came += u64::from(after.came.wrapping_sub(before.came));
        frames.dropped += u64::from(after.dropped.wrapping_sub(before.dropped));
    }
    Ok((result?, Some((loss, frames))))
}

/// A line that says how many frames were lost.
#[must_use]
pub fn mark(line: PerfLine, lost: Option<(Loss, Frames)>) -> PerfLine {
    let Some((loss, frames)) = lost else { return line };
    PerfLine { loss: Some(loss.percent()), frames: Some(frames.came), frames_lost: Some(frames.dropped), ..line }
}

/// What programs that drop frames need is not what rings need.
fn refused(error: XdpError) -> Failure {
    match error {
        XdpError::Privilege { what, right } => {
            Failure::new(format!("--loss: {what} needs {right}"), "run it as root, and not by 'unshare -Ur'")
        }
        XdpError::Unsupported { what, errno } => {
            Failure::new(format!("--loss: {what}: not supported ({errno})"), "leave --loss away, or use Linux 5.18")
        }
        error => Failure::from_error(&error, "leave --loss away"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Across;

    #[test]
    fn percents_are_read_and_shown() {
        let read = |text: &str| text.parse::<Loss>();
        assert_eq!(read("1").map(|loss| (loss.0, loss.to_string())), Ok((10_000, "1 %".into())));
        assert_eq!(read("0.25").map(|loss| (loss.0, loss.to_string())), Ok((2_500, "0.25 %".into())));
        assert_eq!((read("0"), read("50")), (Ok(Loss(0)), Ok(Loss(loss::MILLION / 2))));
        for wrong in ["", "-1", "50.1", "1 %", "NaN", "inf", "one"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn frames_are_lost_only_on_their_way_to_sockets_across_a_veth_pair() {
        let checked = |veth, adapter| {
            let across = Across { veth, adapter, ..Across::default() };
            let options = Measure { across, loss: Some(Loss(1)), ..Measure::default() };
            check(&options).map_err(|failure| failure.to_string())
        };
        assert_eq!(checked(Some(1500), None), Ok(()));
        assert_eq!(checked(Some(1500), Some(Adapter::Udp)), Ok(()));
        assert!(checked(None, Some(Adapter::Udp)).is_err_and(|why| why.contains("--veth 1500")));
        assert!(checked(Some(1500), Some(Adapter::Xdp)).is_err_and(|why| why.contains("has its own")));
        for other in [Adapter::Shm, Adapter::Packet, Adapter::Net] {
            assert!(
                checked(Some(1500), Some(other)).is_err_and(|why| why.contains("for the adapter udp")),
                "{other:?}"
            );
        }
        assert!(check(&Measure::default()).is_ok());
    }
}
