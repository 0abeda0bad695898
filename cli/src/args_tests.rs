//! The command line as users write it, right and wrong.

use clap::CommandFactory;

use super::*;

fn read(line: &str) -> Result<Parsed, Failure> {
    parse(line.split_whitespace().map(OsString::from))
}

fn command(line: &str) -> Command {
    match read(line) {
        Ok(Parsed::Run(cli)) => cli.command,
        other => panic!("{line}: {other:?}"),
    }
}

fn refusal(line: &str) -> String {
    match read(line) {
        Err(failure) => failure.to_string(),
        Ok(other) => panic!("{line} was accepted: {other:?}"),
    }
}

#[test]
fn the_definition_is_consistent() {
    Cli::command().debug_assert();
    super::compare::Side::command().debug_assert();
}

/// On the terminal of a newcomer, and without a line that is cut where it was not meant to be.
#[test]
fn every_help_fits_into_80_columns() {
    fn check(command: &mut clap::Command) {
        let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        for text in [after, command.render_help().to_string(), command.render_long_help().to_string()] {
            for line in text.lines() {
                assert!(line.chars().count() <= 80, "{}: {line}", command.get_name());
            }
        }
        command.get_subcommands_mut().for_each(check);
    }
    let mut command = Cli::command();
    command.build();
    check(&mut command);
}

/// Who reads counters has to know what they count, and of when they are.
#[test]
fn the_help_of_stat_says_what_its_numbers_are() {
    let Ok(Parsed::Print(text)) = read("cutthrough stat --help") else { panic!("no help") };
    for said in ["cutthrough::Counter", "frames_lost are frames taken for lost", "every 20 ms", "wrote last"] {
        assert!(text.contains(said), "{said}: {text}");
    }
}

/// Whatever the program is called.
#[test]
fn what_is_missing_is_named() {
    for name in ["cutthrough", "/opt/other"] {
        assert!(refusal(name).starts_with("no command given; "));
        assert!(refusal(&format!("{name} perf")).starts_with("no test is named; try 'cutthrough perf lat'"));
        assert!(refusal(&format!("{name} perf limits x")).ends_with("'[LIMIT]...'; add '--help' to see what there is"));
        assert!(refusal(&format!("{name} perf x")).ends_with("; write '--help' in its place to see what there is"));
    }
}

#[test]
fn numbers_that_are_too_small_or_too_large_are_told_in_words() {
    let said = |line: &str| refusal(&format!("cutthrough {line}"));
    assert!(said("perf lat --count 0").contains("'--count <N>': write a number from 1 on; "));
    assert!(said("perf lat --count x").contains("'--count <N>': write a whole number; "));
    assert!(said("perf incast --senders 0").contains("'--senders <N>': write a number from 1 to 256; "));
    let seconds = "above 0, such as 0.5 or 10, and 86400 (a day) at most; ";
    for wrong in ["1e30", "86401", "0"] {
        assert!(said(&format!("perf lat --seconds {wrong}")).contains(seconds));
    }
    command("cutthrough perf lat --seconds 86400");
    assert!(said("sim fault --seed 9007199254740992").contains("from 0 on, and below 9007199254740992; "));
}

#[test]
fn every_command_is_read() {
    assert!(matches!(command("cutthrough info"), Command::Info));
    let Command::Demo(demo) = command("cutthrough demo --file /etc/hosts --svg out.svg") else {
        panic!("not demo");
    };
    assert_eq!(demo.file, Some("/etc/hosts".into()));
    assert_eq!(demo.svg, Some("out.svg".into()));
    for test in ["limits", "lat", "bw", "rate", "fetch", "sweep"] {
        let line = format!("cutthrough perf {test} --size 64,8KiB --seconds 0.5 --json");
        assert!(matches!(command(&line), Command::Perf { .. }), "{line}");
    }
    command("cutthrough perf serve --listen shm:bench");
    command("cutthrough lease xdp:10.0.0.1:7000 --user 1000 --at /run/ring.sock --queue 3");
    for line in ["stat", "stat --watch", "stat --watch 0.5 --pid 7", "stat --peer shm:bench", "perf wake", "perf idle"]
    {
        command(&format!("cutthrough {line}"));
    }
}

#[test]
fn sim_takes_names_or_a_command() {
    let Command::Sim(args) = command("cutthrough sim T1 N2 --check --out report --trace burst.json") else {
        panic!("not sim");
    };
    assert_eq!((args.ids, args.results.check), (vec!["T1".to_owned(), "N2".to_owned()], true));
    assert!(matches!(command("cutthrough sim list"), Command::Sim(SimArgs { command: Some(SimCommand::List), .. })));
    let Command::Sim(all) = command("cutthrough sim all --out report --check") else { panic!("not sim") };
    assert!(matches!(all.command, Some(SimCommand::All(SimResults { out: Some(_), check: true, trace: None }))));
    let line = "cutthrough sim point --platform x.toml --policy adaptive:384:512 --payload 8KiB --senders 4";
    let Command::Sim(SimArgs { command: Some(SimCommand::Point(point)), .. }) = command(line) else {
        panic!("not point");
    };
    assert_eq!((point.payload, point.count, point.senders), (Size(8192), 1, 4));
}

#[test]
fn the_common_options_are_read() {
    let line = "cutthrough perf lat --adapter shm --size 64,8KiB,1MiB --policy fixed:8192 --count 10 \
                --peer shm:other --memory pool --warmup 5 --seed 7";
    let Command::Perf { test: PerfTest::Lat(measure) } = command(line) else {
        panic!("not lat");
    };
    let expected = Measure {
        across: Across { adapter: Some(Adapter::Shm), ..Across::default() },
        size: vec![Size(64), Size(8192), Size(1 << 20)],
        policy: Some("fixed:8192".parse().expect("a policy")),
        count: Some(10),
        far: Far { peer: Some("shm:other".into()), ..Far::default() },
        memory: Some(Memory::Pool),
        warmup: Some(5),
        seed: Some(7),
        ..Measure::default()
    };
    assert_eq!(measure, expected);
}

#[test]
fn json_may_stand_anywhere() {
    for line in ["cutthrough --json info", "cutthrough info --json", "cutthrough perf --json limits"] {
        let Ok(Parsed::Run(cli)) = read(line) else {
            panic!("{line} was refused");
        };
        assert!(cli.json, "{line}");
    }
}

#[test]
fn bad_use_is_one_line_that_says_what_to_do() {
    for line in [
        "cutthrough",
        "cutthrough perf",
        "cutthrough dmeo",
        "cutthrough info --frobnicate",
        "cutthrough perf lat --size 8KB",
        "cutthrough perf lat --size 64,,8",
        "cutthrough perf lat --size -1",
        "cutthrough perf lat --policy eager",
        "cutthrough perf lat --policy fixed:0",
        "cutthrough perf lat --seconds 0",
        "cutthrough perf lat --seconds nan",
        "cutthrough perf lat --count 0",
        "cutthrough perf lat --count 5 --seconds 1",
        "cutthrough perf lat --adapter tcp",
        "cutthrough perf lat --memory shared",
        "cutthrough perf lat --listen shm:a --peer shm:b",
        "cutthrough perf serve",
        "cutthrough perf limits no_such_limit",
        "cutthrough perf compare lat --a x",
        "cutthrough stat --watch 0",
        "cutthrough stat --pid me",
        "cutthrough perf idle --channels 0",
        "cutthrough perf wake --count 0",
        "cutthrough sim point --platform x --payload 8KiB",
        "cutthrough sim point --platform x --policy adaptive --payload 8KB",
        "cutthrough sim point --platform x --policy adaptive --payload 8KiB --senders 0",
        "cutthrough sim all --out",
    ] {
        let message = refusal(line);
        assert!(!message.contains('\n'), "{line}: {message}");
        assert!(message.contains("; "), "{line}: {message}");
        assert!(!message.starts_with("error"), "{line}: {message}");
    }
}

#[test]
fn a_misspelt_command_gets_the_right_one_as_a_tip() {
    assert_eq!(refusal("cutthrough dmeo"), "unrecognized subcommand 'dmeo'; a similar subcommand exists: 'demo'");
}

#[test]
fn the_help_says_how_much_of_a_file_is_fetched() {
    let Ok(Parsed::Print(text)) = read("cutthrough demo --help") else { panic!("no help") };
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains(&format!("of a longer one the first {}", Size(crate::file::MOST))), "{text}");
}

#[test]
fn a_command_that_is_planned_is_said_to_be_no_more_than_that() {
    for name in ["mem", "trace", "broker"] {
        let said = format!("the command {name} is not built yet; 'cutthrough --help' shows all that there are");
        assert_eq!(refusal(&format!("cutthrough {name}")), said);
        assert_eq!(refusal(&format!("cutthrough {name} --peer shm:x")), said);
        assert!(!refusal(&format!("cutthrough perf {name}")).contains("not built"));
    }
    let said = "the command perf fault is not built yet; 'cutthrough perf --help' shows all that there are";
    assert_eq!(refusal("cutthrough perf fault"), said);
    assert!(!refusal("cutthrough fault").contains("not built"));
}

#[test]
fn what_is_wrong_is_said_for_people() {
    assert!(refusal("cutthrough perf").starts_with("no test is named; "));
    let unknown = refusal("cutthrough perf limits --nope");
    assert_eq!(unknown, "unexpected argument '--nope' found; add '--help' to see how it is used");
    let number = "invalid value 'me' for '--pid <N>': write a whole number; add '--help' to see how it is used";
    assert_eq!(refusal("cutthrough stat --pid me"), number);
}

/// Other starters of ranks take their program so.
#[test]
fn a_program_that_is_run_stands_behind_two_hyphens() {
    for line in ["run -n 2 ./first", "run ./first 7 --size 3", "run -n 2 --veth 1500 ./first -- 7"] {
        let said = refusal(&format!("cutthrough {line}"));
        assert_eq!(said, "unexpected argument './first' found; put -- before the program", "{line}");
    }
    assert!(refusal("cutthrough run --frobnicate -- ./first").ends_with("; add '--help' to see how it is used"));
}

#[test]
fn a_bad_size_says_how_sizes_are_written() {
    let message = refusal("cutthrough perf lat --size 8KB");
    assert!(message.contains("write bytes (64) or 8KiB, 1MiB, 1GiB"), "{message}");
}

#[test]
fn help_and_version_are_not_errors() {
    assert!(matches!(read("cutthrough --help"), Ok(Parsed::Print(_))));
    let Ok(Parsed::Print(version)) = read("cutthrough --version") else {
        panic!("--version was refused");
    };
    assert_eq!(version.trim(), concat!("cutthrough ", env!("CARGO_PKG_VERSION")));
}

fn compare(options: [&str; 2]) -> CompareArgs {
    CompareArgs {
        test: CompareTest::Lat,
        a: options[0].into(),
        b: options[1].into(),
        rows: Vec::new(),
        common: Measure { size: vec![Size(64)], seed: Some(3), ..Measure::default() },
    }
}

#[test]
fn each_side_of_a_comparison_puts_its_options_over_the_common_ones() {
    let (a, b) = compare(["--policy adaptive", "--size 8KiB --seed 4"]).sides().expect("good options");
    assert_eq!(a.policy, Some("adaptive".parse().expect("a policy")));
    assert_eq!((a.size, a.seed), (vec![Size(64)], Some(3)));
    assert_eq!((b.policy, b.size, b.seed), (None, vec![Size(8192)], Some(4)));
}

#[test]
fn what_both_sides_have_stays_unless_a_side_says_otherwise() {
    let across = |common: Across, a: &str| {
        let mut args = compare([a, ""]);
        args.common.across = common;
        let (a, b) = args.sides().expect("good options");
        (a.across, b.across)
    };
    let (sealed, ring) = (Across { seal: true, ..Across::default() }, Across { net_xdp: true, ..Across::default() });
    let (plain, keys) =
        (Across { insecure: true, ..Across::default() }, Across { key: Some("k".into()), ..sealed.clone() });
    let keys = Across { seal: false, ..keys };
    for (common, a, expected) in [
        (&sealed, "", &sealed),
        (&sealed, "--insecure", &plain),
        (&keys, "--insecure", &plain),
        (&plain, "--seal", &sealed),
        (&sealed, "--key k", &keys),
        (&ring, "--seed 4", &ring),
    ] {
        assert_eq!(across(common.clone(), a), (expected.clone(), common.clone()), "{a}");
    }
}

#[test]
fn a_bad_side_is_named() {
    let failure = compare(["--policy adaptive", "--size huge"]).sides();
    let message = failure.expect_err("a bad size").to_string();
    assert!(message.starts_with("in --b \"--size huge\": "), "{message}");
    assert!(!message.contains('\n'), "{message}");
}

#[test]
fn compare_reads_options_that_begin_with_a_dash() {
    let words = ["cutthrough", "perf", "compare", "bw", "--a", "--policy adaptive", "--b", ""];
    assert!(matches!(parse(words.map(OsString::from)), Ok(Parsed::Run(_))));
}

/// How much is measured is one thing, whichever of the two options says it.
#[test]
fn the_length_of_a_side_takes_the_place_of_the_common_one() {
    let [hundred, seconds] = [(Some(100), None), (None, Some(3.0))];
    for (common, a, expected) in [
        (hundred, "--seconds 2", (None, Some(2.0))),
        (seconds, "--count 7", (Some(7), None)),
        (hundred, "--count 7", (Some(7), None)),
        (hundred, "--size 64", hundred),
    ] {
        let mut args = compare([a, ""]);
        (args.common.count, args.common.seconds) = common;
        let (a, b) = args.sides().expect("good options");
        assert_eq!([a, b].map(|side| (side.count, side.seconds)), [expected, common]);
    }
}
