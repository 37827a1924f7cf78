//! Tools of numerical mathematics: roots of monotone functions, bisection over integers, straight lines through points.
//!
//! Nothing here knows units or language models. Every function takes a closure and returns a [`NumericError`] instead of a number that is
//! not finite.

mod error;
mod integer;
mod line;
mod root;

pub use error::NumericError;
pub(crate) use integer::float;
pub use integer::{bisect, largest_where, largest_where_until, smallest_where};
pub use line::{Line, fit_line};
pub use root::{Tolerance, find_root, find_root_above};
