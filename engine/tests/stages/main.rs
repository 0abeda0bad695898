//! Transfers over modelled stages.

mod model;
mod pipeline;
mod transfer;
