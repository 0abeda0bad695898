//! How often a socket is looked at, which costs a system call, where others are there that cost less or have more.

/// Looks that found nothing, one after the other, after which it is looked at rarely.
const QUIET: u32 = 64;

/// What a look at what has come came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Look {
    /// Whether anything had come.
    pub(super) any: bool,
    /// Whether all of it was taken in: nothing was left at the end.
    pub(super) all: bool,
}

/// What the last looks at a socket came to.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Glances {
    /// Looks that found nothing, one after the other.
    quiet: u32,
    /// Turns in which it was passed over, one after the other.
    passed: u32,
    /// Whether it may hold what came before the last sleep, or what the kernel has told of since: nothing wakes us for
    /// that again.
    unlooked: bool,
}

impl Glances {
    /// Whether it is passed over this time: up to `rarely` times in a row, where the others have something (`any`) or
    /// it has been quiet.
    #[inline]
    pub(super) const fn passes(&mut self, rarely: u32, any: bool) -> bool {
        let passes = self.passed < rarely && (any || self.quiet > QUIET);
        self.passed = if passes { self.passed + 1 } else { 0 };
        passes
    }

    /// It was looked at, and whether anything was there.
    #[inline]
    pub(super) const fn looked(&mut self, came: bool) {
        self.unlooked = came;
        self.quiet = if came { 0 } else { self.quiet.saturating_add(1) };
    }

    /// Whether it may hold what nothing wakes us for.
    #[inline]
    pub(super) const fn is_unlooked(&self) -> bool {
        self.unlooked
    }

    /// Nobody looks from now on until something comes, which may be here: it is looked at first then.
    pub(super) const fn rest(&mut self) {
        (self.quiet, self.passed) = (0, 0);
    }

    /// It may hold what nothing wakes us for: it is slept on from now on, or the kernel has just told of it.
    pub(super) const fn doubt(&mut self) {
        self.unlooked = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Turns in which it is passed over before it is looked at.
    fn passed(glances: &mut Glances, any: bool) -> u32 {
        (0..).find(|_| !glances.passes(8, any)).unwrap_or(0)
    }

    #[test]
    fn a_quiet_one_is_looked_at_rarely_and_at_once_after_a_rest() {
        let mut glances = Glances::default();
        for _ in 0..=QUIET {
            assert_eq!(passed(&mut glances, false), 0);
            glances.looked(false);
        }
        assert_eq!(passed(&mut glances, false), 8);
        glances.rest();
        assert_eq!(passed(&mut glances, false), 0);
        glances.looked(true);
        assert_eq!(passed(&mut glances, false), 0);
        assert_eq!(passed(&mut glances, true), 8, "others have something");
    }

    #[test]
    fn what_may_have_come_in_sleep_is_known_after_a_look() {
        let mut glances = Glances::default();
        assert!(!glances.is_unlooked());
        glances.doubt();
        assert!(glances.is_unlooked());
        glances.looked(true);
        assert!(glances.is_unlooked(), "there may be more");
        glances.looked(false);
        assert!(!glances.is_unlooked());
    }
}
