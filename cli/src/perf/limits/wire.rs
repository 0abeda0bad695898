//! What lies between the two ends of a limit of the kernel's network: loopback, or a veth pair.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use cutthrough_node::sys::datagram::Datagrams;

use crate::perf::across::Mode;
use crate::veth::{Missing, Pair};

/// How long to wait for something that may have been lost.
pub(super) const LOST: Duration = Duration::from_secs(1);

/// Between the near end, which asks, and the far end, which answers.
#[derive(Debug)]
pub struct Wire {
    pair: Option<Pair>,
    /// Where the program of bare rings of AF_XDP runs that are opened at its ends.
    pub(super) xdp_mode: Mode,
}

impl Wire {
    /// The machine's own loopback, whose MTU is that of the longest IP datagram.
    #[must_use]
    pub const fn loopback() -> Self {
        Self { pair: None, xdp_mode: Mode(None) }
    }

    /// A veth pair of this MTU, which goes when this value goes.
    ///
    /// # Errors
    /// [`Missing`].
    pub fn veth(mtu: u32) -> Result<Self, Missing> {
        Ok(Self { pair: Some(Pair::make(mtu)?), ..Self::loopback() })
    }

    /// The same, with bare rings of AF_XDP in this mode.
    #[must_use]
    pub fn in_mode(self, xdp_mode: Mode) -> Self {
        Self { xdp_mode, ..self }
    }

    /// The veth pair, if it is one.
    #[must_use]
    pub fn pair(&self) -> Option<&Pair> {
        self.pair.as_ref()
    }

    /// The longest IP datagram that crosses it whole, in bytes.
    pub(super) fn mtu(&self) -> usize {
        self.pair.as_ref().map_or(65_535, |pair| pair.mtu as usize)
    }

    /// Does something at the near end, such as opening what will be used there.
    ///
    /// # Errors
    /// As [`Wire::far`].
    pub fn near<R: Send>(&self, run: impl FnOnce(IpAddr) -> io::Result<R> + Send) -> io::Result<R> {
        match &self.pair {
            Some(pair) => pair.near.within(|| run(Pair::NEAR))?,
            None => run(Ipv4Addr::LOCALHOST.into()),
        }
    }

    /// Does something at the far end, such as opening what will be used there.
    ///
    /// # Errors
    /// Its own error, or that this process may not go there.
    pub fn far<R: Send>(&self, run: impl FnOnce(IpAddr) -> io::Result<R> + Send) -> io::Result<R> {
        match &self.pair {
            Some(pair) => pair.far.within(|| run(Pair::FAR))?,
            None => run(Ipv4Addr::LOCALHOST.into()),
        }
    }

    /// Two UDP sockets of the standard library, joined to each other.
    pub(super) fn udp(&self) -> io::Result<(UdpSocket, UdpSocket)> {
        let near = self.near(|at| UdpSocket::bind((at, 0)))?;
        let far = self.far(|at| UdpSocket::bind((at, 0)))?;
        near.connect(far.local_addr()?)?;
        far.connect(near.local_addr()?)?;
        Ok((near, far))
    }

    /// Two UDP sockets for trains, joined to each other.
    pub(super) fn datagrams(&self) -> io::Result<(Datagrams, Datagrams)> {
        let near = self.near(|at| Datagrams::bind(SocketAddr::new(at, 0)))?;
        let far = self.far(|at| Datagrams::bind(SocketAddr::new(at, 0)))?;
        near.connect(far.local()?)?;
        far.connect(near.local()?)?;
        Ok((near, far))
    }

    /// Two ends of a TCP stream that sends at once and never blocks.
    pub(super) fn tcp(&self) -> io::Result<(TcpStream, TcpStream)> {
        let listener = self.far(|at| TcpListener::bind((at, 0)))?;
        let to = listener.local_addr()?;
        let near = self.near(|_| TcpStream::connect(to))?;
        let (far, _) = listener.accept()?;
        for end in [&near, &far] {
            end.set_nodelay(true)?;
            end.set_nonblocking(true)?;
        }
        Ok((near, far))
    }
}

/// Tries again until it need not wait.
///
/// # Errors
/// Its own error, or that it has waited for [`LOST`].
pub(super) fn spin<R>(attempt: impl FnMut() -> io::Result<R>) -> io::Result<R> {
    spin_for(LOST, attempt)
}

/// As [`spin`], with another patience than [`LOST`].
///
/// # Errors
/// Its own error, or that it has waited for so long.
pub(super) fn spin_for<R>(patience: Duration, mut attempt: impl FnMut() -> io::Result<R>) -> io::Result<R> {
    const TRIES: usize = 1024;
    let mut begun = None;
    loop {
        for _ in 0..TRIES {
            match attempt() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => return other,
            }
        }
        if begun.get_or_insert_with(Instant::now).elapsed() > patience {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "a message was lost"));
        }
    }
}
