//! Aligned tables for people: names to the left, figures to the right, no lines.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::OnceLock;

use comfy_table::CellAlignment;

/// Columns of the terminal that everything for people fits into.
pub const COLUMNS: usize = 80;

/// Fewest columns that anything is cut to.
const FEWEST: usize = 40;

/// Columns of the terminal, if it has fewer.
static FEWER: OnceLock<usize> = OnceLock::new();

/// From now on, text for people fits into a terminal of so many columns, if it has fewer than [`COLUMNS`].
pub fn fit(terminal: Option<usize>) {
    let _ = FEWER.set(fewer(terminal));
}

fn fewer(terminal: Option<usize>) -> usize {
    terminal.map_or(COLUMNS, |columns| columns.clamp(FEWEST, COLUMNS))
}

/// Columns of a line.
fn columns() -> usize {
    FEWER.get().copied().unwrap_or(COLUMNS)
}

/// Text for people in lines that fit into a terminal, cut at spaces; a line break of its own stays.
#[must_use]
pub fn wrapped(text: &str) -> String {
    hanging(text, 0)
}

/// What was cut for [`COLUMNS`], cut again if the terminal has fewer.
#[must_use]
pub fn narrowed(text: &str) -> Cow<'_, str> {
    if columns() < COLUMNS { wrapped(text).into() } else { text.into() }
}

/// As [`wrapped`], where what does not fit goes on so many columns from the left.
#[must_use]
pub fn hanging(text: &str, indent: usize) -> String {
    cut(text, indent, columns())
}

/// As [`hanging`], in lines of at most so many columns, but for words that are longer.
fn cut(text: &str, indent: usize, most: usize) -> String {
    let mut out = String::with_capacity(text.len());
    for (number, line) in text.lines().enumerate() {
        if number > 0 {
            out.push('\n');
        }
        let (mut columns, mut is_first) = (0, true);
        for word in line.split(' ') {
            let wide = word.chars().count();
            if !is_first && columns + 1 + wide > most {
                out.push('\n');
                out.push_str(&" ".repeat(indent));
                columns = indent;
            } else if !is_first {
                out.push(' ');
                columns += 1;
            }
            out.push_str(word);
            columns += wide;
            is_first = false;
        }
    }
    out
}

/// A table that is filled row by row. The first column is a name; the others are figures. What a terminal has no room
/// for beside the others comes in a part of its own below, with the names again, and what tells those of one name
/// apart.
#[derive(Debug)]
pub struct Table {
    headings: Vec<String>,
    rows: Vec<Vec<String>>,
}

/// Columns between two of a table.
const GAP: u16 = 2;

impl Table {
    /// An empty table under these headings; without a line of headings if all of them are empty.
    #[must_use]
    pub fn new(headings: &[&str]) -> Self {
        Self { headings: headings.iter().map(ToString::to_string).collect(), rows: Vec::new() }
    }

    /// Adds a row; cells that are missing at its end are empty.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// All of it side by side, however wide that is.
    #[must_use]
    pub fn whole(&self) -> String {
        self.part(&(0..self.headings.len()).collect::<Vec<_>>())
    }

    /// These of its columns.
    fn part(&self, columns: &[usize]) -> String {
        let mut table = comfy_table::Table::new();
        table.load_style(comfy_table::presets::NOTHING);
        table.set_header(columns.iter().map(|&column| &self.headings[column]));
        for row in &self.rows {
            table.add_row(columns.iter().map(|&column| row.get(column).map_or("", String::as_str)));
        }
        for (index, column) in table.column_iter_mut().enumerate() {
            column.set_padding((0, GAP));
            if index > 0 {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        table.trim_fmt().trim_start_matches('\n').into()
    }

    /// How wide each column is.
    fn widths(&self) -> Vec<usize> {
        let wide = |text: &str| text.lines().map(|line| line.chars().count()).max().unwrap_or_default();
        let of_column = |(column, heading): (usize, &String)| {
            let cells = self.rows.iter().filter_map(|row| row.get(column)).map(|cell| wide(cell));
            cells.chain([wide(heading)]).max().unwrap_or_default()
        };
        self.headings.iter().enumerate().map(of_column).collect()
    }

    /// How many columns at the beginning say which row it is.
    fn names(&self) -> usize {
        let distinct = self.rows.iter().filter_map(|row| row.first()).collect::<BTreeSet<_>>().len();
        if distinct < self.rows.len() { 2.min(self.headings.len()) } else { 1 }
    }

    /// It in parts of at most so many columns of a terminal, but for those that are wider themselves.
    fn within(&self, most: usize) -> String {
        let (widths, names): (Vec<usize>, Vec<usize>) = (self.widths(), (0..self.names()).collect());
        let of_names = names.iter().map(|name| widths[*name] + usize::from(GAP)).sum::<usize>();
        let (mut parts, mut wide) = (vec![names.clone()], of_names);
        for (column, width) in widths.iter().enumerate().skip(names.len()) {
            match parts.last_mut().filter(|part| wide + width <= most || part.len() == names.len()) {
                Some(part) => part.push(column),
                None => {
                    parts.push([&names[..], &[column]].concat());
                    wide = of_names;
                }
            }
            wide += width + usize::from(GAP);
        }
        parts.iter().map(|part| self.part(part)).collect::<Vec<_>>().join("\n\n")
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.within(columns()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_cut_at_spaces_and_nothing_is_lost() {
        let words: Vec<String> = (0..200_u32).map(|word| "x".repeat(word as usize % 23 + 1)).collect();
        let text = format!("first\n\n{}", words.join(" "));
        let wrapped = wrapped(&text);
        assert!(wrapped.starts_with("first\n\nx xx "), "{wrapped}");
        assert!(wrapped.lines().all(|line| line.len() <= COLUMNS && !line.ends_with(' ')), "{wrapped}");
        assert!(wrapped.lines().skip(2).all(|line| line.len() > COLUMNS - 24 || wrapped.ends_with(line)), "{wrapped}");
        assert!(wrapped.split_whitespace().eq(text.split_whitespace()));
    }

    #[test]
    fn a_line_goes_on_where_it_is_said_to() {
        let line = format!("  what   {}", "detail ".repeat(20).trim_end());
        let hung = hanging(&line, 9);
        let lines: Vec<&str> = hung.lines().collect();
        assert!(lines[0].starts_with("  what   detail detail"), "{hung}");
        assert!(lines[1..].iter().all(|line| line.starts_with("         detail")), "{hung}");
        assert!(lines.len() > 1 && lines.iter().all(|line| line.len() <= COLUMNS), "{hung}");
    }

    #[test]
    fn a_narrow_terminal_has_shorter_lines_and_a_wide_one_no_longer_ones() {
        assert_eq!([None, Some(20), Some(60), Some(200)].map(fewer), [80, 40, 60, 80]);
        let text = cut("some words that are cut between two of them", 2, 16);
        assert_eq!(text, "some words that\n  are cut\n  between two of\n  them");
    }

    #[test]
    fn what_has_no_room_beside_the_others_stands_below() {
        let mut table = Table::new(&["what", "p50", "p99", "ratio"]);
        table.row(vec!["a name".into(), "12.5 ns".into(), "1.23 us".into(), "1.07".into()]);
        table.row(vec!["b".into(), "1.20 ms".into()]);
        assert_eq!(
            table.within(24),
            "what        p50      p99\na name  12.5 ns  1.23 us\nb       1.20 ms\n\n\
             what    ratio\na name   1.07\nb"
        );
        assert_eq!(table.within(31), table.whole());
        assert_eq!(table.whole().lines().next(), Some("what        p50      p99  ratio"));
        table.row(vec!["b".into(), "1.30 ms".into()]);
        assert!(table.within(24).ends_with("b       1.20 ms\nb       1.30 ms"), "{table}");
        // A column that is wider than the terminal is there all the same.
        assert!(table.within(3).contains("1.23 us"));
    }

    #[test]
    fn without_headings_it_begins_with_its_first_row() {
        let mut table = Table::new(&["", ""]);
        table.row(vec!["a".into(), "5 ns".into()]);
        assert_eq!(table.to_string(), "a  5 ns");
    }

    #[test]
    fn names_stand_left_and_figures_right() {
        let mut table = Table::new(&["limit", "p50"]);
        table.row(vec!["a".into(), "5 ns".into()]);
        table.row(vec!["longer".into(), "12.5 ns".into()]);
        assert_eq!(table.to_string(), "limit       p50\na          5 ns\nlonger  12.5 ns");
    }
}
