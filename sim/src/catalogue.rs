//! What there is: every family of machines with its platforms and its experiments, in one list.
//!
//! This is the only file that names the families. Everything that asks for an experiment or a platform is handed a
//! [`Catalogue`], so that a test can hand it another one.

use crate::outcome::{Experiment, Line, Stripe};
use crate::platform::{Platform, PlatformError};
use crate::point::{Point, PointError, Query};
use crate::{atm, ethernet, splitc, staged};

/// Machines that are simulated by the same parts.
#[derive(Debug, Clone, Copy)]
pub struct Family {
    /// Values of `model` that it serves.
    pub models: &'static [&'static str],
    /// Its platforms: name, and text of the file.
    pub platforms: &'static [(&'static str, &'static str)],
    /// The results that it gives.
    pub experiments: fn() -> Vec<Experiment>,
    /// Answers one question about one of its platforms.
    pub point: fn(&Platform, &Query) -> Result<Point, PointError>,
    /// The rows and the pulses of the runs that answered it, where single pulses are kept.
    pub flow: Option<Flow>,
}

/// Names of rows, and the pulses in them.
pub type Pulses = (Vec<String>, Vec<Stripe>);

/// How pulses are asked for.
pub type Flow = fn(&Platform, &Query) -> Result<Pulses, PointError>;

/// All families that can be asked.
#[derive(Debug, Clone)]
pub struct Catalogue {
    families: Vec<Family>,
}

/// Rows of the table of results, by their first letters: Trapeze, Network I/O with Trapeze, SSAM, U-Net, Speculative
/// Defragmentation, today's machines.
const ROWS: &str = "TNSUDM";

/// Whether a figure that misses the paper's is one of those of which the documents say so, and why.
#[must_use]
pub fn is_known_miss(line: &Line) -> bool {
    atm::MISSED.contains(&(line.id.as_str(), line.what.as_str(), line.conditions.as_str()))
}

/// Whether a packet-flow graph comes of an experiment, before it has run.
#[must_use]
pub fn draws_flow(experiment: &Experiment) -> bool {
    staged::FLOWS.contains(&experiment.id)
}

impl Catalogue {
    /// Everything that is built in.
    #[must_use]
    pub fn built_in() -> Self {
        Self::of(vec![
            Family {
                models: staged::MODELS,
                platforms: staged::PLATFORMS,
                experiments: staged::experiments,
                point: staged::point,
                flow: Some(staged::flow),
            },
            Family {
                models: atm::MODELS,
                platforms: atm::PLATFORMS,
                experiments: atm::experiments,
                point: atm::point,
                flow: None,
            },
            Family {
                models: ethernet::MODELS,
                platforms: ethernet::PLATFORMS,
                experiments: ethernet::experiments,
                point: ethernet::point,
                flow: None,
            },
            Family {
                models: splitc::MODELS,
                platforms: splitc::PLATFORMS,
                experiments: splitc::experiments,
                point: splitc::point,
                flow: None,
            },
        ])
    }

    /// These families alone.
    #[must_use]
    pub fn of(families: Vec<Family>) -> Self {
        Self { families }
    }

    /// Every experiment, in the order of the table of results.
    #[must_use]
    pub fn experiments(&self) -> Vec<Experiment> {
        let mut all: Vec<Experiment> = self.families.iter().flat_map(|family| (family.experiments)()).collect();
        all.sort_by_key(|experiment| place(experiment.id));
        all
    }

    /// Every platform's name and the text of its file.
    pub fn platforms(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.families.iter().flat_map(|family| family.platforms.iter().copied())
    }

    /// The built-in platform of this name, if there is one.
    ///
    /// # Errors
    /// What is wrong with its file.
    pub fn platform(&self, name: &str) -> Option<Result<Platform, PlatformError>> {
        let (name, text) = self.platforms().find(|(known, _)| *known == name)?;
        Some(Platform::parse(text, &format!("{name}.toml")))
    }

    /// Asks the family that serves the platform's model.
    ///
    /// # Errors
    /// The model is unknown, the platform's file does not suit it, or it cannot do what is asked.
    pub fn point(&self, platform: &Platform, query: &Query) -> Result<Point, PointError> {
        (self.family(platform)?.point)(platform, query)
    }

    /// The rows and the pulses of the runs that answer it; none where the family keeps no single pulses.
    ///
    /// # Errors
    /// As for [`Catalogue::point`], or there are too many pulses to keep.
    pub fn flow(&self, platform: &Platform, query: &Query) -> Result<Option<Pulses>, PointError> {
        self.family(platform)?.flow.map(|flow| flow(platform, query)).transpose()
    }

    /// The family that serves the platform's model.
    fn family(&self, platform: &Platform) -> Result<&Family, PointError> {
        let family = self.families.iter().find(|family| family.models.contains(&platform.model()));
        family.ok_or_else(|| {
            let known: Vec<&str> = self.families.iter().flat_map(|family| family.models.iter().copied()).collect();
            platform.unknown_model(&known).into()
        })
    }
}

/// Where an experiment stands in the table: its row's letter, then its number.
fn place(id: &str) -> (usize, u32, &str) {
    let letter = id.chars().next().and_then(|letter| ROWS.find(letter)).unwrap_or(ROWS.len());
    let digits: String = id.chars().skip(1).take_while(char::is_ascii_digit).collect();
    (letter, digits.parse().unwrap_or(u32::MAX), id)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{Catalogue, Family, place};
    use crate::outcome::{Experiment, Outcome};
    use crate::platform::{Origin, Platform};
    use crate::point::{Point, PointError, Query};

    const PLATFORM: &str = "name = \"x\"\ntitle = \"X\"\nmodel = \"wire\"\n";

    fn family() -> Family {
        fn point(_: &Platform, query: &Query) -> Result<Point, PointError> {
            let bytes_per_s = query.payload as f64;
            Ok(Point { one_way_us: 1.0, bytes_per_s, stages: Vec::new(), events: 0 })
        }
        Family {
            models: &["wire"],
            platforms: &[("x", PLATFORM)],
            experiments: || {
                ["M1", "T10", "D1", "T2"].map(|id| Experiment { id, title: "a test", run: Outcome::default }).to_vec()
            },
            point,
            flow: None,
        }
    }

    fn query() -> Query {
        Query { firmware: "adaptive".parse().unwrap(), payload: 7, count: 1, senders: 1 }
    }

    #[test]
    fn experiments_stand_in_the_order_of_the_table() {
        let ids: Vec<_> = Catalogue::of(vec![family()]).experiments().iter().map(|found| found.id).collect();
        assert_eq!(ids, ["T2", "T10", "D1", "M1"]);
        assert!(place("Z1") > place("M9"));
    }

    #[test]
    fn the_family_of_the_model_is_asked() {
        let catalogue = Catalogue::of(vec![family()]);
        let platform = catalogue.platform("x").unwrap().unwrap();
        assert_eq!(catalogue.point(&platform, &query()).unwrap().bytes_per_s, 7.0);
        assert!(catalogue.platform("y").is_none());
    }

    #[test]
    fn an_unknown_model_is_refused_with_its_line() {
        let platform = Platform::parse(&PLATFORM.replace("wire", "tube"), "x.toml").unwrap();
        let error = Catalogue::of(vec![family()]).point(&platform, &query()).unwrap_err().to_string();
        assert_eq!(error, "x.toml:3: `model`: `tube` is unknown; known are wire");
    }

    #[test]
    fn what_is_built_in_has_names_of_its_own_and_good_platforms() {
        let catalogue = Catalogue::built_in();
        let ids: BTreeSet<_> = catalogue.experiments().iter().map(|found| found.id).collect();
        assert_eq!(ids.len(), catalogue.experiments().len());
        let names: BTreeSet<_> = catalogue.platforms().map(|(name, _)| name).collect();
        assert_eq!(names.len(), catalogue.platforms().count());
        for name in names {
            let platform = catalogue.platform(name).unwrap().unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(platform.name(), name);
            let fitted =
                platform.parameters().filter(|(_, found)| matches!(found.origin, Origin::Fitted { .. })).count();
            assert!(fitted <= 4, "{name} has {fitted} fitted parameters");
        }
    }

    /// A mistake in the name of a parameter must not pass unseen.
    #[test]
    fn no_built_in_model_takes_a_stray_parameter() {
        let catalogue = Catalogue::built_in();
        for (name, text) in catalogue.platforms() {
            let text = format!("{text}\n[stray.parameter]\nvalue = 1\nunit = \"us\"\nsource = \"a test\"\n");
            let platform = Platform::parse(&text, name).unwrap();
            let refused = ["adaptive", "vendor", "kernel"].iter().any(|firmware| {
                let query = Query { firmware: firmware.parse().unwrap(), ..query() };
                catalogue.point(&platform, &query).is_err_and(|error| error.to_string().contains("`stray.parameter`"))
            });
            assert!(refused, "{name} takes a stray parameter");
        }
    }
}
