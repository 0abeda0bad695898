//! The matrix of Speculative Defragmentation.

use serde_json::Value;

use super::{program, text, wire};

const PAGES: u64 = 30;

/// Copies of a page that is placed by nobody: its fragments.
fn fragments(page: u64) -> f64 {
    if page == 4096 { 3.0 } else { 6.0 }
}

/// What a guess can be worth is exact where nobody else sends: all pages, or none. Two senders at once spoil some.
#[test]
fn pages_of_one_sender_are_placed_and_those_of_two_are_whole() {
    if wire().is_none() {
        return;
    }
    for (form, rows) in [("own", 32), ("ip", 30)] {
        let words = ["perf", "defrag", "--json", "--pages", &PAGES.to_string()];
        let fragments_of_ip: &[&str] = if form == "ip" { &["--fragments"] } else { &[] };
        let output = program(&[&words[..], fragments_of_ip].concat()).output().expect("the program can be started");
        assert!(output.status.success(), "{}", text(&output.stderr));
        let lines: Vec<Value> =
            text(&output.stdout).lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect();
        assert_eq!(lines.len(), rows);
        for line in &lines {
            let (one, copied) = (line["senders"] == "one", line["placement"] == "copy");
            assert_eq!((&line["test"], &line["form"]), (&"defrag".into(), &form.into()), "{line}");
            assert_eq!(line["count"], if one { PAGES } else { 2 * PAGES }, "{line}");
            assert_eq!(line["complete"], line["count"], "{line}");
            let (placed, copies) = (&line["placed_ratio"], &line["copies_per_page"]);
            if copied {
                let all = fragments(line["size"].as_u64().expect("bytes"));
                assert_eq!((placed, copies), (&0.0.into(), &all.into()), "{line}");
            } else if one || line["senders"] == "two, admitted" {
                assert_eq!((placed, copies), (&1.0.into(), &0.0.into()), "{line}");
            } else if line["placement"] != "kernel" {
                assert!(placed.as_f64().expect("a share") < 1.0, "{line}");
            }
        }
    }
}
