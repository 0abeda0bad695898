//! The report's files, read as a reader's programs would read them.

use serde_json::Value;

use super::canvas::Canvas;
use super::label::Room;
use super::{File, Report, drawn, svg};
use crate::outcome::{Axis, Bar, Curve, Drawing, Experiment, Figure, Line, Mark, Outcome, Paper, Stripe};
use crate::platform::Platform;

const PLATFORM: &str = r#"
name = "x"
title = "X <&> Y"
model = "staged"

[bus.read]
value = 128
unit = "MB/s"
source = 'a text, "quoted"'

[bus.setup]
value = 1.5
unit = "us"
fitted = "T1: 308 us"
range = [0.5, 4]
"#;

fn figure(id: &str, drawing: Drawing) -> Figure {
    Figure { id: id.into(), title: format!("Figure {id}: a < b & c"), caption: "What to see.".into(), drawing }
}

fn curves() -> Figure {
    let curve = |name: &str, scale: f64| Curve {
        name: name.into(),
        points: (6..14).map(|power| [f64::from(1 << power), scale * (40.0 + f64::from(1 << power) / 30.0)]).collect(),
    };
    let mark = |x: f64, y: f64, label: &str| Mark { at: [x, y], label: label.into() };
    let marks = vec![
        mark(8192.0, 308.0, "308 us store-and-forward"),
        mark(8192.0, 177.0, "177 us eager"),
        mark(1280.0, 195.0, "HPDC 1997, Figure 6, at the pulse that the authors found best on their machines"),
        mark(256.0, 60.0, "Figure 7"),
        mark(512.0, 70.0, "Figure 7"),
    ];
    let (x, y) = (Axis::log("payload, bytes"), Axis::linear("latency, us"));
    figure("t1", Drawing::Curves { x, y, curves: vec![curve("store-and-forward", 1.0), curve("eager", 0.6)], marks })
}

fn bars() -> Figure {
    let bar = |name: &str, parts: &[(&str, f64)], paper| Bar {
        name: name.into(),
        parts: parts.iter().map(|(part, height)| ((*part).to_owned(), *height)).collect(),
        paper,
    };
    let bars = vec![
        bar("a short one", &[("bus", 20.0), ("link", 30.0), ("host", 12.5)], Some(65.0)),
        bar("one with a name that is far too long for a single line of this drawing", &[("bus", 9.0)], None),
        bar("nothing", &[], Some(3.0)),
    ];
    figure("d1", Drawing::Bars { y: Axis::linear("time, us"), bars })
}

fn flow() -> Figure {
    let stripe = |row: usize, message: u64| {
        let start_us = message as f64 * 20.0 + row as f64 * 10.0;
        Stripe { row, message, start_us, end_us: start_us + 18.0, bytes: 1408 }
    };
    let stripes = (0..40).flat_map(|message| (0..3).map(move |row| stripe(row, message))).collect();
    let rows = ["sender: host to adapter", "link", "receiver: adapter to host"].map(str::to_owned).to_vec();
    figure("n2", Drawing::Flow { rows, stripes })
}

fn results() -> Vec<(Experiment, Outcome)> {
    let line = |id: &str, sim: f64| {
        let line = Line::new(id, "latency, \"one way\"", "8 KiB <both>, x", "us", sim);
        line.against(Paper::Value(308.0), 10.0).source("hpdc97 Figure 4")
    };
    let outcome = |lines, figures| Outcome { lines, figures, events: 12_345 };
    let experiment = |id, title| Experiment { id, title, run: Outcome::default };
    vec![
        (
            experiment("T1", "fixed pulses"),
            outcome(vec![line("T1", 310.0).fitted(), line("T1", 200.0)], vec![curves()]),
        ),
        (experiment("D1", "bars"), outcome(vec![Line::new("D1", "bandwidth", "", "MB/s", 42.0)], vec![bars(), flow()])),
    ]
}

fn files() -> Vec<File> {
    let platforms = [Platform::parse(PLATFORM, "x.toml").unwrap()];
    Report { results: &results(), platforms: &platforms }.files()
}

fn named(name: &str) -> String {
    files().into_iter().find(|file| file.name == name).unwrap_or_else(|| panic!("no {name}")).text
}

/// Names and attributes of all elements, if the text is well-formed: a small reader of XML, strict on what we write.
fn elements(text: &str) -> Vec<(String, Vec<(String, String)>)> {
    let (mut open, mut found, mut rest) = (Vec::new(), Vec::new(), text);
    while let Some(at) = rest.find('<') {
        let (before, tag) = rest.split_at(at);
        assert!(!before.contains('>') || open.last().is_some_and(|name| name == "style"), "a bare > in {before:?}");
        for entity in before.split('&').skip(1) {
            assert!(["amp;", "lt;", "gt;", "quot;"].iter().any(|known| entity.starts_with(known)), "&{entity}");
        }
        let (tag, after) = tag[1..].split_once('>').expect("a tag ends");
        rest = after;
        if tag.starts_with('!') {
            continue;
        }
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop().as_deref(), Some(name));
            continue;
        }
        let name = tag.split([' ', '/']).next().unwrap().to_owned();
        let attributes = tag[name.len()..].trim_end_matches('/').trim();
        let pairs: Vec<&str> = attributes.split('"').collect();
        let pairs = pairs.chunks(2).filter(|pair| pair.len() == 2);
        let pairs = pairs.map(|pair| (pair[0].trim().trim_end_matches('=').to_owned(), pair[1].to_owned())).collect();
        if !tag.ends_with('/') && !["meta", "br"].contains(&name.as_str()) {
            open.push(name.clone());
        }
        found.push((name, pairs));
    }
    assert!(open.is_empty(), "{open:?} stay open");
    found
}

fn number(attributes: &[(String, String)], name: &str) -> f64 {
    attributes.iter().find(|(key, _)| key == name).map_or(0.0, |(_, value)| value.parse().unwrap())
}

#[test]
fn every_file_has_its_name() {
    let names: Vec<_> = files().into_iter().map(|file| file.name).collect();
    let expected =
        ["index.html", "lines.jsonl", "lines.csv", "t1.svg", "t1.csv", "d1.svg", "d1.csv", "n2.svg", "n2.csv"];
    assert_eq!(names, expected);
}

#[test]
fn equal_results_give_equal_files() {
    assert_eq!(files(), files());
}

#[test]
fn pictures_and_page_are_well_formed_and_need_no_network() {
    let files = files();
    let drawn: Vec<_> = files.iter().filter(|file| file.name.ends_with("svg") || file.name.ends_with("html")).collect();
    assert!(drawn.len() > 1, "{} pictures and pages", drawn.len());
    for file in drawn {
        assert!(elements(&file.text).len() > 20, "{}", file.name);
        let text = file.text.replace("http://www.w3.org/2000/svg", "");
        for outside in ["http:", "https:", "src=", "@import", "url(", "<script", "<link"] {
            assert!(!text.contains(outside), "{} has {outside}", file.name);
        }
        assert!(text.contains("prefers-color-scheme:dark"), "{}", file.name);
    }
}

#[test]
fn all_points_lie_inside_the_drawing() {
    for figure in [curves(), bars(), flow()] {
        let drawing = drawn(&figure);
        let (wide, high) = (drawing.width, drawing.height);
        for (name, attributes) in elements(&super::inline_svg(&figure)) {
            for (x, y) in [("x1", "y1"), ("x2", "y2"), ("cx", "cy"), ("x", "y")] {
                let at = (number(&attributes, x), number(&attributes, y));
                assert!((0.0..=wide).contains(&at.0) && (0.0..=high).contains(&at.1), "{name} {at:?}");
            }
            for point in attributes.iter().filter(|(key, _)| key == "points").flat_map(|(_, list)| list.split(' ')) {
                let (x, y) = point.split_once(',').unwrap();
                let at: (f64, f64) = (x.parse().unwrap(), y.parse().unwrap());
                assert!((0.0..=wide).contains(&at.0) && (0.0..=high).contains(&at.1), "{at:?}");
            }
        }
    }
}

fn overlapping(drawing: &Canvas) -> Vec<(Room, Room)> {
    let texts = &drawing.texts;
    let pairs = texts.iter().enumerate().flat_map(|(index, a)| texts[index + 1..].iter().map(move |b| (*a, *b)));
    pairs.filter(|(a, b)| a.overlaps(b)).collect()
}

#[test]
fn no_text_covers_another_or_leaves_the_drawing() {
    for figure in [curves(), bars(), flow()] {
        let drawing = drawn(&figure);
        assert_eq!(overlapping(&drawing), [], "{}", figure.id);
        for room in &drawing.texts {
            let is_inside = room.left >= -0.5 && room.right <= drawing.width + 0.5 && room.bottom <= drawing.height;
            assert!(is_inside, "{}: {room:?} in {} x {}", figure.id, drawing.width, drawing.height);
        }
    }
}

#[test]
fn crowded_marks_get_letters_and_a_key() {
    let labels = (0..12).map(|index| format!("number {index} with a long text")).collect::<Vec<_>>();
    let marks = labels.iter().map(|label| Mark { at: [5.0, 5.0], label: label.clone() }).collect();
    let curve = Curve { name: "one".into(), points: vec![[0.0, 0.0], [9.0, 9.0]] };
    let (x, y) = (Axis::linear("a"), Axis::linear("b"));
    let figure = figure("crowd", Drawing::Curves { x, y, curves: vec![curve], marks });
    assert_eq!(overlapping(&drawn(&figure)), []);
    let text = svg(&figure);
    assert!(labels.iter().all(|label| text.contains(label)));
}

#[test]
fn figures_without_anything_in_them_can_be_drawn() {
    let axis = || Axis::log("rate, B/s");
    let nothing = [
        Drawing::Curves { x: axis(), y: axis(), curves: Vec::new(), marks: Vec::new() },
        Drawing::Bars { y: axis(), bars: Vec::new() },
        Drawing::Flow { rows: vec!["bus".into()], stripes: Vec::new() },
    ];
    for drawing in nothing {
        elements(&svg(&figure("none", drawing)));
    }
    let wild = Curve { name: "wild".into(), points: vec![[f64::NAN, 1.0], [1.0, f64::INFINITY], [0.0, -5.0]] };
    let drawing = Drawing::Curves { x: axis(), y: axis(), curves: vec![wild], marks: Vec::new() };
    let text = svg(&figure("wild", drawing));
    assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
}

#[test]
fn a_long_burst_makes_a_small_picture() {
    let stripes = (0..200_000_u32)
        .map(|n| {
            let start_us = f64::from(n);
            Stripe { row: 0, message: u64::from(n), start_us, end_us: start_us + 1.0, bytes: 1 }
        })
        .collect();
    let text = svg(&figure("burst", Drawing::Flow { rows: vec!["bus".into()], stripes }));
    assert!(text.len() < 100 << 10, "{} bytes", text.len());
}

/// Cells of a table of commas.
fn cells(text: &str) -> Vec<Vec<String>> {
    let (mut rows, mut row, mut cell, mut quoted) = (Vec::new(), Vec::new(), String::new(), false);
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '"' if quoted && letters.peek() == Some(&'"') => cell.extend(letters.next()),
            '"' => quoted = !quoted,
            ',' if !quoted => row.push(std::mem::take(&mut cell)),
            '\n' if !quoted => {
                row.push(std::mem::take(&mut cell));
                rows.push(std::mem::take(&mut row));
            }
            letter => cell.push(letter),
        }
    }
    rows
}

#[test]
fn tables_give_back_what_was_drawn() {
    let Drawing::Curves { curves: drawn, marks, .. } = curves().drawing else { panic!("no curves") };
    let rows = cells(&named("t1.csv"));
    assert_eq!(rows[0], ["kind", "name", "payload, bytes", "latency, us"]);
    let simulated: Vec<[f64; 2]> = drawn.iter().flat_map(|curve| curve.points.clone()).collect();
    let read = |kind: &str| -> Vec<[f64; 2]> {
        let rows = rows.iter().filter(|row| row[0] == kind);
        rows.map(|row| [row[2].parse().unwrap(), row[3].parse().unwrap()]).collect()
    };
    assert_eq!(read("sim"), simulated);
    assert_eq!(read("paper"), marks.iter().map(|mark| mark.at).collect::<Vec<_>>());
    assert_eq!(cells(&named("d1.csv"))[4], ["paper", "a short one", "", "65"]);
    assert_eq!(cells(&named("n2.csv")).len(), 1 + 120);
    let lines = cells(&named("lines.csv"));
    assert_eq!(lines[1][1..3], ["latency, \"one way\"", "8 KiB <both>, x"]);
    assert!(lines.iter().all(|row| row.len() == 11));
}

#[test]
fn lines_are_json() {
    let lines: Vec<Value> = named("lines.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 3);
    assert_eq!((&lines[1]["ok"], &lines[1]["role"]), (&Value::from(false), &Value::from("predicted")));
}

#[test]
fn the_page_shows_misses_the_summary_and_every_origin() {
    let page = named("index.html");
    assert!(page.contains("<h2 id=\"misses\">1 figure misses</h2>"));
    assert!(page.contains("<b>35.1 %</b> median error of the predictions"));
    assert!(page.contains("T1: 308 us; plausible: 0.5 to 4 µs") && page.contains("a text, &quot;quoted&quot;"));
    assert!(page.contains("X &lt;&amp;&gt; Y") && page.contains("1 parameter with its source"));
    assert!(page.contains("✗ miss") && page.contains("✓ ok") && page.contains("<span class=\"open\">open</span>"));
    assert!(page.contains("name=\"viewport\""));
}
