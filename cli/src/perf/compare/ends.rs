//! The other ends of both sides, and what lies between.

use crate::args::{Across, Adapter, CompareArgs, Measure};
use crate::failure::Failure;
use crate::machine::Machine;
use crate::perf::measure::other_end;
use crate::perf::peer::{Peer, cores};
use crate::perf::way::{Seal, Way};

/// The other ends of both sides: one, unless the sides have different adapters, or one side seals and the other one
/// does not, for an other end has one adapter, and seals on all of its lanes or on none.
#[derive(Debug)]
pub struct Ends {
    peers: Vec<Peer>,
    /// How A seals, and B.
    pub seals: [Seal; 2],
    /// What carries the messages of A, and of B, for people.
    carriers: [String; 2],
    /// Whether what one side has open would be in the other one's way: then each opens anew in each round.
    pub anew: bool,
}

impl Ends {
    /// Finds or starts them, at the end of this way, which is that of A.
    ///
    /// # Errors
    /// If one of them cannot be found or started, or the options of B cannot be served.
    pub fn find(args: &CompareArgs, sides: [&Measure; 2], way: &mut Way) -> Result<Self, Failure> {
        let mut peers = vec![other_end(&args.common, way)?];
        let (adapter, carrier, seal, narrow) = (way.adapter, way.carrier(), way.seal.clone(), way.is_narrow());
        let apart = !alike(sides.map(|side| &side.across), args)?;
        way.turn_to(&sides[1].across, args.common.far.peer.as_deref(), apart)?;
        if apart {
            peers.push(Peer::start(cores().second, way)?);
        }
        let narrow = narrow || way.is_narrow();
        let rings = [adapter, way.adapter].iter().any(|adapter| matches!(adapter, Adapter::Packet | Adapter::Net));
        Ok(Self {
            peers,
            seals: [seal, way.seal.clone()],
            carriers: [carrier, way.carrier()],
            anew: narrow || (rings && adapter != way.adapter),
        })
    }

    /// The other end of a side.
    pub fn of(&mut self, side: usize) -> &mut Peer {
        let at = side.min(self.peers.len() - 1);
        &mut self.peers[at]
    }

    /// What stands above a table for people.
    #[must_use]
    pub fn head(&self, way: &Way, machine: &Machine) -> String {
        let [a, b] = &self.carriers;
        let [of_a, of_b] = self.seals.each_ref().map(Seal::in_words);
        let with = |carrier: &str, seal: &str| {
            if seal.is_empty() { carrier.to_owned() } else { format!("{carrier} ({seal})") }
        };
        match (a == b, of_a == of_b) {
            (true, true) => way.head_of(machine, a, of_a),
            (true, false) => way.head_of(machine, a, &format!("A {of_a}, B {of_b}")),
            (false, true) => way.head_of(machine, &format!("A {a}, B {b}"), of_a),
            (false, false) => way.head_of(machine, &format!("A {}, B {}", with(a, of_a), with(b, of_b)), ""),
        }
    }
}

/// Whether both sides can have one other end.
fn alike([a, b]: [&Across; 2], args: &CompareArgs) -> Result<bool, Failure> {
    let address = args.common.far.peer.as_deref();
    Ok(seal_alike([a, b]) && a.adapter(address)? == b.adapter(address)?)
}

/// Whether both sides seal with the same keys, or neither does.
#[must_use]
pub fn seal_alike([a, b]: [&Across; 2]) -> bool {
    (a.seal, &a.key) == (b.seal, &b.key)
}
