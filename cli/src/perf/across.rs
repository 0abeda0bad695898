//! What options say of what lies between the two ends: which adapter that is, and which options go with it.

use std::fmt;
use std::str::FromStr;

use cutthrough::{Placement, XdpMode};

use crate::args::{Across, Adapter};
use crate::failure::Failure;
use crate::hint;

impl Across {
    /// Whether what lies between the two ends is a way of this adapter.
    pub(super) fn fits(&self, adapter: Adapter, address: Option<&str>, remedy: &str) -> Result<(), Failure> {
        let ring = matches!(adapter, Adapter::Xdp | Adapter::Packet);
        if self.veth.is_some() && adapter == Adapter::Shm {
            return Err(Failure::new(
                "nothing crosses the veth pair in shared memory",
                "leave --veth away, or --adapter",
            ));
        }
        if ring && self.veth.is_none() && address.is_none() {
            return Err(Failure::new(
                format!("the adapter {} needs a network interface to the other end", adapter.name()),
                remedy,
            ));
        }
        if self.net_xdp && self.veth.is_none() && address.is_none() {
            return Err(Failure::new("--net-xdp needs a network interface to the other end", remedy));
        }
        Ok(())
    }

    /// The adapter to be used; `address` is that of an other end that somebody else starts.
    ///
    /// # Errors
    /// If it is not built yet, or not the one of the address, or has no placement to be chosen.
    pub fn adapter(&self, address: Option<&str>) -> Result<Adapter, Failure> {
        let named = address.and_then(scheme);
        let default = if self.veth.is_some() { Adapter::Udp } else { Adapter::Shm };
        if let (Some(address), None) = (address, named) {
            let what = format!("address {address:?} names no adapter");
            return Err(Failure::new(what, "use shm:NAME on this machine, or udp:HOST:PORT"));
        }
        let adapter = self.adapter.or(named).unwrap_or(default);
        if adapter == Adapter::Fabric {
            return Err(Failure::new(
                format!("the adapter {} is not built yet", adapter.name()),
                format!("use another --adapter, one that works here by '{}'", hint::command("info")),
            ));
        }
        if self.placement.is_some() && adapter != Adapter::Xdp {
            return Err(Failure::new(
                format!("--placement says what rings of the adapter xdp do, and this is {}", adapter.name()),
                "give --adapter xdp, or leave --placement away",
            ));
        }
        if self.net_xdp && adapter != Adapter::Net {
            return Err(Failure::new(
                format!("--net-xdp gives the adapter net another ring, and this is {}", adapter.name()),
                "give --adapter net, or leave --net-xdp away",
            ));
        }
        match adapter {
            Adapter::Net if self.xdp_mode.is_some() && !self.net_xdp => Err(Failure::new(
                "--xdp-mode is that of a ring of AF_XDP, and the adapter net has none",
                "give --net-xdp, too, or leave --xdp-mode away",
            ))?,
            Adapter::Xdp | Adapter::Net => {}
            _ if self.xdp_mode.is_some() => Err(Failure::new(
                format!("--xdp-mode is that of a ring of AF_XDP, and this is {}", adapter.name()),
                "give --adapter xdp, or leave --xdp-mode away",
            ))?,
            _ => {}
        }
        match (address, named) {
            (Some(address), Some(named)) if named != adapter => Err(Failure::new(
                format!("{address} is not an address of the adapter {}", adapter.name()),
                format!("leave --adapter away, or give {}:...", adapter.name()),
            )),
            _ => Ok(adapter),
        }
    }
}

/// Where the program of a ring of AF_XDP runs, as options say it: `auto`, or one of [`XdpMode`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mode(pub Option<XdpMode>);

impl Mode {
    /// All of them, by their names.
    const ALL: [Self; 4] =
        [Self(None), Self(Some(XdpMode::Generic)), Self(Some(XdpMode::Native)), Self(Some(XdpMode::ZeroCopy))];

    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.0.map_or("auto", XdpMode::name)
    }

    /// Its name, if one was chosen.
    #[must_use]
    pub fn chosen(self) -> Option<&'static str> {
        self.0.map(XdpMode::name)
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|mode| mode.name() == name);
        found.ok_or_else(|| format!("one of {}", Self::ALL.map(Self::name).join(", ")))
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The placement of this name.
///
/// # Errors
/// If there is none, with those that there are.
pub fn placement(name: &str) -> Result<Placement, String> {
    let all = [Placement::Auto, Placement::Copy, Placement::HeaderCut];
    let found = all.into_iter().find(|placement| placement.name() == name);
    found.ok_or_else(|| format!("one of {}", all.map(Placement::name).join(", ")))
}

/// The adapter that an address names.
#[must_use]
pub fn scheme(address: &str) -> Option<Adapter> {
    match address.split_once(':')?.0 {
        "shm" => Some(Adapter::Shm),
        "udp" => Some(Adapter::Udp),
        "packet" => Some(Adapter::Packet),
        "xdp" => Some(Adapter::Xdp),
        "net" => Some(Adapter::Net),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placement_goes_with_rings_of_xdp_alone() {
        let placed = |adapter| Across { adapter, placement: placement("header-cut").ok(), ..Across::default() };
        assert_eq!(placed(Some(Adapter::Xdp)).adapter(None).ok(), Some(Adapter::Xdp));
        assert_eq!(placed(None).adapter(Some("xdp:10.0.0.1:7")).ok(), Some(Adapter::Xdp));
        for other in [None, Some(Adapter::Udp), Some(Adapter::Net)] {
            let why = placed(other).adapter(None).map_err(|failure| failure.to_string());
            assert!(why.is_err_and(|why| why.contains("--adapter xdp")), "{other:?}");
        }
        assert!(placement("reverse-order").is_err_and(|why| why.contains("header-cut")));
    }

    #[test]
    fn another_ring_goes_with_the_adapter_net_alone() {
        let asked = |adapter| Across { adapter, net_xdp: true, ..Across::default() };
        assert_eq!(asked(Some(Adapter::Net)).adapter(None).ok(), Some(Adapter::Net));
        for other in [None, Some(Adapter::Udp), Some(Adapter::Xdp)] {
            let why = asked(other).adapter(None).map_err(|failure| failure.to_string());
            assert!(why.is_err_and(|why| why.contains("--adapter net")), "{other:?}");
        }
    }

    #[test]
    fn a_mode_goes_with_rings_of_xdp_alone() {
        let across =
            |adapter, net_xdp| Across { adapter, net_xdp, xdp_mode: "native".parse().ok(), ..Across::default() };
        assert_eq!(across(Some(Adapter::Xdp), false).adapter(None).ok(), Some(Adapter::Xdp));
        assert_eq!(across(Some(Adapter::Net), true).adapter(None).ok(), Some(Adapter::Net));
        assert_eq!(across(None, false).adapter(Some("xdp:10.0.0.1:7")).ok(), Some(Adapter::Xdp));
        for (other, what) in [
            (None, "this is shm; give --adapter xdp"),
            (Some(Adapter::Packet), "this is packet; give --adapter xdp"),
            (Some(Adapter::Net), "the adapter net has none; give --net-xdp, too"),
        ] {
            let why = across(other, false).adapter(None).expect_err("no ring").to_string();
            assert!(why.contains(what) && why.ends_with("or leave --xdp-mode away"), "{why}");
        }
    }

    #[test]
    fn a_mode_is_called_as_the_library_calls_it() {
        for mode in Mode::ALL {
            assert_eq!(mode.to_string().parse(), Ok(mode));
        }
        assert_eq!("zero-copy".parse(), Ok(Mode(Some(XdpMode::ZeroCopy))));
        assert_eq!("skb".parse::<Mode>(), Err("one of auto, generic, native, zero-copy".into()));
        assert_eq!([Mode::default().chosen(), Mode(Some(XdpMode::Native)).chosen()], [None, Some("native")]);
    }
}
