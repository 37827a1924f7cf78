//! Independent tasks on several threads where the feature `parallel` is on; results are in the order of the tasks, for any number of threads.

use std::ops::Range;

/// The results of numbered tasks, on all threads of rayon's pool.
#[cfg(feature = "parallel")]
pub(crate) fn in_order<T: Send>(tasks: Range<usize>, task: impl Fn(usize) -> T + Send + Sync) -> Vec<T> {
    use rayon::prelude::*;
    // One thread has nothing to hand over to.
    if threads() == 1 { tasks.map(task).collect() } else { tasks.into_par_iter().map(task).collect() }
}

/// The results of numbered tasks, one after another.
#[cfg(not(feature = "parallel"))]
pub(crate) fn in_order<T>(tasks: Range<usize>, task: impl Fn(usize) -> T) -> Vec<T> {
    tasks.map(task).collect()
}

/// The same on so many threads.
#[cfg(all(feature = "parallel", feature = "random"))]
pub(crate) fn in_order_on<T: Send>(
    threads: usize,
    tasks: Range<usize>,
    task: impl Fn(usize) -> T + Send + Sync,
) -> Vec<T> {
    match rayon::ThreadPoolBuilder::new().num_threads(threads).build() {
        Ok(pool) => pool.install(|| in_order(tasks, task)),
        // No threads are to be had but the caller's.
        Err(_) => tasks.map(task).collect(),
    }
}

/// The same on one thread.
#[cfg(all(not(feature = "parallel"), feature = "random"))]
pub(crate) fn in_order_on<T>(_threads: usize, tasks: Range<usize>, task: impl Fn(usize) -> T) -> Vec<T> {
    in_order(tasks, task)
}

/// Threads that work at the same time.
pub(crate) fn threads() -> usize {
    #[cfg(feature = "parallel")]
    return rayon::current_num_threads();
    #[cfg(not(feature = "parallel"))]
    1
}
