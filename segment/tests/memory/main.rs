//! Memory: what is mapped for whom, and who has which page of it.
#![cfg(not(loom))]

mod mapping;
mod pages;
mod pool;
mod staging;
