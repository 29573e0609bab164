//! Comparisons, ground truth, goldens and verdicts.
//!
//! Promises: a check is green only when it compared something and found it equal, or inside the bound
//! that it states; what could not run is `not run`, never green; every kind of check has a planted
//! fault that turns it red.
//!
//! Not verified here: a GPU, since there is no CUDA engine yet.
//!
//! Reading order: `check` (what a verdict is), `contract` (what is promised to be equal to what), `suites` (what
//! is compared), `battery` (single operations), `golden` (earlier bytes), `teeth` and `planted` (faults that
//! must be seen); `margin`, `reachable` and `mismatch` explain; `fixtures` is what it all runs on.

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
