//! Pages of ours that the peer reads at present, by the numbers under which it gives them back.

use cutthrough_engine::check::Breach;
use cutthrough_segment::page::Page;

/// The pages of one message: a run, and others if it has a list of them; and views of frozen pages, which come back by
/// themselves. Of nothing but such the run has no pages.
#[derive(Debug, Default)]
struct Lend {
    /// Which of those that had this place it is.
    nonce: u32,
    is_lent: bool,
    first: u32,
    count: u32,
    others: Vec<(u32, u32)>,
    views: Vec<Page>,
    cookie: Option<u64>,
}

/// What has been lent and was not given back.
#[derive(Debug, Default)]
pub(super) struct Lends {
    places: Vec<Lend>,
    free: Vec<u32>,
    nonce: u32,
    messages: u32,
    /// How many of them have a cookie: somebody waits for them.
    tracked: u32,
    /// How many of them are views alone.
    frozen: u32,
}

impl Lends {
    /// Messages whose pages are lent.
    pub(super) const fn messages(&self) -> u32 {
        self.messages
    }

    /// How many of those have a cookie.
    pub(super) const fn tracked(&self) -> u32 {
        self.tracked
    }

    /// Messages of which no page was taken from the pool: frozen ones may be lent any number of times.
    pub(super) const fn frozen(&self) -> u32 {
        self.frozen
    }

    /// Lends runs of pages, and views of frozen ones, of which either may be none: the number that the peer has to give
    /// back.
    pub(super) fn lend_list(&mut self, mut runs: Vec<(u32, u32)>, views: Vec<Page>, cookie: Option<u64>) -> u64 {
        let first = runs.pop().unwrap_or_default();
        self.frozen += u32::from(first.1 == 0);
        let number = self.lend(first, runs, cookie);
        self.place(number).extend(views);
        number
    }

    /// Lends the view of a frozen page. The place that it has is kept for others.
    pub(super) fn lend_view(&mut self, view: Page, cookie: Option<u64>) -> u64 {
        self.frozen += 1;
        let number = self.lend((0, 0), Vec::new(), cookie);
        self.place(number).push(view);
        number
    }

    /// Views that are lent under a number.
    fn place(&mut self, number: u64) -> &mut Vec<Page> {
        let [a, b, c, d, ..] = number.to_le_bytes();
        &mut self.places[u32::from_le_bytes([a, b, c, d]) as usize].views
    }

    /// Lends a run of pages, its first and how many, and others with it: the number that the peer has to give back.
    /// Each field is written where it stays: what is put together and then moved has to wait for its own stores.
    #[inline]
    pub(super) fn lend(&mut self, (first, count): (u32, u32), others: Vec<(u32, u32)>, cookie: Option<u64>) -> u64 {
        self.nonce = self.nonce.wrapping_add(1);
        self.tracked += u32::from(cookie.is_some());
        self.messages += 1;
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push(Lend::default());
            u32::try_from(self.places.len() - 1).unwrap_or(u32::MAX)
        });
        let lend = &mut self.places[index as usize];
        (lend.nonce, lend.is_lent, lend.first, lend.count, lend.cookie) = (self.nonce, true, first, count, cookie);
        if !others.is_empty() {
            lend.others = others;
        }
        u64::from(index) | u64::from(self.nonce) << 32
    }

    /// Takes back what the peer says was lent under this number, run by run: its cookie.
    ///
    /// # Errors
    /// [`Breach::Lend`] if nothing is lent under it.
    #[inline]
    pub(super) fn take_back(&mut self, number: u64, mut run: impl FnMut(u32, u32)) -> Result<Option<u64>, Breach> {
        let [a, b, c, d, e, f, g, h] = number.to_le_bytes();
        let (index, nonce) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
        let lend = self.places.get_mut(index as usize).filter(|lend| lend.is_lent && lend.nonce == nonce);
        let lend = lend.ok_or(Breach::Lend)?;
        lend.is_lent = false;
        if lend.count > 0 {
            run(lend.first, lend.count);
        } else {
            self.frozen -= 1;
        }
        lend.views.clear();
        if !lend.others.is_empty() {
            std::mem::take(&mut lend.others).into_iter().for_each(|(first, count)| run(first, count));
        }
        let cookie = lend.cookie;
        self.free.push(index);
        self.messages -= 1;
        self.tracked -= u32::from(cookie.is_some());
        Ok(cookie)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use cutthrough_segment::page::{Frozen, Pages};
    use proptest::prelude::*;

    use super::*;

    /// What a message has lent: its runs, how many frozen pages, and its cookie.
    type Lent = (Vec<(u32, u32)>, usize, Option<u64>);

    /// A frozen page.
    fn frozen() -> Frozen {
        let (mut pages, _) = Pages::create("lends", 1, 4096, Arc::default()).unwrap();
        pages.take(1).unwrap().freeze()
    }

    /// Runs of pages, and how many frozen ones go with them; not none at all.
    fn lists() -> impl Strategy<Value = (Vec<(u32, u32)>, usize)> {
        let runs = prop::collection::vec((0..100_u32, 1..9_u32), 0..4);
        (runs, 0_usize..3).prop_filter("a page", |(runs, views)| runs.len() + views > 0)
    }

    proptest! {
        /// The oracle is a map. What is not in it is refused, and changes nothing.
        #[test]
        fn what_was_lent_comes_back_once(
            steps in prop::collection::vec((lists(), any::<Option<u64>>(), any::<prop::sample::Index>()), 0..60),
            lies in prop::collection::vec(any::<u64>(), 0..60),
        ) {
            let (mut lends, mut oracle) = (Lends::default(), BTreeMap::<u64, Lent>::new());
            let frozen = frozen();
            let mut numbers = vec![0];
            let mut lies = lies.into_iter();
            for ((mut runs, views), cookie, which) in steps {
                let number = match (&runs[..], views) {
                    ([one], 0) => lends.lend(*one, Vec::new(), cookie),
                    ([], 1) => lends.lend_view(frozen.view(), cookie),
                    _ => lends.lend_list(runs.clone(), (0..views).map(|_| frozen.view()).collect(), cookie),
                };
                prop_assert!(!numbers.contains(&number));
                numbers.push(number);
                runs.sort_unstable();
                oracle.insert(number, (runs, views, cookie));
                for number in [lies.next().unwrap_or(1), *which.get(&numbers)] {
                    let mut runs = Vec::new();
                    let back = lends.take_back(number, |first, count| runs.push((first, count)));
                    runs.sort_unstable();
                    match oracle.remove(&number) {
                        Some((lent, _, cookie)) => prop_assert_eq!((runs, back.unwrap()), (lent, cookie)),
                        None => prop_assert_eq!((runs, back), (Vec::new(), Err(Breach::Lend))),
                    }
                }
                let tracked = oracle.values().filter(|lent| lent.2.is_some()).count();
                let of_frozen = oracle.values().filter(|lent| lent.0.is_empty()).count();
                let counts = [lends.messages(), lends.tracked(), lends.frozen()].map(|count| count as usize);
                prop_assert_eq!(counts, [oracle.len(), tracked, of_frozen]);
                let lent = lends.places.iter().map(|place| place.views.len()).sum::<usize>();
                prop_assert_eq!(lent, oracle.values().map(|lent| lent.1).sum::<usize>());
            }
        }
    }
}
