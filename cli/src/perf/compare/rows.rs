//! Which rows of `perf am` and `perf rpc` are compared, in which sizes, and where their payloads are kept.

use clap::ValueEnum;

use crate::args::{CompareArgs, CompareTest, Measure, Memory};
use crate::failure::Failure;
use crate::hint;
use crate::perf::am::ground::Plan;
use crate::perf::am::{self, AmRow, MEDIUM_BYTES, STORES};
use crate::perf::rpc::{self, FETCHED, PAGES, RpcRow};
use crate::perf::way::is_narrow;
use crate::units::Size;

/// The rows of both sides.
///
/// # Errors
/// If there is none of a name, one cannot be compared, or an option is not that of a row.
pub fn of(args: &CompareArgs, sides: [&Measure; 2]) -> Result<[Vec<Plan>; 2], Failure> {
    // Where one side says in which memory its payloads are, only rows with payloads are meant.
    let payloads = sides.iter().any(|side| side.memory.is_some());
    let [a, b] = if args.test == CompareTest::Am {
        let rows = asked(&args.rows, "am")?;
        sides.map(|side| of_am(&rows, side, payloads))
    } else {
        let rows = asked(&args.rows, "rpc")?;
        if payloads && sides.iter().any(|side| side.memory.is_none()) {
            return Err(Failure::new(
                "a side without --memory fetches its pages in both ways, and the other one does not",
                "give --memory pool or --memory reference to both sides",
            ));
        }
        sides.map(|side| of_rpc(&rows, side, payloads))
    };
    let mut plans = [a?, b?];
    let address = args.common.far.peer.as_deref();
    for side in sides {
        let narrow = is_narrow(side.across.adapter(address)?, side.across.net_xdp);
        // Where all rows are asked for, these are left out that cannot be.
        if args.rows.is_empty() {
            plans.iter_mut().for_each(|plans| plans.retain(|plan| plan.fits(narrow).is_ok()));
        }
        plans.iter().flatten().try_for_each(|plan| plan.fits(narrow))?;
    }
    Ok(plans)
}

/// The rows of these names.
fn asked<R: ValueEnum + PartialEq>(names: &[String], test: &str) -> Result<Vec<R>, Failure> {
    let of_name = |name: &String| {
        R::from_str(name, false).map_err(|_| {
            let all = R::value_variants().iter().filter_map(ValueEnum::to_possible_value);
            let all: Vec<String> = all.map(|row| row.get_name().to_owned()).collect();
            Failure::new(format!("perf {test} has no row {name:?}"), format!("give --rows of {}", all.join(", ")))
        })
    };
    names.iter().map(of_name).collect()
}

/// What `--memory` is said of and cannot be.
fn without_payload(row: &str, others: &str) -> Failure {
    Failure::new(
        format!("--memory says where payloads are kept, and the row {row} has none"),
        format!("leave --memory away, or give --rows {others}"),
    )
}

fn of_am(asked: &[AmRow], options: &Measure, payloads: bool) -> Result<Vec<Plan>, Failure> {
    let memory = options.memory.unwrap_or(Memory::Private);
    if memory == Memory::Pool {
        return Err(Failure::new(
            "with --memory pool a sender writes to a page of its receiver, and requests name none",
            "give --memory private or --memory reference",
        ));
    }
    let rows = match asked {
        [] if payloads => &[AmRow::Medium, AmRow::Store][..],
        [] => &[AmRow::Short, AmRow::Medium, AmRow::Store, AmRow::Rate],
        some => some,
    };
    let mut plans = Vec::new();
    for row in rows {
        match row {
            AmRow::Short | AmRow::Rate if payloads => {
                return Err(without_payload(if *row == AmRow::Short { "short" } else { "rate" }, "medium,store"));
            }
            AmRow::Short => plans.push(am::short(options)?),
            AmRow::Rate => plans.push(am::rate(options)?),
            AmRow::Medium => {
                let fitting: Vec<Size> = or(&options.size, &[Size(MEDIUM_BYTES)])
                    .iter()
                    .filter(|size| size.0 <= MEDIUM_BYTES)
                    .copied()
                    .collect();
                if fitting.is_empty() && !asked.is_empty() {
                    return Err(Failure::new(
                        format!("the row medium has payloads of up to {}", Size(MEDIUM_BYTES)),
                        "give a smaller --size, or --rows store",
                    ));
                }
                for size in fitting {
                    plans.push(am::medium(options, size.0, memory)?);
                }
            }
            AmRow::Store => {
                for size in or(&options.size, &STORES) {
                    plans.push(am::store(options, size.0, memory)?);
                }
            }
            AmRow::Pages => {
                return Err(Failure::new(
                    "the row pages is a batch that is timed as a whole, too long for a round of a comparison",
                    format!("give other --rows, and measure it by '{}'", hint::command("perf am pages")),
                ));
            }
        }
    }
    Ok(plans)
}

fn of_rpc(asked: &[RpcRow], options: &Measure, payloads: bool) -> Result<Vec<Plan>, Failure> {
    let ways = match options.memory {
        None => FETCHED.to_vec(),
        Some(Memory::Private) => {
            return Err(Failure::new(
                "pages that are fetched by a call come by put or by reference, and to no private memory",
                "give --memory pool or --memory reference",
            ));
        }
        Some(way) => vec![way],
    };
    let rows = match asked {
        [] if payloads => &[RpcRow::Fetch, RpcRow::AmFetch][..],
        [] => RpcRow::value_variants(),
        some => some,
    };
    let mut plans = Vec::new();
    for row in rows {
        match row {
            RpcRow::Fetch | RpcRow::AmFetch => {
                plans.extend(rpc::fetches(*row, options, or(&options.size, &PAGES), &ways)?);
            }
            row if payloads => {
                let name = row.to_possible_value().map(|value| value.get_name().to_owned());
                return Err(without_payload(&name.unwrap_or_default(), "fetch,am-fetch"));
            }
            row => plans.push(rpc::call(*row, options)?),
        }
    }
    Ok(plans)
}

/// The sizes that are asked for, or these.
fn or<'a>(asked: &'a [Size], default: &'a [Size]) -> &'a [Size] {
    if asked.is_empty() { default } else { asked }
}

/// The name of a row that is compared with that one: without what tells the one from the other.
#[must_use]
pub fn name(a: &'static str, b: &'static str) -> &'static str {
    let base = |name: &'static str| name.strip_suffix("_put").or(name.strip_suffix("_reference")).unwrap_or(name);
    if a == b { a } else { base(a) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is compared, with the memory of A: names and sizes.
    fn compared(test: CompareTest, rows: &[&str], sides: [&str; 2]) -> Result<Vec<(String, u64, Memory)>, String> {
        let rows = rows.iter().map(ToString::to_string).collect();
        let args = CompareArgs { test, a: sides[0].into(), b: sides[1].into(), rows, common: Measure::default() };
        let (a, b) = args.sides().map_err(|failure| failure.to_string())?;
        let [a, b] = of(&args, [&a, &b]).map_err(|failure| failure.to_string())?;
        assert_eq!(a.len(), b.len());
        let shown = |(a, b): (&Plan, &Plan)| (name(a.row.what, b.row.what).to_owned(), a.size.0, a.case.shape.memory);
        Ok(a.iter().zip(&b).map(shown).collect())
    }

    fn names(test: CompareTest, rows: &[&str], sides: [&str; 2]) -> String {
        let rows = compared(test, rows, sides).unwrap_or_else(|why| panic!("{why}"));
        rows.iter().map(|(name, size, _)| format!("{name} {size}")).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn every_row_that_can_be_is_compared() {
        let all = "short 64, medium 4096, store 65536, store 1048576, rate 16";
        assert_eq!(names(CompareTest::Am, &[], ["", "--policy fixed:8192"]), all);
        let sized = ["--size 64,8KiB", "--size 64,8KiB"];
        assert_eq!(names(CompareTest::Am, &[], sized), "short 64, medium 64, store 64, store 8192, rate 16");
        let all = "raw 64, tokio 64, tasks 64, typed 64, served 64, shared 64, fetch_put 8192, fetch_reference 8192, \
                   am_call 64, am_fetch_put 8192, am_fetch_reference 8192";
        assert_eq!(names(CompareTest::Rpc, &[], ["", ""]), all);
        assert_eq!(names(CompareTest::Rpc, &["raw", "am_call"], ["", ""]), "raw 64, am_call 64");
    }

    #[test]
    fn memory_is_that_of_payloads() {
        let sides = ["--size 64 --memory private", "--size 64 --memory reference"];
        let expected = ["medium", "store"].map(|name| (name.to_owned(), 64, Memory::Private));
        assert_eq!(compared(CompareTest::Am, &[], sides), Ok(expected.into()));
        let sides = ["--memory reference", "--memory pool"];
        let expected = ["fetch", "am_fetch"].map(|name| (name.to_owned(), 8192, Memory::Reference));
        assert_eq!(compared(CompareTest::Rpc, &[], sides), Ok(expected.into()));
    }

    /// A client of calls has an endpoint beside the node that ends the attendance.
    #[test]
    fn rows_with_two_endpoints_are_left_out_where_there_is_one_ring() {
        let sides = ["--adapter udp --memory pool", "--adapter xdp --memory pool"];
        assert_eq!(names(CompareTest::Rpc, &[], sides), "am_fetch_put 8192");
        let why = compared(CompareTest::Rpc, &["raw"], ["--adapter net --net-xdp", ""]).expect_err("two endpoints");
        assert!(why.starts_with("the row raw has two endpoints at a time") && why.contains("; ask for other"), "{why}");
    }

    #[test]
    fn what_cannot_be_compared_is_refused() {
        use CompareTest::{Am, Rpc};
        for (test, rows, sides, what) in [
            (Am, &["pages"][..], ["", ""], "timed as a whole"),
            (Am, &["raw"], ["", ""], "perf am has no row \"raw\"; give --rows of short, medium, store, rate, pages"),
            (Am, &[], ["--memory pool", ""], "requests name none"),
            (Am, &["short"], ["--memory reference", ""], "the row short has none"),
            (Am, &["medium"], ["--size 8KiB", "--size 8KiB"], "up to 4 KiB"),
            (Rpc, &[], ["--memory private", "--memory pool"], "no private memory"),
            (Rpc, &[], ["--memory pool", ""], "to both sides"),
            (Rpc, &["raw", "fetch"], ["--memory pool", "--memory pool"], "the row raw has none"),
        ] {
            let why = compared(test, rows, sides).expect_err(what);
            assert!(why.contains(what) && why.contains("; "), "{why}");
        }
    }
}
