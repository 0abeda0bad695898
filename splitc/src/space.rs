//! A rank as the seven programs know it.

use std::time::Duration;

use cutthrough_space::{Space, Work};

use crate::{Coming, Element, Error, Global, Op, World};

impl Space for World {
    type Error = Error;
    type Coming<T: Element> = Coming<T>;

    #[inline]
    fn rank(&self) -> u32 {
        Self::rank(self)
    }

    #[inline]
    fn size(&self) -> u32 {
        Self::size(self)
    }

    fn time(&mut self) -> Result<Duration, Error> {
        Ok(self.begun.elapsed())
    }

    #[inline]
    fn computes(&mut self, _: Work) {}

    fn alloc<T: Element>(&mut self, count: usize) -> Result<Global<T>, Error> {
        Self::alloc(self, count)
    }

    #[inline]
    fn local<T: Element>(&mut self, from: Global<T>, into: &mut [T]) -> Result<(), Error> {
        Self::local(self, from, into)
    }

    #[inline]
    fn set_local<T: Element>(&mut self, to: Global<T>, values: &[T]) -> Result<(), Error> {
        Self::set_local(self, to, values)
    }

    #[inline]
    fn in_place<T: Element>(&self, from: Global<T>, count: usize) -> Result<&[T], Error> {
        Self::in_place(self, from, count)
    }

    #[inline]
    fn in_place_mut<T: Element>(&mut self, from: Global<T>, count: usize) -> Result<&mut [T], Error> {
        Self::in_place_mut(self, from, count)
    }

    #[inline]
    fn get_bulk<T: Element>(&mut self, from: Global<T>, count: usize) -> Result<Coming<T>, Error> {
        Self::get_bulk(self, from, count)
    }

    #[inline]
    fn wait_for<T: Element>(&mut self, coming: &Coming<T>) -> Result<(), Error> {
        Self::wait_for(self, coming)
    }

    #[inline]
    fn arrived<'a, T: Element>(&'a self, coming: &Coming<T>) -> Option<&'a [T]> {
        Self::arrived(self, coming)
    }

    #[inline]
    fn take_bulk<T: Element>(&mut self, coming: Coming<T>, into: &mut [T]) -> Result<(), Error> {
        Self::take_bulk(self, coming, into)
    }

    #[inline]
    fn read_bulk<T: Element>(&mut self, from: Global<T>, into: &mut [T]) -> Result<(), Error> {
        Self::read_bulk(self, from, into)
    }

    #[inline]
    fn put_bulk<T: Element>(&mut self, to: Global<T>, values: &[T]) -> Result<(), Error> {
        Self::put_bulk(self, to, values)
    }

    #[inline]
    fn store_bulk<T: Element>(&mut self, to: Global<T>, values: &[T]) -> Result<(), Error> {
        Self::store_bulk(self, to, values)
    }

    fn sync(&mut self) -> Result<(), Error> {
        Self::sync(self)
    }

    fn barrier(&mut self) -> Result<(), Error> {
        Self::barrier(self)
    }

    #[inline]
    fn poll(&mut self) -> Result<(), Error> {
        Self::poll(self)
    }

    fn broadcast_bulk<T: Element>(&mut self, root: u32, values: &mut [T]) -> Result<(), Error> {
        Self::broadcast_bulk(self, root, values)
    }

    fn reduce_bulk<T: Element>(&mut self, op: Op, values: &mut [T]) -> Result<(), Error> {
        Self::reduce_bulk(self, op, values)
    }

    fn scan_bulk<T: Element>(&mut self, op: Op, values: &mut [T]) -> Result<(), Error> {
        Self::scan_bulk(self, op, values)
    }
}
