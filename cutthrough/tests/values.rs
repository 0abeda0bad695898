//! What values of the library are to whoever holds them: clones and texts, whatever the types of a method are.

use std::error::Error;

use cutthrough::am::Unsent;
use cutthrough::rpc::{Answer, Method, Pending, Refusal};

/// A type that has nothing.
struct Bare;

#[test]
fn what_has_a_type_of_a_method_has_no_bounds_on_it() {
    const fn is_debug<T: std::fmt::Debug>() {}
    const fn is_error<T: Error>() {}
    is_debug::<Pending<Bare>>();
    is_debug::<Answer<Bare>>();
    is_error::<Unsent<'_>>();
    is_error::<Refusal>();
    let shown = format!("{:?}", Method::<Bare, Bare>::new(7).idempotent().at_most(64));
    assert_eq!(shown, "Method { number: 7, idempotent: true, at_most: 64, .. }");
}

#[cfg(feature = "tower")]
#[test]
fn a_tower_has_no_bounds_on_its_types() {
    const fn is_cloned<T: Clone + std::fmt::Debug>() {}
    is_cloned::<cutthrough::rpc::Tower<Bare, Bare>>();
}

/// With `?`, it becomes any error.
#[test]
fn a_refusal_says_its_words() {
    let refused = || -> Result<(), Box<dyn Error>> { Err(Refusal::from("closed on Sundays"))? };
    assert_eq!(refused().unwrap_err().to_string(), "closed on Sundays");
}
