//! The way between the two ends of a measurement: which adapter carries the messages, what lies between, and whether
//! they are sealed. It is made before anything is opened, and goes with the measuring process, however that ends.

use std::fmt;
use std::io;
use std::net::{ToSocketAddrs as _, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use cutthrough::{Config, Keys, SharedKey};
use cutthrough_seal::Zeroizing;

use super::across::{Mode, scheme};
use super::limits::Wire;
use super::rights;
use crate::args::{Across, Adapter, ServeArgs, Started};
use crate::cpu;
use crate::failure::Failure;
use crate::machine::Machine;
use crate::output::PerfLine;
use crate::table::wrapped;

/// How long nothing may be heard of the other end: longer than by default. A machine that has other work stops one end
/// for a while, and of a lossy network's frames those that would have said so are lost, too.
pub const SILENCE: Duration = Duration::from_secs(3);

/// What lies between the two ends.
#[derive(Debug)]
pub struct Way {
    /// The adapter that carries the messages.
    pub adapter: Adapter,
    /// Loopback or a veth pair.
    pub wire: Wire,
    /// Whether the other end may be on another machine: then messages cross a wire that nothing is known of here.
    pub beyond: bool,
    /// How messages are sealed.
    pub seal: Seal,
    /// Whether the adapter net has a ring of AF_XDP too.
    pub net_xdp: bool,
    /// Where the program of rings of AF_XDP runs.
    pub xdp_mode: Mode,
}

impl Way {
    /// Makes it, as the options say. If that is a veth pair, the calling thread goes to its near end, and whatever it
    /// opens or starts from then on. `address` is that of an other end that somebody else starts.
    ///
    /// # Errors
    /// If an option cannot be served, or a privilege or feature is missing for a veth pair.
    pub fn make(across: &Across, address: Option<&str>) -> Result<Self, Failure> {
        Self::made(across, address, "give --veth 1500, or --peer with the address of another machine")
    }

    /// As [`Way::make`], for a test that has an other end of its own only.
    ///
    /// # Errors
    /// As [`Way::make`].
    pub fn own(across: &Across) -> Result<Self, Failure> {
        Self::made(across, None, "give --veth 1500")
    }

    /// `interface` is what to do where there has to be one.
    fn made(across: &Across, address: Option<&str>, interface: &str) -> Result<Self, Failure> {
        let adapter = across.adapter(address)?;
        let seal = Seal::of(across, adapter, address.is_some())?;
        if across.veth.is_some() && address.is_some() {
            return Err(Failure::new(
                "--veth has its own other end",
                "leave --peer and --listen away, or --veth if the other end runs on another machine",
            ));
        }
        across.fits(adapter, address, interface)?;
        if address.is_some() {
            rights::check(adapter)?;
        }
        let xdp_mode = across.xdp_mode.unwrap_or_default();
        let wire = across.veth.map_or(Ok(Wire::loopback()), Wire::veth)?.in_mode(xdp_mode);
        if let Some(pair) = wire.pair() {
            pair.near.enter().map_err(|error| Failure::new(format!("its namespace: {error}"), "run it as root"))?;
        }
        let beyond = adapter != Adapter::Shm && address.is_some_and(|address| !is_loopback(address));
        Ok(Self { adapter, wire, beyond, seal, net_xdp: across.net_xdp, xdp_mode })
    }

    /// Goes on for another side, by the same wire: its other end has these options. If it is another one than that of
    /// the side before, it seals as they say.
    ///
    /// # Errors
    /// If an option cannot be served.
    pub fn turn_to(&mut self, across: &Across, address: Option<&str>, another: bool) -> Result<(), Failure> {
        self.adapter = across.adapter(address)?;
        if another {
            self.seal = Seal::of(across, self.adapter, address.is_some())?;
        }
        (self.net_xdp, self.xdp_mode) = (across.net_xdp, across.xdp_mode.unwrap_or_default());
        Ok(())
    }

    /// Whether only one endpoint at a time can be at each of its ends: a queue of an interface has one ring of AF_XDP.
    #[must_use]
    pub fn is_narrow(&self) -> bool {
        is_narrow(self.adapter, self.net_xdp)
    }

    /// An address where nobody listens, for an other end of our own at the far end.
    ///
    /// # Errors
    /// If the kernel has no port.
    pub fn own_address(&self) -> io::Result<String> {
        if self.adapter == Adapter::Shm {
            return Ok(own_name());
        }
        let free = self.wire.far(|at| UdpSocket::bind((at, 0))?.local_addr())?;
        Ok(format!("{}:{free}", self.adapter.name()))
    }

    /// The options by which an other end of our own goes to the far end and learns the key there, and what it has to
    /// read from its standard input.
    #[must_use]
    pub fn child(&self) -> (Vec<String>, &str) {
        let space = self.wire.pair().map(|pair| ["--netns".to_owned(), pair.far.path().display().to_string()]);
        let mut options: Vec<String> = space.into_iter().flatten().collect();
        let key = match &self.seal {
            Seal::None => "",
            Seal::Plain => {
                options.push("--insecure".into());
                ""
            }
            Seal::Keys(secret) => {
                options.push("--key-from-stdin".into());
                &secret.text
            }
        };
        (options, key)
    }

    /// A line that says which way was measured.
    #[must_use]
    pub fn mark(&self, line: PerfLine) -> PerfLine {
        let (net_xdp, xdp_mode) = (self.net_xdp.then_some(true), self.xdp_mode.chosen());
        let (adapter, veth, sealed) = (Some(self.adapter.name()), self.veth(), self.sealed());
        PerfLine { adapter, net_xdp, xdp_mode, veth, sealed, ..line }
    }

    /// What stands above a table for people: the machine, and which way was measured. That messages were plain text is
    /// said aloud, because figures of sealed ones are others.
    #[must_use]
    pub fn head(&self, machine: &Machine) -> String {
        self.head_of(machine, &self.carrier(), self.seal.in_words())
    }

    /// What carries the messages, for people.
    #[must_use]
    pub fn carrier(&self) -> String {
        let ring = if self.net_xdp { " with a ring of AF_XDP" } else { "" };
        let mode = self.xdp_mode.chosen().map(|mode| format!(" in {mode} mode")).unwrap_or_default();
        format!("{}{ring}{mode}", self.adapter.name())
    }

    /// As [`Way::head`], where these words say what carries messages and whether they were sealed.
    #[must_use]
    pub fn head_of(&self, machine: &Machine, carrier: &str, sealed: &str) -> String {
        let mtu = self.veth().map(|mtu| format!(", MTU {mtu}")).unwrap_or_default();
        let comma = if sealed.is_empty() { "" } else { ", " };
        wrapped(&format!("{machine}\n{carrier}{mtu}{comma}{sealed}"))
    }

    /// The MTU of the veth pair, if there is one.
    #[must_use]
    pub fn veth(&self) -> Option<u32> {
        self.wire.pair().map(|pair| pair.mtu)
    }

    /// Whether messages are sealed, where they cross a wire.
    #[must_use]
    pub fn sealed(&self) -> Option<bool> {
        self.seal.is_sealed()
    }
}

/// Whether a way by this adapter, perhaps with another ring, has room for only one endpoint at each end.
#[must_use]
pub const fn is_narrow(adapter: Adapter, net_xdp: bool) -> bool {
    matches!(adapter, Adapter::Xdp) || net_xdp
}

/// A name of shared memory that no other process of this machine uses, and this one only once.
#[must_use]
pub fn own_name() -> String {
    static STARTED: AtomicU32 = AtomicU32::new(0);
    let count = STARTED.fetch_add(1, Ordering::Relaxed);
    format!("shm:perf-{}-{count}", std::process::id())
}

/// How messages are sealed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seal {
    /// Not at all: they do not leave the machine's memory.
    None,
    /// Not at all, and that was asked for.
    Plain,
    /// With these keys.
    Keys(Secret),
}

/// The text of a key file, which is wiped when it is dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    text: Zeroizing<String>,
    /// Where it is from.
    from: String,
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    fn of(text: Zeroizing<String>, from: impl Into<String>) -> Self {
        Self { text, from: from.into() }
    }

    /// A random key that two ends share.
    fn random() -> io::Result<Self> {
        let mut key = Zeroizing::new([0; 32]);
        // The kernel gives as many as this at once.
        rustix::rand::getrandom(&mut key[..], rustix::rand::GetRandomFlags::empty())?;
        Ok(Self::of(SharedKey::generate(*key).line(), "random key"))
    }

    /// The text of a key file that nobody else can read or change.
    fn load(path: &Path) -> Result<Self, Failure> {
        let text = cutthrough::read_key_text(path);
        text.map(|text| Self::of(text, format!("key file {}", path.display())))
            .map_err(|error| Failure::from_error(&error, "give another --key"))
    }

    /// The keys of the text.
    fn keys(&self) -> Result<Keys, Failure> {
        let refuse = |error| Failure::from_error(&format!("{}: {error}", self.from), "write a line psk:HEX, 64 digits");
        Keys::from_text(&self.text).map_err(refuse)
    }

    /// Whether it is one end's key of a pair, and not a key that all share.
    fn is_pair(&self) -> bool {
        matches!(self.keys(), Ok(Keys::Static { .. }))
    }

    /// This one, if an end that has it can call another one that has it, too.
    fn for_both(self) -> Result<Self, Failure> {
        match self.keys()? {
            Keys::Static { own, peers } if !peers.contains(&own.public()) => Err(Failure::new(
                "the other end, which perf starts itself, has no key of its own, and this file is for one end alone",
                "give --seal or a key that both share, or start the other end with its own file and give --peer",
            )),
            _ => Ok(self),
        }
    }
}

impl Seal {
    /// Whether messages are sealed, where they cross a wire.
    #[must_use]
    pub fn is_sealed(&self) -> Option<bool> {
        match self {
            Self::None => None,
            Self::Plain => Some(false),
            Self::Keys(_) => Some(true),
        }
    }

    /// The same for people; nothing of messages that cross none.
    #[must_use]
    pub fn in_words(&self) -> &'static str {
        match self {
            Self::None => "",
            Self::Plain => "plain text",
            Self::Keys(_) => "sealed",
        }
    }

    /// What the options of a measuring end ask for. `theirs` is whether somebody else starts the other end.
    ///
    /// # Errors
    /// If they cannot be served, or a key cannot be read.
    pub fn of(across: &Across, adapter: Adapter, theirs: bool) -> Result<Self, Failure> {
        match (adapter, &across.key) {
            (Adapter::Shm, None) if !across.seal && !across.insecure => Ok(Self::None),
            (Adapter::Shm, _) if theirs => {
                Err(unsealable("--seal, --key and --insecure", "give an address of udp:HOST:PORT"))
            }
            (Adapter::Shm, _) => Err(unsealable("--seal, --key and --insecure", "use --adapter udp")),
            (_, Some(path)) => {
                let secret = Secret::load(path)?;
                if theirs { Ok(Self::Keys(secret)) } else { secret.for_both().map(Self::Keys) }
            }
            _ if across.seal && theirs => {
                Err(Failure::new("--seal makes a key that the other end cannot know", "give both ends --key FILE"))
            }
            _ if across.seal => Secret::random()
                .map(Self::Keys)
                .map_err(|error| Failure::new(format!("no random key: {error}"), "give --key FILE")),
            // Both ends are ours, and the line says that it was plain.
            _ if across.insecure || !theirs => Ok(Self::Plain),
            _ => Err(unsealed()),
        }
    }

    /// What the options of an other end ask for.
    ///
    /// # Errors
    /// If a wire is used without saying how, or a key cannot be read.
    pub fn of_server(args: &ServeArgs) -> Result<Self, Failure> {
        let wired = scheme(&args.listen).is_some_and(|adapter| adapter != Adapter::Shm);
        match &args.key {
            Some(_) if !wired => Err(unsealable("--key", "listen at udp:HOST:PORT")),
            Some(path) => Secret::load(path).map(Self::Keys),
            None if args.started.key_from_stdin => io::read_to_string(io::stdin())
                .map(|text| Self::Keys(Secret::of(Zeroizing::new(text), "key on standard input")))
                .map_err(|error| Failure::new(format!("no key on standard input: {error}"), "give --key FILE")),
            None if !wired => Ok(Self::None),
            None if args.insecure => Ok(Self::Plain),
            None => Err(unsealed()),
        }
    }

    /// What asks for it on the command line, behind a space.
    #[must_use]
    pub fn option(&self) -> &'static str {
        match self {
            Self::None => "",
            Self::Plain => " --insecure",
            Self::Keys(_) => " --key FILE",
        }
    }

    /// The settings of an endpoint that seals so, and takes a peer for dead after [`SILENCE`]. Every endpoint of `perf`
    /// has its settings from here, those too over which nothing is measured: a measurement ends with any of them.
    ///
    /// # Errors
    /// If the key file's text is no key.
    pub fn apply(&self, config: Config) -> Result<Config, Failure> {
        let config = Config { silence: SILENCE, ..config };
        match self {
            Self::None => Ok(config),
            Self::Plain => Ok(Config { insecure: true, ..config }),
            Self::Keys(secret) => Ok(Config { keys: Some(Arc::new(secret.keys()?)), ..config }),
        }
    }

    /// What to do where the keys of both ends do not fit.
    #[must_use]
    pub fn fitting(&self) -> &'static str {
        match self {
            Self::Keys(secret) if secret.is_pair() => {
                "see that the key file of each end has the line public:HEX of the other end's key, as \
                 'cutthrough key --static' has printed it"
            }
            _ => "give both ends the same --key FILE, or --insecure",
        }
    }
}

fn unsealable(options: &str, instead: &str) -> Failure {
    Failure::new("shared memory is not sealed", format!("leave {options} away, or {instead}"))
}

fn unsealed() -> Failure {
    Failure::new(
        "messages on a wire have to be sealed",
        "give both ends --key FILE, or --insecure if anybody may read and forge them",
    )
}

/// Whether an address of a network adapter is of this machine alone.
fn is_loopback(address: &str) -> bool {
    let place = address.split_once(':').map_or(address, |(_, place)| place);
    let place = place.split_once('#').map_or(place, |(place, _)| place);
    place.to_socket_addrs().is_ok_and(|mut places| places.all(|place| place.ip().is_loopback()))
}

/// Goes to the core and into the network namespace that the process has chosen that has started this one.
///
/// # Errors
/// If the core is not ours, or as [`follow`].
pub fn take_place(started: &Started) -> Result<(), Failure> {
    if let Some(core) = started.core {
        cpu::pin(core).map_err(|error| Failure::new(format!("core {core}: {error}"), "choose one of this process"))?;
    }
    started.netns.as_deref().map_or(Ok(()), follow)
}

/// The namespace that [`Way::child`] names, for a process that has just been started: goes there, and sees to it that
/// this process ends with the one that has started it.
///
/// # Errors
/// If that one has ended already, or this process may not go there.
pub fn follow(space: &Path) -> Result<(), Failure> {
    use rustix::process::{Signal, set_parent_process_death_signal};
    let refuse = |error: io::Error| Failure::new(format!("{}: {error}", space.display()), "see that its process runs");
    set_parent_process_death_signal(Some(Signal::TERM)).map_err(|error| refuse(error.into()))?;
    // Opened after that: where this is found, the other one still runs, and its end will be heard of.
    crate::veth::Space::at(space).and_then(|space| space.enter()).map_err(refuse)
}

#[cfg(test)]
mod tests {
    use cutthrough::PrivateKey;

    use super::*;

    fn udp(across: Across) -> Across {
        Across { adapter: Some(Adapter::Udp), ..across }
    }

    fn seal(across: &Across, theirs: bool) -> Result<Seal, String> {
        let adapter = across.adapter.unwrap_or(Adapter::Shm);
        Seal::of(across, adapter, theirs).map_err(|failure| failure.to_string())
    }

    #[test]
    fn plain_text_between_machines_has_to_be_asked_for() {
        let sealed = Across { seal: true, ..Across::default() };
        let insecure = Across { insecure: true, ..Across::default() };
        assert_eq!(seal(&Across::default(), false), Ok(Seal::None));
        assert!(seal(&sealed, false).is_err() && seal(&insecure, false).is_err());
        assert_eq!(seal(&udp(Across::default()), false), Ok(Seal::Plain));
        assert!(seal(&udp(Across::default()), true).is_err_and(|why| why.contains("--insecure")));
        assert_eq!(seal(&udp(insecure), true), Ok(Seal::Plain));
        assert!(seal(&udp(sealed), true).is_err_and(|why| why.contains("--key")));
    }

    #[test]
    fn what_is_said_of_keys_fits_their_kind() {
        let pair = |peer| {
            let own = PrivateKey::generate([1; 32]);
            let peer = PrivateKey::generate([peer; 32]).public();
            Secret::of(Zeroizing::new(format!("{}\n{}\n", *own.line(), peer.line())), "key file x")
        };
        assert!(Seal::Keys(pair(2)).fitting().contains("public:HEX of the other end's key"));
        let shared = Secret::random().expect("a random key");
        assert!(Seal::Keys(shared.clone()).fitting().contains("the same --key FILE"));
        assert!(Seal::Plain.fitting().contains("the same --key FILE"));
        // An other end of our own has this file, too.
        let refused = |secret: Secret| secret.for_both().map(drop).map_err(|failure| failure.to_string());
        assert!(refused(pair(2)).is_err_and(|why| why.contains("; give --seal or a key that both share")));
        assert_eq!((refused(pair(1)), refused(shared)), (Ok(()), Ok(())));
        let lonely = Secret::of(PrivateKey::generate([1; 32]).line(), "key file s.key");
        let why = refused(lonely).expect_err("nobody to be called");
        assert_eq!(why, "key file s.key: there is no peer; write a line `public:HEX` for each");
    }

    #[test]
    fn every_endpoint_of_perf_bears_with_a_machine_that_has_other_work() {
        let keys = Secret::random().expect("a random key");
        for seal in [Seal::None, Seal::Plain, Seal::Keys(keys)] {
            let config = seal.apply(Config::default()).expect("a good key");
            assert_eq!(config.silence, SILENCE, "{seal:?}");
            assert!(config.silence > Config::default().silence);
        }
    }

    #[test]
    fn an_adapter_goes_with_what_lies_between_the_ends() {
        let across = |adapter| Across { adapter: Some(adapter), ..Across::default() };
        let refused = |adapter| {
            let made = Way::make(&across(adapter), None);
            assert!(Way::own(&across(adapter)).is_err_and(|failure| !failure.to_string().contains("--peer")));
            made.map(drop).map_err(|failure| failure.to_string()).expect_err("it fits")
        };
        assert!(refused(Adapter::Xdp).contains("give --veth 1500"));
        assert!(refused(Adapter::Packet).contains("give --veth 1500"));
        assert!(across(Adapter::Packet).fits(Adapter::Packet, Some("packet:10.0.0.1:7"), "").is_ok());
        assert!(across(Adapter::Udp).fits(Adapter::Udp, None, "").is_ok());
        let veth = Across { veth: Some(1500), ..Across::default() };
        assert!(veth.fits(Adapter::Udp, None, "").is_ok() && veth.fits(Adapter::Shm, None, "").is_err());
    }

    #[test]
    fn another_machine_is_told_from_this_one() {
        for here in ["udp:127.0.0.1:7000", "udp:127.3.0.1:7", "net:[::1]:7000", "udp:localhost:7000#00ff"] {
            assert!(is_loopback(here), "{here}");
        }
        for beyond in ["udp:10.0.0.1:7000", "packet:192.0.2.1:7", "udp:0.0.0.0:7000", "udp:[2001:db8::1]:7000#00ff"] {
            assert!(!is_loopback(beyond), "{beyond}");
        }
        for (insecure, address, beyond) in
            [(true, "udp:10.0.0.1:7000", true), (true, "udp:127.0.0.1:7000", false), (false, "shm:NAME", false)]
        {
            let way = Way::make(&Across { insecure, ..Across::default() }, Some(address));
            assert_eq!(way.map_or_else(|failure| panic!("{failure}"), |way| way.beyond), beyond, "{address}");
        }
    }

    #[test]
    fn a_random_key_is_another_one_each_time_and_is_never_shown() {
        let sealed = udp(Across { seal: true, ..Across::default() });
        let (Ok(Seal::Keys(a)), Ok(Seal::Keys(b))) = (seal(&sealed, false), seal(&sealed, false)) else {
            panic!("no key");
        };
        assert_ne!(a, b);
        assert_eq!((a.text.len(), format!("{a:?}")), ("psk:".len() + 64, "Secret".into()));
        let way = Way {
            adapter: Adapter::Udp,
            wire: Wire::loopback(),
            beyond: false,
            seal: Seal::Keys(a.clone()),
            net_xdp: false,
            xdp_mode: Mode::default(),
        };
        assert_eq!(way.child(), (vec!["--key-from-stdin".into()], a.text.as_str()));
        assert_eq!((way.sealed(), way.veth()), (Some(true), None));
    }

    #[test]
    fn an_other_end_of_our_own_has_an_address_of_its_own() {
        let way = |adapter| Way {
            adapter,
            wire: Wire::loopback(),
            beyond: false,
            seal: Seal::Plain,
            net_xdp: false,
            xdp_mode: Mode::default(),
        };
        let shm = way(Adapter::Shm);
        assert_ne!(shm.own_address().expect("a name"), shm.own_address().expect("a name"));
        let udp = way(Adapter::Udp).own_address().expect("a port");
        assert!(udp.starts_with("udp:127.0.0.1:") && !udp.ends_with(":0"), "{udp}");
        assert_eq!((scheme(&udp), scheme("shm:x"), scheme("x")), (Some(Adapter::Udp), Some(Adapter::Shm), None));
    }
}
