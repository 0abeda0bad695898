//! Many peers of one endpoint, each an endpoint of its own, in another process: what that one keeps is all that this
//! process holds.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cutthrough::{Config, Endpoint, Event, Keys, Payload};
use cutthrough_conform::bytes::pattern;

/// Where the process calls that is the crowd; and with which key, if it has one.
const PART: &str = "QUIET_CROWD_CALLS";
const KEY: &str = "QUIET_CROWD_KEY";
/// Peers.
pub(crate) const PEERS: usize = 256;
/// Bytes of the payload that each peer sends, and gets back.
const BYTES: usize = 50_000;
/// After how long a peer of which nothing is heard is dead. After a quarter of that a channel gives memory back.
pub(crate) const SILENCE: Duration = Duration::from_secs(6);
/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) fn config(key: Option<&str>) -> Config {
    let keys = key.map(|key| Arc::new(Keys::from_text(key).expect("a key")));
    // A machine with few cores takes its time to look after all of them.
    Config { insecure: keys.is_none(), keys, silence: SILENCE, ..Config::default() }
}

/// The process that is the crowd, until its input ends; returns at once in any other.
pub(crate) fn play() {
    let Some(address) = std::env::var_os(PART) else { return };
    let address = address.to_str().expect("an address");
    let key = std::env::var(KEY).ok();
    let payload = pattern(1, BYTES);
    let peers: Vec<Endpoint> = (0..PEERS)
        .map(|_| {
            let mut peer = Endpoint::open(config(key.as_deref())).expect("an endpoint");
            let channel = peer.connect(address, PATIENCE).expect("a channel");
            for _ in 0..20 {
                peer.send(channel, &[7; 64]).expect("room");
            }
            peer.outgoing(channel).expect("room").attach_copy(&payload).send().expect("sent");
            echoed(&mut peer);
            peer
        })
        .collect();
    println!("SAYS ready");
    let _ = std::io::stdin().lines().next();
    drop(peers);
}

/// Waits for the payload that comes back.
fn echoed(peer: &mut Endpoint) {
    let Ok(Event::Message(mut message)) = peer.wait(Some(PATIENCE)) else { panic!("no answer") };
    let mut bytes = vec![0; message.payload_len()];
    peer.read(&mut message, &mut bytes).expect("a payload");
    assert_eq!(bytes.len(), BYTES);
}

/// That process, from outside.
pub(crate) struct Crowd {
    child: Child,
    output: BufReader<ChildStdout>,
    /// When it is closed, the crowd leaves.
    input: Option<ChildStdin>,
}

impl Crowd {
    /// Has them all call `endpoint`, which listens at `address`, and gives each its payload back.
    pub(crate) fn call(endpoint: &mut Endpoint, address: &str, key: Option<&str>) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["crowd", "--exact", "--nocapture", "--test-threads=1"]).env(PART, address);
        command.envs(key.map(|key| (KEY, key)));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a process");
        let (input, output) = (child.stdin.take(), child.stdout.take().map(BufReader::new).expect("its output"));
        let crowd = Self { child, output, input };
        let begun = Instant::now();
        let mut answered = 0;
        while answered < PEERS {
            assert!(begun.elapsed() < PATIENCE * 4, "{answered} of {PEERS} have been answered");
            let Ok(Event::Message(mut message)) = endpoint.wait(Some(PATIENCE)) else { continue };
            if !matches!(message.payload(), Payload::Arriving(_)) {
                continue;
            }
            let mut bytes = vec![0; message.payload_len()];
            endpoint.read(&mut message, &mut bytes).expect("a payload");
            let answer = endpoint.outgoing(message.channel()).expect("room");
            answer.attach_copy(&bytes).send().expect("sent");
            answered += 1;
        }
        crowd
    }

    /// Waits until the last of them has its payload.
    pub(crate) fn is_ready(&mut self) -> bool {
        (&mut self.output).lines().map_while(Result::ok).any(|line| line.ends_with("SAYS ready"))
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.wait();
    }
}
