//! Many independent computations, on several threads where the feature `parallel` is on; results in the order of what they are of.

/// The results for all items.
#[cfg(feature = "parallel")]
pub(super) fn mapped<T: Sync, U: Send>(items: &[T], compute: impl Fn(&T) -> U + Send + Sync) -> Vec<U> {
    use rayon::prelude::*;
    items.par_iter().map(compute).collect()
}

/// The results for all items.
#[cfg(not(feature = "parallel"))]
pub(super) fn mapped<T, U>(items: &[T], compute: impl Fn(&T) -> U) -> Vec<U> {
    items.iter().map(compute).collect()
}
