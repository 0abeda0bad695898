//! Payloads of the rarer kinds: lists of runs, what a token names, what has to be fetched, what was dropped.

use cutthrough_engine::check::{self, Breach};
use cutthrough_engine::time::Instant;
use cutthrough_engine::token::Refused;
use cutthrough_segment::page::{Landed, Release, Releases, Runs};
use cutthrough_segment::ring::Impossible;
use cutthrough_wire::run::Run;
use cutthrough_wire::slot::{Header, Kind};

use super::token;
use crate::incoming::{Incoming, Payload};
use crate::shm::link::Link;
use crate::shm::pages::Place;
use crate::shm::share::{self, Share};
use crate::stat::Stat;

impl Link {
    /// Takes a message whose payload is of another kind than [`Link::unload`] knows: a list of runs, one that has to be
    /// fetched or waited for, or one that was dropped.
    pub(crate) fn take_other(&mut self, words: [u64; 3], stat: &Stat) -> Result<Option<Incoming>, Breach> {
        let mut header = check::header(words)?;
        // Before this message is taken: with it the words of its list are the sender's again.
        self.took();
        let control = self.consumer.take_control();
        let payload = match header.kind {
            Kind::Control => Payload::None,
            Kind::Reference => self.referred(&header)?,
            Kind::Put => self.filled(&header)?,
            Kind::PutToken => self.filled_elsewhere(&header)?,
            Kind::GetToken | Kind::Share => self.fetch(&mut header, stat)?,
            Kind::Dropped => self.dropped(&header),
            Kind::Staged | Kind::StagedToken => {
                let arrival = self.begin(control, header, stat);
                self.inbox.mark();
                return arrival;
            }
        };
        Ok(Some(self.arrival(control, &header, payload, Instant::default(), stat)))
    }

    /// The list of a payload's runs.
    fn list(&mut self, header: &Header) -> Result<Vec<Run>, Breach> {
        Ok(self.words(u64::from(header.runs))?.into_iter().map(Run::from_word).collect())
    }

    /// The next words of the run ring, which the slot has announced.
    fn words(&mut self, count: u64) -> Result<Vec<u64>, Breach> {
        let runs = &mut self.inbox.runs;
        runs.refresh(runs.taken().wrapping_add(count)).map_err(|Impossible| Breach::Index)?;
        let words = std::iter::from_fn(|| runs.pop()).collect();
        // The sender learns of room in the run ring by this counter alone, and lists fill that ring long before their
        // messages fill the ring of slots.
        self.reported = self.consumer.taken();
        self.report();
        Ok(words)
    }

    /// Checks runs of the peer's pool, and that they hold the payload; they are lent until they are returned.
    fn pool_runs(&mut self, list: &[Run], header: &Header) -> Result<Runs, Breach> {
        let pages = list
            .iter()
            .try_fold(0, |pages, run| Ok(pages + u64::from(check::run(*run, self.peer_sizes.pool_pages)?.count)))?;
        check::covered(header.payload_len, pages, self.peer_sizes.page_bytes)?;
        self.traffic.borrow()?;
        Ok(Runs::Many(list.iter().map(|run| (run.first, run.count)).collect()))
    }

    fn referred(&mut self, header: &Header) -> Result<Payload, Breach> {
        let list = self.list(header)?;
        let runs = self.pool_runs(&list, header)?;
        let release = Releases::One(Release::Lend { number: header.name });
        let ground = self.traffic.peer_ground.take();
        Ok(Payload::Landed(Landed::new(ground, runs, header.payload_len as usize, release)))
    }

    fn filled(&mut self, header: &Header) -> Result<Payload, Breach> {
        let list = self.list(header)?;
        let mut runs = Vec::with_capacity(list.len());
        for run in &list {
            runs.push(self.traffic.fill(*run)?);
        }
        let pages = runs.iter().map(|run| u64::from(run.1)).sum();
        check::covered(header.payload_len, pages, self.sizes.page_bytes)?;
        let release = Releases::Many(list.into_iter().map(|run| Release::Posted { id: run.id }).collect());
        let ground = self.traffic.landing_ground.take();
        Ok(Payload::Landed(Landed::new(ground, Runs::Many(runs), header.payload_len as usize, release)))
    }

    /// The sender says that it has filled the place of a token which names none that it could fill.
    fn filled_elsewhere(&self, header: &Header) -> Result<Payload, Breach> {
        match self.traffic.tokens.look(token(header.detail, header.name)) {
            Ok(_) => Err(Breach::Descriptor),
            Err(refused) => Ok(Payload::Dropped(refused)),
        }
    }

    /// Fetches a payload from the peer's pages to where the token says, and gives the pages back. Where both sides
    /// copy, the kind becomes that of a payload which one of them has copied alone, if it is so.
    fn fetch(&mut self, header: &mut Header, stat: &Stat) -> Result<Payload, Breach> {
        let words = self.words(u64::from(header.runs) + 2)?;
        let token = token(words[0], words[1]);
        let list: Vec<_> = words[2..].iter().map(|word| Run::from_word(*word)).collect();
        let runs = self.pool_runs(&list, header)?;
        let release = Releases::One(Release::Lend { number: header.name });
        let ground = self.traffic.peer_ground.take();
        let source = Landed::new(ground, runs, header.payload_len as usize, release);
        let len = source.len();
        let page_bytes = self.sizes.page_bytes as usize;
        let fits = self.traffic.tokens.look(token).map(|place| match place {
            Place::Pages { count, .. } => len <= *count as usize * page_bytes,
            Place::Buffer(buffer) => len <= buffer.len(),
        });
        match fits {
            Err(refused) => return Ok(Payload::Dropped(refused)),
            Ok(false) => return Ok(Payload::Dropped(Refused::TooLong)),
            Ok(true) => {}
        }
        self.own.clear_token(token.index);
        let kind = std::mem::replace(&mut header.kind, Kind::GetToken);
        let mut copied = len as u64;
        let payload = match self.traffic.tokens.redeem(token) {
            Ok(Place::Buffer(mut buffer)) => {
                buffer.truncate(len);
                source.read_at(0, &mut buffer);
                Payload::Buffer(buffer)
            }
            Ok(Place::Pages { first, count, .. }) => {
                let ground = self.traffic.landing_ground.take();
                let to_offset = u64::from(first) * u64::from(self.sizes.page_bytes);
                if kind == Kind::Share {
                    let (from, to) = (source.place(), self.own.landing().clone());
                    let share = Share { from, to, to_offset, len: u64::from(header.payload_len) };
                    copied = share.receive(self.consumer.taken(), &self.own, &self.peer);
                    header.kind = match copied {
                        0 => Kind::Put,
                        all if all == share.len => Kind::GetToken,
                        _ => Kind::Share,
                    };
                } else {
                    source.copy_to(0, source.len(), self.own.landing(), to_offset);
                }
                let release = Releases::One(Release::Landing { first, count });
                Payload::Landed(Landed::new(ground, Runs::One(first, count), len, release))
            }
            Err(refused) => return Ok(Payload::Dropped(refused)),
        };
        share::count(copied, stat);
        Ok(payload)
    }

    /// The sender dropped the payload itself, because the token was not good when it looked. Our own table knows why.
    /// A token of pages that is good here and was not there had been revoked for a moment ([`RevokeError::InFlight`]):
    /// nothing is on its way any more, so it is revoked now, for whoever was told to wait for this message.
    ///
    /// [`RevokeError::InFlight`]: crate::shm::grant::RevokeError::InFlight
    fn dropped(&mut self, header: &Header) -> Payload {
        let token = token(header.detail, header.name);
        let too_long = header.detail >> 32 & 1 == 1;
        let refused = match self.traffic.tokens.look(token) {
            Err(refused) => refused,
            Ok(_) if too_long => Refused::TooLong,
            // Nobody claims a token of private memory, so nobody was told to wait for it.
            Ok(Place::Buffer(_)) => Refused::Revoked,
            Ok(Place::Pages { .. }) => {
                self.own.clear_token(token.index);
                if let Ok(place) = self.traffic.tokens.revoke(token) {
                    self.put_back(&place);
                }
                Refused::Revoked
            }
        };
        Payload::Dropped(refused)
    }
}
