//! Aligned tables for people: names to the left, figures to the right, no lines.

use std::fmt;

use comfy_table::CellAlignment;

/// Columns of the terminal that everything for people fits into.
pub const COLUMNS: usize = 80;

/// Text for people in lines that fit into a terminal, cut at spaces; a line break of its own stays.
#[must_use]
pub fn wrapped(text: &str) -> String {
    hanging(text, 0)
}

/// As [`wrapped`], where what does not fit goes on so many columns from the left.
#[must_use]
pub fn hanging(text: &str, indent: usize) -> String {
    let mut out = String::with_capacity(text.len());
    for (number, line) in text.lines().enumerate() {
        if number > 0 {
            out.push('\n');
        }
        let (mut columns, mut is_first) = (0, true);
        for word in line.split(' ') {
            let wide = word.chars().count();
            if !is_first && columns + 1 + wide > COLUMNS {
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

/// A table that is filled row by row. The first column is a name; the others are figures.
#[derive(Debug)]
pub struct Table(comfy_table::Table);

impl Table {
    /// An empty table under these headings; without a line of headings if all of them are empty.
    #[must_use]
    pub fn new(headings: &[&str]) -> Self {
        let mut table = comfy_table::Table::new();
        table.load_style(comfy_table::presets::NOTHING);
        table.set_header(headings);
        for (index, column) in table.column_iter_mut().enumerate() {
            column.set_padding((0, 2));
            if index > 0 {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        Self(table)
    }

    /// Adds a row; cells that are missing at its end are empty.
    pub fn row(&mut self, cells: Vec<String>) {
        self.0.add_row(cells);
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.trim_fmt().trim_start_matches('\n'))
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
