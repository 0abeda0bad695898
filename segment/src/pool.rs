//! Lends out runs of pages. Plain numbers: the pages themselves lie in a mapping.

/// Free runs of a pool of pages, the one freed last used first, so that its lines are still in the cache.
#[derive(Debug, Clone)]
pub struct Pool {
    free: Vec<(u32, u32)>,
    pages: u32,
    lent: u32,
}

impl Pool {
    /// A pool of `pages` pages, all free.
    #[must_use]
    pub fn new(pages: u32) -> Self {
        let free = if pages == 0 { Vec::new() } else { vec![(0, pages)] };
        Self { free, pages, lent: 0 }
    }

    /// Pages of the pool.
    #[must_use]
    pub const fn pages(&self) -> u32 {
        self.pages
    }

    /// Pages that are lent at present.
    #[must_use]
    pub const fn lent(&self) -> u32 {
        self.lent
    }

    /// First page of a run of `count` pages that nobody has, if there is one. The freed last comes first; neighbours
    /// are joined only when nothing else fits.
    #[inline]
    pub fn take(&mut self, count: u32) -> Option<u32> {
        let last = self.free.pop_if(|run| run.1 == count && count > 0);
        self.lent += if last.is_some() { count } else { 0 };
        last.map(|run| run.0).or_else(|| self.take_elsewhere(count))
    }

    fn take_elsewhere(&mut self, count: u32) -> Option<u32> {
        if count == 0 || count > self.pages - self.lent {
            return None;
        }
        let first = self.split(count).or_else(|| {
            self.join();
            self.split(count)
        })?;
        self.lent += count;
        Some(first)
    }

    fn split(&mut self, count: u32) -> Option<u32> {
        let place = self.free.iter().rposition(|run| run.1 >= count)?;
        let (first, have) = self.free[place];
        if have == count {
            self.free.swap_remove(place);
        } else {
            self.free[place] = (first + count, have - count);
        }
        Some(first)
    }

    /// Joins neighbouring free runs.
    fn join(&mut self) {
        self.free.sort_unstable();
        let mut joined: Vec<(u32, u32)> = Vec::with_capacity(self.free.len());
        for &(first, count) in &self.free {
            match joined.last_mut() {
                Some(last) if last.0 + last.1 == first => last.1 += count,
                _ => joined.push((first, count)),
            }
        }
        self.free = joined;
    }

    /// Gives a run back that [`Pool::take`] gave out, or a part of one.
    ///
    /// # Panics
    /// If more pages come back than were lent: the caller has lost count.
    pub fn give(&mut self, first: u32, count: u32) {
        assert!(count <= self.lent && first + count <= self.pages, "pages given back that were never lent");
        self.lent -= count;
        self.free.push((first, count));
    }
}
