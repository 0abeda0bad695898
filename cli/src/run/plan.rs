//! Who runs where: for each rank its command, its variables, and what it reads first.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::fs::File;
use std::io::Read as _;
use std::net::SocketAddrV6;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::args::RunArgs;
use crate::failure::Failure;
use crate::veth::Pair;

/// What the far side of ssh says when a rank has been started.
pub(super) const STARTED: &[u8] = b"\x01cutthrough: this rank has started\n";

/// What a process of this machine says on standard error when it cannot become the rank that it should.
pub(super) const UNSTARTED: &[u8] = b"\x01cutthrough: this rank cannot be started\n";

/// Options of ssh: it asks nothing, says itself why it comes to no host before `start` seconds are over, and ends soon
/// after a host that says nothing any more.
fn ssh_options(start: f64) -> [String; 8] {
    let connect = format!("ConnectTimeout={}", (start.ceil() - 1.0).max(1.0));
    let options = ["BatchMode=yes", &connect, "ServerAliveInterval=5", "ServerAliveCountMax=3"];
    std::array::from_fn(|index| if index % 2 == 0 { "-o" } else { options[index / 2] }.to_owned())
}

/// Bytes of a file of hosts at most.
const MOST: u64 = 1 << 20;

/// The first port in namespaces of our own, where all are free.
const PORT: u32 = 7400;

/// One rank to be started.
#[derive(Debug)]
pub(super) struct Rank {
    pub(super) command: Command,
    /// The host it is started on, if not this one.
    pub(super) host: Option<String>,
    /// What it reads from standard input.
    pub(super) script: String,
}

/// All ranks, and the namespaces that some of them live in.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) ranks: Vec<Rank>,
    _pair: Option<Pair>,
}

/// A host of a file.
#[derive(Debug, PartialEq, Eq)]
struct Host {
    name: String,
    address: String,
}

impl Plan {
    pub(super) fn make(args: &RunArgs) -> Result<Self, Failure> {
        let refuse = |error: std::io::Error| Failure::new(format!("the ranks cannot be planned: {error}"), "try again");
        let program = args.program.first().ok_or_else(|| Failure::new("no program is given", "name one after --"))?;
        let pair = args.veth.map(Pair::make).transpose()?;
        let hosts = args.hosts.as_deref().map(read_hosts).transpose()?;
        // Starters in two containers may have one number.
        let job = format!("run-{}-{:08x}", std::process::id(), fastrand::u32(..));
        let addresses: Vec<String> = match (&pair, &hosts) {
            (Some(_), _) => {
                let side = |rank: u32| if rank.is_multiple_of(2) { Pair::NEAR } else { Pair::FAR };
                (0..args.ranks).map(|rank| format!("udp:{}:{}", side(rank), PORT + rank)).collect()
            }
            (_, Some(hosts)) => {
                let last = u32::from(args.port) + args.ranks - 1;
                if last > u32::from(u16::MAX) {
                    return Err(Failure::new(format!("there is no port {last}"), "give a lower --port"));
                }
                let host = |rank: u32| &hosts[rank as usize % hosts.len()].address;
                (0..args.ranks).map(|rank| format!("udp:{}:{}", host(rank), u32::from(args.port) + rank)).collect()
            }
            (None, None) => vec![format!("shm:{job}-{{rank}}")],
        };
        let mut common = vec![
            ("CUTTHROUGH_SIZE", args.ranks.to_string()),
            ("CUTTHROUGH_JOB", job),
            ("CUTTHROUGH_ADDRESSES", addresses.join(",")),
            ("CUTTHROUGH_START", args.start.to_string()),
        ];
        if pair.is_some() || hosts.is_some() {
            common.push(("CUTTHROUGH_KEY", random_key().map_err(refuse)?));
        }
        // Ranks on this machine have it anyway.
        if let Some(deadline) = std::env::var("CUTTHROUGH_DEADLINE").ok().filter(|_| hosts.is_some()) {
            common.push(("CUTTHROUGH_DEADLINE", deadline));
        }
        if hosts.is_none() {
            let name = program.display();
            if !is_found(program, Path::is_file) {
                return Err(Failure::new(format!("there is no program {name}"), "check its name"));
            }
            if !is_found(program, may_be_executed) {
                let advice = "chmod +x it, or name a program";
                return Err(Failure::new(format!("{name} is no file that may be executed"), advice));
            }
        }
        let folder = std::env::current_dir().unwrap_or_default();
        let told = match &hosts {
            Some(_) => Some((text(folder.as_os_str())?, texts(&args.program)?)),
            None => None,
        };
        let own = std::env::current_exe().map_err(refuse)?;
        let rank = |rank: u32| {
            let mut command = Command::new(&own);
            command.args(["run", "--end-with", &std::process::id().to_string()]);
            if let Some(pair) = &pair {
                let space = if rank.is_multiple_of(2) { &pair.near } else { &pair.far };
                command.arg("--space").arg(space.path());
            }
            command.arg("--");
            let variables = common.iter().cloned().chain([("CUTTHROUGH_RANK", rank.to_string())]);
            match (&hosts, &told) {
                (Some(hosts), Some((folder, words))) => {
                    let host = &hosts[rank as usize % hosts.len()];
                    command.arg("ssh").args(ssh_options(args.start)).args([&host.name, "sh"]);
                    Rank { command, host: Some(host.name.clone()), script: script(variables, folder, words) }
                }
                _ => {
                    command.args(&args.program).envs(variables);
                    Rank { command, host: None, script: String::new() }
                }
            }
        };
        Ok(Self { ranks: (0..args.ranks).map(rank).collect(), _pair: pair })
    }
}

/// A word, or a folder, as hosts are told of it. They may know a word that is no text by other bytes.
fn text(word: &OsStr) -> Result<&str, Failure> {
    let refuse = || Failure::new(format!("{word:?} is not UTF-8"), "give hosts words that are, in a folder that is");
    word.to_str().ok_or_else(refuse)
}

fn texts(words: &[OsString]) -> Result<Vec<&str>, Failure> {
    words.iter().map(|word| text(word)).collect()
}

/// A random key that the ranks of this run share.
fn random_key() -> std::io::Result<String> {
    let mut key = [0; 32];
    // The kernel gives as many as this at once.
    rustix::rand::getrandom(&mut key[..], rustix::rand::GetRandomFlags::empty())?;
    let mut text = String::from("psk: ");
    key.iter().for_each(|byte| {
        let _ = write!(text, "{byte:02x}");
    });
    Ok(text)
}

fn may_be_executed(path: &Path) -> bool {
    path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}

/// Whether a program's name leads to a file that suits, as it is looked for when it is started.
fn is_found(program: &OsStr, suits: fn(&Path) -> bool) -> bool {
    let path = Path::new(program);
    if path.components().count() > 1 || path.is_absolute() {
        return suits(path);
    }
    let folders = std::env::var_os("PATH").map(|paths| std::env::split_paths(&paths).collect::<Vec<PathBuf>>());
    folders.unwrap_or_default().iter().any(|folder| suits(&folder.join(path)))
}

fn read_hosts(path: &Path) -> Result<Vec<Host>, Failure> {
    let name = path.display();
    let refuse = |why: &str| Failure::new(format!("{name}: {why}"), "give a file with a host on each line");
    let mut text = String::new();
    // A device that is named by mistake may have no end.
    let read = File::open(path).and_then(|file| file.take(MOST + 1).read_to_string(&mut text));
    read.map_err(|error| refuse(&error.to_string()))?;
    if text.len() as u64 > MOST {
        return Err(refuse("longer than any list of hosts"));
    }
    parse_hosts(&text).map_err(|(number, why)| {
        Failure::new(format!("{name}, line {number}: {why}"), "write a name for ssh and, if need be, an address")
    })
}

/// The hosts of a file's text; or the number of the line that is wrong, and why.
fn parse_hosts(text: &str) -> Result<Vec<Host>, (usize, &'static str)> {
    let mut hosts = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
        let Some(name) = words.next() else { continue };
        // What begins with a dash would be an option of ssh.
        if name.starts_with('-') {
            return Err((number, "a host's name does not begin with '-'"));
        }
        let address = words.next().unwrap_or_else(|| name.rsplit('@').next().unwrap_or(name));
        if words.next().is_some() {
            return Err((number, "there is a third word"));
        }
        // A port will follow.
        let bracketed = format!("[{address}]");
        let is_six = format!("{bracketed}:0").parse::<SocketAddrV6>().is_ok();
        let address = if is_six { bracketed } else { address.to_owned() };
        hosts.push(Host { name: name.to_owned(), address });
    }
    if hosts.is_empty() { Err((1, "there is no host")) } else { Ok(hosts) }
}

/// What the shell of a host is told on its standard input, where nobody else sees the key. It ends the rank, and what
/// that has started, when its standard input ends: then the starter, or the way to it, is gone.
///
/// The shell itself may end at any word that it says, as nobody may listen any more: so it says nothing between the
/// rank's beginning and that of what ends it. That may come to act while the rank has no group of its own yet. Then it
/// ends the process, and, if this has made its group and started others in between, the group.
fn script(variables: impl Iterator<Item = (&'static str, String)>, folder: &str, program: &[&str]) -> String {
    let words: Vec<String> = program.iter().map(|word| quoted(word)).collect();
    let first = words.first().cloned().unwrap_or_default();
    let set: Vec<String> = variables.map(|(name, value)| format!("export {name}={}", quoted(&value))).collect();
    let started = String::from_utf8_lossy(STARTED).trim_end().replace('\x01', "\\001");
    // Read as a whole before any of it runs: the rest of standard input is only waited on.
    format!(
        "{{\n{set}\ncd {folder} 2>/dev/null\n\
         command -v {first} >/dev/null || {{ echo \"no program \"{first} >&2; exit 127; }}\n\
         exec 3<&0\n\
         printf '{started}\\n'\n\
         setsid {words} </dev/null 3<&- &\np=$!\n\
         (while read -r x <&3; do :; done; kill -9 -$p; kill -9 $p; kill -9 -$p) >/dev/null 2>&1 &\nw=$!\n\
         wait $p\ns=$?\nkill $w 2>/dev/null\nkill -9 -$p 2>/dev/null\nexit $s\n}}\n",
        set = set.join("\n"),
        folder = quoted(folder),
        words = words.join(" "),
    )
}

/// A word as a shell reads it literally.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_hosts_is_read() {
        let host = |name: &str, address: &str| Host { name: name.into(), address: address.into() };
        let text = "# mine\nalpha\n\n me@beta  # second\ngamma 10.0.0.3\n";
        assert_eq!(
            parse_hosts(text),
            Ok(vec![host("alpha", "alpha"), host("me@beta", "beta"), host("gamma", "10.0.0.3")])
        );
        let text = "fd00::1\nme@delta [fd00::2]\nepsilon fe80::1%2\n";
        let six = [("fd00::1", "[fd00::1]"), ("me@delta", "[fd00::2]"), ("epsilon", "[fe80::1%2]")];
        assert_eq!(parse_hosts(text), Ok(six.map(|(name, address)| host(name, address)).into()));
        assert_eq!(parse_hosts("# none\n"), Err((1, "there is no host")));
        assert_eq!(parse_hosts("a\nb c d\n"), Err((2, "there is a third word")));
        assert_eq!(parse_hosts("-oProxyCommand=x\n"), Err((1, "a host's name does not begin with '-'")));
    }

    #[test]
    fn a_file_of_hosts_has_an_end() {
        let refusal = read_hosts(Path::new("/dev/zero")).expect_err("it has none").to_string();
        assert_eq!(refusal, "/dev/zero: longer than any list of hosts; give a file with a host on each line");
    }

    #[test]
    fn ssh_gives_up_before_the_starter_does() {
        let connect = |start| ssh_options(start)[3].clone();
        assert_eq!([0.5, 1.5, 30.0].map(connect), ["ConnectTimeout=1", "ConnectTimeout=1", "ConnectTimeout=29"]);
        assert_eq!(ssh_options(30.0).iter().filter(|option| *option == "-o").count(), 4);
    }

    #[test]
    fn a_shell_reads_a_quoted_word_literally() {
        for word in ["plain", "two words", "it's", "$(date) `x` \\ \"", "-n", ""] {
            let output = Command::new("sh").arg("-c").arg(format!("printf %s {}", quoted(word))).output();
            assert_eq!(String::from_utf8(output.expect("a shell").stdout), Ok(word.to_owned()));
        }
    }
}
