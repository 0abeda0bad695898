//! What others say, on this terminal.

/// The text of these bytes on one line: what a terminal would obey, as
/// escapes and line breaks, is a replacement character each.
#[must_use]
pub fn printable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.trim().chars().map(|char| if char.is_control() { char::REPLACEMENT_CHARACTER } else { char }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_say_stays_on_its_line_and_changes_nothing_else() {
        assert_eq!(printable(b"\x1b[2J\nbusy; wait\n"), "\u{fffd}[2J\u{fffd}busy; wait");
        assert_eq!(printable("caf\u{e9} \u{9b}31m".as_bytes()), "caf\u{e9} \u{fffd}31m");
        assert_eq!(printable(b"\xff\xfe"), "\u{fffd}\u{fffd}");
    }
}
