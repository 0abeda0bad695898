//! Rings of hosts that are not there. Without the feature `simulated` there is none.

use std::io;

use super::Lanes;
use crate::config::Config;
use crate::raw::route::Routes;
use crate::raw::xdp::XdpRing;
use crate::sys::xdp::XdpError;

/// The ways of the host that an endpoint is on: as the kernel knows them, or of one that is not there.
pub(super) fn routes(config: &Config) -> io::Result<Routes> {
    #[cfg(feature = "simulated")]
    if let Some(host) = &config.host {
        return Routes::simulated(host);
    }
    let _ = config;
    Routes::open()
}

impl Lanes {
    /// Opens a ring with so many bytes for payloads that land, if we are on a host that is not there.
    #[cfg(feature = "simulated")]
    pub(super) fn open_simulated(&self, places: bool, landing: u64) -> Option<Result<XdpRing, XdpError>> {
        let host = self.routes.host()?;
        Some(self.pool_size.open(landing, |pages| XdpRing::simulated(host, self.local, places, pages)))
    }

    #[cfg(not(feature = "simulated"))]
    #[expect(clippy::unused_self, reason = "with the feature it is not")]
    pub(super) const fn open_simulated(&self, _places: bool, _landing: u64) -> Option<Result<XdpRing, XdpError>> {
        None
    }
}
