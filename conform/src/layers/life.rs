//! One life of a host: what it serves, and whom it can reach.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cutthrough::am::{Body, Event, Failure, Node, Service, Settings};
use cutthrough::rma::{Owner, Region};
use cutthrough::rpc::{self, Answer, Client, Method};
use cutthrough::simulated::Network;
use cutthrough::{Channel, Config, Endpoint, Keys, SharedKey};

use super::calls::{Under, payload};
use super::pages::{Own, PAGE, SLOTS};
use super::watch::{Life as Name, Owned, Shared};
use crate::random::Random;
use crate::worlds::options::Options;
use crate::worlds::{address, host};

/// A number, and bytes.
pub(super) type Text = (u64, Vec<u8>);
pub(super) const ECHO: Method<Text, Text> = Method::new(1);
pub(super) const AGAIN: Method<Text, Text> = Method::new(2).idempotent();
pub(super) const LATER: Method<Text, Text> = Method::new(3);
/// Raw: answers with the bytes of the call, in pages or copied.
pub(super) const FETCH: u16 = 4;
/// Raw: takes the bytes of the call.
pub(super) const STORE: u16 = 5;
/// Raw: has somebody else do what [`FETCH`] does.
pub(super) const PASS: u16 = 6;

/// Answers that were put off.
type Put = Arc<Mutex<Vec<(u64, Answer<Text>)>>>;
/// Channels to others, by who they are.
pub(super) type Channels = Arc<Mutex<BTreeMap<usize, Channel>>>;

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A life.
pub(super) struct Life {
    pub(super) name: Name,
    pub(super) service: Arc<Service>,
    /// To each host, if there is one.
    pub(super) clients: Vec<Option<Client>>,
    pub(super) channels: Channels,
    pub(super) put_off: Put,
    pub(super) under: Vec<Under>,
    pub(super) own: Own,
    watch: Shared,
    _owner: Owner,
}

impl Life {
    pub(super) fn begin(name: Name, network: &Network, options: &Options, watch: &Shared) -> Self {
        let keys = options.sealed.then(|| Arc::new(Keys::Shared(SharedKey::from_bytes([7; 32]))));
        let config = Config {
            host: Some(network.host(host(name.0))),
            insecure: keys.is_none(),
            keys,
            slots: options.slots,
            pool_bytes: options.pool_bytes,
            staging_bytes: options.staging_bytes,
            silence: options.silence,
            deadline: Duration::from_secs(2),
            ..Config::default()
        };
        let (window, deadline) = (options.window, Duration::from_secs(1));
        let settings = Settings { window, serve: options.serve, deadline, ..Settings::default() };
        let mut node = Node::new(Endpoint::open(config).expect("an endpoint"), settings);
        let channels = Channels::default();
        let put_off = serve(&mut node, name, watch, &channels);
        let owner = Owner::new(&mut node);
        let region = Region::new(SLOTS * PAGE, u32::try_from(PAGE).unwrap_or_default());
        let key = owner.register(&region);
        watch.lock().owned.insert(name, Owned { region, key });
        node.listen(&address(name.0)).expect("a free port");
        let its = Arc::clone(&channels);
        let service = Service::spawn(node, move |event| {
            if let Event::Closed(ended, _) = event {
                lock(&its).retain(|_, channel| *channel != ended);
            }
        });
        let service = Arc::new(service.expect("a service"));
        let clients = vec![None; options.hosts];
        let (under, own) = (Vec::new(), Own::new());
        Self { name, service, clients, channels, put_off, under, own, watch: watch.clone(), _owner: owner }
    }

    /// A channel to another host, if there is one; else one is being opened.
    pub(super) fn channel(&self, to: usize) -> Option<Channel> {
        let known = lock(&self.channels).get(&to).copied();
        if known.is_none() {
            let its = Arc::clone(&self.channels);
            let then = move |outcome| {
                if let Ok(channel) = outcome {
                    lock(&its).insert(to, channel);
                }
            };
            let begun = self.service.with(|node| node.connect_then(&address(to), Duration::from_millis(500), then));
            if let Err(error) = begun {
                self.watch.lock().broken(format!("{:?} cannot call {to}: {error}", self.name));
            }
        }
        known
    }

    /// A client of another host; waits for it, if there is none yet.
    pub(super) fn client(&mut self, to: usize, within: Duration) -> Option<Client> {
        if self.clients[to].is_none() {
            self.clients[to] = Client::connect(Arc::clone(&self.service), &address(to), within).ok();
        }
        self.clients[to].clone()
    }

    /// Answers some of the calls that were put off, or forgets them.
    pub(super) fn answer(&self, random: &mut Random, all: bool) {
        let mut put_off = lock(&self.put_off);
        let mut answers = Vec::new();
        for (number, answer) in std::mem::take(&mut *put_off) {
            match random.below(8) {
                0..4 if !all => put_off.push((number, answer)),
                4 if !all => drop(answer),
                _ => answers.push((number, answer)),
            }
        }
        drop(put_off);
        for (number, answer) in answers {
            let bytes = self.watch.lock().answer(number);
            answer.give(Ok((number, bytes)));
        }
    }
}

/// Registers what a node serves: where it leaves answers that are put off.
fn serve(node: &mut Node, name: Name, watch: &Shared, channels: &Channels) -> Put {
    for method in [ECHO, AGAIN] {
        let watch = watch.clone();
        rpc::serve(node, method, move |(number, asked)| Ok((number, watch.lock().serves(number, name, Some(&asked)))));
    }
    let put_off = Put::default();
    let (its, sees) = (Arc::clone(&put_off), watch.clone());
    rpc::serve_later(node, LATER, move |(number, asked), answer| {
        sees.lock().serves(number, name, Some(&asked));
        lock(&its).push((number, answer));
    });
    let sees = watch.clone();
    rpc::serve_raw(node, FETCH, move |mut request| {
        let number = number(request.args());
        let bytes = sees.lock().serves(number, name, None);
        match request.page(bytes.len()) {
            Ok(mut page) if number.is_multiple_of(2) && !bytes.is_empty() => {
                page.copy_from_slice(&bytes);
                request.reply_with(&number.to_le_bytes(), Body::Page(page));
            }
            _ => request.reply_with(&number.to_le_bytes(), Body::Copy(&bytes)),
        }
    });
    let sees = watch.clone();
    rpc::serve_raw(node, STORE, move |mut request| {
        let number = number(request.args());
        let asked = payload(request.take_payload());
        match asked {
            Ok(asked) => drop(sees.lock().serves(number, name, Some(&asked))),
            Err(what) => sees.lock().broken(format!("{name:?} serves call {number}: {what}")),
        }
        request.reply_bytes(&number.to_le_bytes());
    });
    let (its, sees) = (Arc::clone(channels), watch.clone());
    rpc::serve_raw(node, PASS, move |request| {
        let number = number(request.args());
        let args = request.args().to_vec();
        let to = {
            let channels = lock(&its);
            let many = channels.len().max(1) as u64;
            channels.values().nth(usize::try_from(number % many).unwrap_or_default()).copied()
        };
        let Some(to) = to else { return request.fail(Failure::NoRoute) };
        match request.hand_over(to, FETCH, &args, Body::None) {
            Ok(()) => sees.lock().summary.handed_over += 1,
            Err((_, request)) => request.fail(Failure::NoRoute),
        }
    });
    put_off
}

fn number(args: &[u8]) -> u64 {
    args.first_chunk().map_or(u64::MAX, |bytes| u64::from_le_bytes(*bytes))
}
