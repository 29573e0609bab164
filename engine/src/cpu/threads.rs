//! Threads and the work spread over them.
//!
//! Promises: work comes in items that are cut beforehand, each with its own place to write; whichever thread
//! is free takes the next, so no result depends on the number of threads or on their speed. Too little
//! work to be worth waking anybody runs on the caller.

use std::sync::{Mutex, PoisonError};

use crate::session::RunError;

/// Work below which nobody is woken, in multiplications or the like: about ten microseconds.
const WORTH_WAKING: usize = 100_000;

/// A fixed number of threads, the caller among them.
pub struct Threads {
    /// The others; none when the caller is alone.
    pool: Option<rayon::ThreadPool>,
    count: usize,
}

impl Threads {
    /// `count` threads.
    ///
    /// # Errors
    /// When the system has no more threads.
    pub fn new(count: usize) -> Result<Self, RunError> {
        let others = count.saturating_sub(1);
        let build = || {
            let name = |index| format!("cpu-{index}");
            rayon::ThreadPoolBuilder::new().num_threads(others).thread_name(name).build()
        };
        let pool = if others == 0 { None } else { Some(build()) };
        let pool = pool.transpose().map_err(|_| RunError::Threads { count })?;
        Ok(Self { pool, count: others + 1 })
    }

    /// Number of threads.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Runs `run` on every item; `work` is what one item costs, in multiplications or the like.
    pub fn each<T: Send>(&self, items: Vec<T>, work: usize, run: impl Fn(T) + Sync) {
        if items.len() < 2 || items.len().saturating_mul(work) < WORTH_WAKING {
            items.into_iter().for_each(run);
        } else {
            self.spread(items, run);
        }
    }

    /// Calls `part` once for each of `0..parts`.
    pub fn run(&self, parts: usize, part: &(dyn Fn(usize) + Sync)) {
        self.spread((0..parts).collect(), part);
    }

    /// Cuts `values` into chunks of `length`, the last one perhaps shorter, and calls `each` once with
    /// the number of each chunk and the chunk.
    pub fn each_chunk<T: Send>(
        &self,
        values: &mut [T],
        length: usize,
        each: &(dyn Fn(usize, &mut [T]) + Sync),
    ) {
        let chunks = values.chunks_mut(length).enumerate().collect();
        self.spread(chunks, |(index, chunk): (usize, &mut [T])| each(index, chunk));
    }

    /// The same for items that must meet on several threads however little they cost.
    pub fn spread<T: Send>(&self, items: Vec<T>, run: impl Fn(T) + Sync) {
        let pool = match &self.pool {
            Some(pool) if items.len() > 1 => pool,
            _ => {
                items.into_iter().for_each(run);
                return;
            }
        };
        let others = (self.count - 1).min(items.len().saturating_sub(1));
        let queue = Mutex::new(items.into_iter());
        let work = || {
            // A panic of `run` is not under the lock.
            let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
            while let Some(item) = next() {
                run(item);
            }
        };
        pool.in_place_scope(|scope| {
            (0..others).for_each(|_| scope.spawn(|_| work()));
            work();
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_runs_once_on_any_number_of_threads() {
        for count in [1, 2, 3, 7] {
            let threads = Threads::new(count).unwrap();
            assert_eq!(threads.count(), count);
            for items in [0, 1, 2, 3, 100] {
                let mut runs = vec![0_u32; items];
                threads.spread(runs.iter_mut().collect(), |run| *run += 1);
                threads.each(runs.iter_mut().collect(), usize::MAX, |run| *run += 1);
                threads.each(runs.iter_mut().collect(), 0, |run| *run += 1);
                assert!(runs.iter().all(|runs| *runs == 3), "{count} threads, {items} items");
            }
        }
    }
}
