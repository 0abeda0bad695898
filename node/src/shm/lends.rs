//! Pages of ours that the peer reads at present, by the numbers under which it gives them back.

use cutthrough_engine::check::Breach;

/// The pages of one message: a run, and others if it has a list of them.
#[derive(Debug, Default)]
struct Lend {
    /// Which of those that had this place it is.
    nonce: u32,
    is_lent: bool,
    first: u32,
    count: u32,
    others: Vec<(u32, u32)>,
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
        run(lend.first, lend.count);
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

    use proptest::prelude::*;

    use super::*;

    /// What a message has lent: its runs, and its cookie.
    type Lent = (Vec<(u32, u32)>, Option<u64>);

    fn runs() -> impl Strategy<Value = Vec<(u32, u32)>> {
        prop::collection::vec((0..100_u32, 1..9_u32), 1..4)
    }

    proptest! {
        /// The oracle is a map. What is not in it is refused, and changes nothing.
        #[test]
        fn what_was_lent_comes_back_once(
            steps in prop::collection::vec((runs(), any::<Option<u64>>(), any::<prop::sample::Index>()), 0..60),
            lies in prop::collection::vec(any::<u64>(), 0..60),
        ) {
            let (mut lends, mut oracle) = (Lends::default(), BTreeMap::<u64, Lent>::new());
            let mut numbers = vec![0];
            let mut lies = lies.into_iter();
            for (runs, cookie, which) in steps {
                let number = lends.lend(runs[0], runs[1..].to_vec(), cookie);
                prop_assert!(!numbers.contains(&number));
                numbers.push(number);
                oracle.insert(number, (runs, cookie));
                for number in [lies.next().unwrap_or(1), *which.get(&numbers)] {
                    let mut runs = Vec::new();
                    let back = lends.take_back(number, |first, count| runs.push((first, count)));
                    match oracle.remove(&number) {
                        Some(lent) => prop_assert_eq!((runs, back.unwrap()), lent),
                        None => prop_assert_eq!((runs, back), (Vec::new(), Err(Breach::Lend))),
                    }
                }
                let tracked = oracle.values().filter(|lent| lent.1.is_some()).count();
                prop_assert_eq!((lends.messages() as usize, lends.tracked() as usize), (oracle.len(), tracked));
            }
        }
    }
}
