//! The lines of a pipe, and what is a line where none has ended.

use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// Longest line that is forwarded as one; the rest is taken for another.
const LINE: usize = 64 << 10;

/// Time between two looks at whether a rank has ended that has begun a line, in nanoseconds.
const LOOK: i64 = 100_000_000;

/// The lines that come out of a pipe.
#[derive(Debug)]
pub(super) struct Lines<R> {
    from: BufReader<R>,
    /// What has come of the next one.
    line: Vec<u8>,
}

impl<R: Read + AsFd> Lines<R> {
    pub(super) fn new(from: R) -> Self {
        Self { from: BufReader::new(from), line: Vec::new() }
    }

    /// The next line, with its end if it has one; none if there is nothing more. What comes last need not end, nor need
    /// the pipe: when the rank `has_ended`, all that has come by then is a line.
    pub(super) fn next(&mut self, has_ended: &AtomicBool) -> Option<Vec<u8>> {
        loop {
            if !self.line.is_empty() && self.from.buffer().is_empty() && self.is_all(has_ended) {
                return Some(std::mem::take(&mut self.line));
            }
            let some = match self.from.fill_buf() {
                Ok(some) => some,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => &[],
            };
            if some.is_empty() {
                return Some(std::mem::take(&mut self.line)).filter(|line| !line.is_empty());
            }
            let some = &some[..some.len().min(LINE - self.line.len())];
            let end = some.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
            let count = end.unwrap_or(some.len());
            self.line.extend_from_slice(&some[..count]);
            self.from.consume(count);
            if end.is_some() {
                return Some(std::mem::take(&mut self.line));
            }
            if self.line.len() == LINE {
                let rest = self.line.split_off(whole_letters(&self.line));
                return Some(std::mem::replace(&mut self.line, rest));
            }
        }
    }

    /// Whether the rank has ended, and nothing comes behind what has come; waits for either, or for more.
    fn is_all(&self, has_ended: &AtomicBool) -> bool {
        loop {
            // Before the look into the pipe, where all is that it has said.
            let ended = has_ended.load(Ordering::Acquire);
            let time = Timespec { tv_sec: 0, tv_nsec: if ended { 0 } else { LOOK } };
            match poll(&mut [PollFd::new(self.from.get_ref(), PollFlags::IN)], Some(&time)) {
                Ok(0) if ended => return true,
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) | Err(_) => return false,
            }
        }
    }
}

/// How much of this ends with a whole letter, if it is text.
fn whole_letters(text: &[u8]) -> usize {
    let tail = text.len().saturating_sub(3);
    let Some(first) = text[tail..].iter().rposition(|byte| *byte >= 0xc0).map(|at| tail + at) else {
        return text.len();
    };
    let bytes = match text[first] {
        0xf0.. => 4,
        0xe0.. => 3,
        _ => 2,
    };
    if first + bytes > text.len() { first } else { text.len() }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn letters_are_left_whole() {
        for (text, whole) in [
            (&b"plain"[..], 5),
            ("caf\u{e9}".as_bytes(), 5),
            (&"caf\u{e9}".as_bytes()[..4], 3),
            (&"a\u{20ac}".as_bytes()[..3], 1),
            (&"a\u{20ac}".as_bytes()[..4], 4),
            (&"a\u{1f600}".as_bytes()[..4], 1),
            (&[0x80; 5], 5),
        ] {
            assert_eq!(whole_letters(text), whole, "{text:?}");
        }
    }

    #[test]
    fn what_has_come_when_the_rank_ends_is_a_line() {
        let (from, mut into) = std::io::pipe().expect("a pipe");
        let (mut lines, ended) = (Lines::new(from), AtomicBool::new(false));
        into.write_all(b"one\ntwo").expect("there is room");
        assert_eq!(lines.next(&ended), Some(b"one\n".to_vec()));
        ended.store(true, Ordering::Release);
        assert_eq!(lines.next(&ended), Some(b"two".to_vec()));
        into.write_all(b"three").expect("there is room");
        drop(into);
        assert_eq!(lines.next(&ended), Some(b"three".to_vec()));
        assert_eq!(lines.next(&ended), None);
    }
}
