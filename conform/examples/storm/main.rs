//! Processes that send each other whatever there is to send, while they are killed, stopped and started anew: a soak
//! test, for as long as you like.
//!
//! `cargo run --release -p cutthrough-conform --example storm -- [SECONDS [PROCESSES [SEED [shm|udp|both]]]]`
//!
//! What each process does, and what it fails for, is told in [`cutthrough_conform::storm`]. The process that has
//! started them kills one of them now and then, or stops it for a while, and fails if one of them does, falls silent,
//! or does not end when it is told to.

use std::env;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use cutthrough::{Config, Endpoint};
use cutthrough_conform::join::free_udp_address;
use cutthrough_conform::random::Random;
use cutthrough_conform::storm::{Node, REST_TIME, SILENCE};
use rustix::process::{Pid, Signal, kill_process};

/// The longest stop.
const STOP_MS: u64 = 250;

/// The lines of a text, as they come.
fn lines(text: impl std::io::Read + Send + 'static) -> Receiver<String> {
    let (tell, told) = channel();
    thread::spawn(move || BufReader::new(text).lines().map_while(Result::ok).all(|line| tell.send(line).is_ok()));
    told
}

/// A process as the one knows it that has started it.
struct Started {
    child: Child,
    told: Receiver<String>,
    heard: Instant,
    counts: (u64, u64),
}

impl Started {
    fn start(seed: u64, own: &str, others: &str) -> Self {
        let mut command = Command::new(env::current_exe().expect("this program"));
        command.args(["node", &seed.to_string(), own, others]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("a process");
        let told = lines(child.stdout.take().expect("a pipe"));
        Self { child, told, heard: Instant::now(), counts: (0, 0) }
    }

    fn look(&mut self) {
        for line in self.told.try_iter() {
            self.heard = Instant::now();
            let mut numbers = line.split(' ').map_while(|number| number.parse().ok());
            self.counts = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        }
        assert!(self.heard.elapsed() < SILENCE, "process {} is silent", self.child.id());
        let over = self.child.try_wait().expect("a child");
        assert!(over.is_none(), "process {} has ended: {over:?}", self.child.id());
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).expect("a process")).expect("not 0");
        kill_process(pid, signal).expect("a child of ours");
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The number of this process, its seed, its addresses and those of the others.
fn child(args: &[String]) -> ! {
    let [seed, own, others] = args else { panic!("storm node SEED OWN OTHERS") };
    let config = Config { insecure: true, silence: Duration::from_secs(2), ..Config::default() };
    let mut endpoint = Endpoint::open(config.clone()).expect("an endpoint");
    for address in own.split(',') {
        let begun = Instant::now();
        // The port of one that was killed a moment ago.
        while let Err(error) = endpoint.listen(address) {
            assert!(begun.elapsed() < SILENCE, "{address}: {error}");
            thread::sleep(Duration::from_millis(5));
        }
    }
    let others = others.split(',').map(str::to_owned).collect();
    let mut node = Node::new(endpoint, Random(seed.parse().expect("a number")), others);
    let tells = |node: &Node| println!("{} {}", node.counts().0, node.counts().1);
    let stopping = lines(std::io::stdin());
    let mut told = Instant::now();
    while stopping.try_recv() != Err(std::sync::mpsc::TryRecvError::Disconnected) {
        let begun = Instant::now();
        let sleeps = node.act();
        let took = begun.elapsed();
        assert!(took < SILENCE, "{took:?} for one operation");
        thread::sleep(sleeps);
        if node.random.one_in(200) {
            let longest = Duration::from_millis(node.random.below(20));
            node.wait(longest).into_iter().for_each(|event| node.hear(event));
        }
        for _ in 0..node.random.below(4) {
            let Some(event) = node.poll() else { break };
            node.hear(event);
        }
        if told.elapsed() > Duration::from_millis(500) {
            told = Instant::now();
            tells(&node);
        }
    }
    rest(&mut node, &config);
    // Says goodbye, and hears what is on its way.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(1) || begun.elapsed() < SILENCE / 2 && node.has_channels() {
        node.close_all();
        while let Some(event) = node.poll() {
            node.hear(event);
        }
    }
    let files = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    assert!(files < 300, "{files} files are open");
    tells(&node);
    // Not in good order, where somebody was not told goodbye.
    std::process::exit(0)
}

/// Comes to rest on all channels.
fn rest(node: &mut Node, config: &Config) {
    let begun = Instant::now();
    let mut late = Vec::new();
    while begun.elapsed() < REST_TIME {
        late = node.rests(config);
        // Others may be about to call.
        if late.is_empty() && begun.elapsed() > REST_TIME / 6 {
            return;
        }
        for _ in 0..100 {
            match node.poll() {
                Some(event) => node.hear(event),
                None => break,
            }
        }
        thread::sleep(Duration::from_millis(1));
    }
    assert!(late.is_empty(), "after {REST_TIME:?} of rest: {late:#?}");
}

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    if args.first().is_some_and(|first| first == "node") {
        child(&args[1..]);
    }
    let number = |at: usize, or: u64| args.get(at).map_or(or, |text| text.parse().expect("a number"));
    let (seconds, count, seed) = (number(0, 60), number(1, 4), number(2, 1));
    let over = args.get(3).map_or("both", String::as_str);
    let mut random = Random(seed);
    let own: Vec<String> = (0..count)
        .map(|k| {
            let memory = format!("shm:storm-{}-{k}", std::process::id());
            let network = format!("udp:{}", free_udp_address());
            match over {
                "shm" => memory,
                "udp" => network,
                _ => format!("{memory},{network}"),
            }
        })
        .collect();
    let others = |k: usize| {
        let others = own.iter().enumerate().filter(|(other, _)| *other != k);
        others.map(|(_, address)| address.as_str()).collect::<Vec<_>>().join(",")
    };
    let mut nodes: Vec<Started> = (0..own.len()).map(|k| Started::start(random.draw(), &own[k], &others(k))).collect();
    let (begun, mut killed, mut stopped, mut shown, mut gone) = (Instant::now(), 0, 0, 0, (0, 0));
    while begun.elapsed() < Duration::from_secs(seconds) {
        thread::sleep(Duration::from_millis(20 + random.below(200)));
        let k = usize::try_from(random.below(nodes.len() as u64)).unwrap_or(0);
        match random.below(4) {
            0 => {
                nodes[k].signal(Signal::KILL);
                gone = (gone.0 + nodes[k].counts.0, gone.1 + nodes[k].counts.1);
                nodes[k] = Started::start(random.draw(), &own[k], &others(k));
                killed += 1;
            }
            1 => {
                nodes[k].signal(Signal::STOP);
                thread::sleep(Duration::from_millis(random.below(STOP_MS)));
                nodes[k].signal(Signal::CONT);
                stopped += 1;
            }
            _ => {}
        }
        nodes.iter_mut().for_each(Started::look);
        let (messages, bytes) = nodes.iter().fold(gone, |sum, node| (sum.0 + node.counts.0, sum.1 + node.counts.1));
        if begun.elapsed().as_secs() / 10 > shown {
            shown = begun.elapsed().as_secs() / 10;
            let mib = bytes >> 20;
            println!("{} s: {messages} messages, {mib} MiB, {killed} killed, {stopped} stopped", shown * 10);
            let _ = std::io::stdout().flush();
        }
    }
    let (messages, bytes) = nodes.iter().fold(gone, |sum, node| (sum.0 + node.counts.0, sum.1 + node.counts.1));
    println!("{seconds} s: {messages} messages, {} MiB, the end", bytes >> 20);
    assert!(messages > 10 * seconds, "hardly anybody has said anything");
    for node in &mut nodes {
        drop(node.child.stdin.take());
    }
    for node in &mut nodes {
        let begun = Instant::now();
        let over = loop {
            match node.child.try_wait().expect("a child") {
                Some(over) => break over,
                None if begun.elapsed() > 2 * SILENCE => panic!("process {} does not end", node.child.id()),
                None => thread::sleep(Duration::from_millis(10)),
            }
        };
        assert!(over.success(), "process {} has ended: {over}", node.child.id());
    }
    println!("all well");
    ExitCode::SUCCESS
}
