//! Comparisons, ground truth, goldens and verdicts.
//!
//! Promises: a check is green only when it compared something and found it equal, or inside the bound
//! that it states; what could not run is `not run`, never green; every kind of check has a planted
//! fault that turns it red.
//!
//! Not verified here: anything that has not been built yet. There is one implementation, the CPU
//! reference; it is held against independent implementations and against its own earlier bytes.
//!
//! Reading order: `check` (what a verdict is), `suites` (what is compared), `golden` (earlier bytes),
//! `fixtures` (what it is compared on); `speculation` (generating with drafts against without).

pub mod battery;
pub mod check;
pub mod contract;
pub mod digest;
pub mod fixtures;
pub mod golden;
pub mod hostile;
pub mod margin;
pub mod mismatch;
pub mod noise;
pub mod npy;
pub mod planted;
pub mod reachable;
pub mod record;
pub mod sensitivity;
pub mod speculation;
pub mod stats;
pub mod suites;
pub mod teeth;
pub mod vectors;
