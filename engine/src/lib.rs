//! DeepSeek-V4: model files, the CPU reference that defines every operation, sessions.
//!
//! Promises: a file that opens can run; one model file and one token sequence have one value for every
//! logit and every named intermediate, whatever the grouping of tokens into calls; bad input is an
//! [`Error`] that names file, field and value.
//!
//! # Reading order
//!
//! 1. `tensor`, `format` - what a file holds and how it is refused;
//! 2. `config`, `format::weights`, `model` - what the engine may rely on;
//! 3. `profile` - what differs between published implementations of the same model;
//! 4. `reference` - what every operation means, `reference::order` first: it is the numerics contract;
//! 5. `backend`, `forward`, `state` - the contract of those who compute, and the sequence they follow;
//! 6. `cpu` - the same bytes with vectors and threads;
//! 7. `session`, `mtp`, `sampler`, `tap` - running it and looking inside;
//! 8. `decode` - generating, with or without drafts;
//! 9. `switches` - what a user may turn.

pub mod backend;
pub mod config;
pub mod cpu;
pub mod decode;
pub mod error;
pub mod format;
pub mod forward;
pub mod model;
pub mod mtp;
pub mod profile;
pub mod reference;
pub mod rows;
pub mod sampler;
pub mod session;
pub mod state;
pub mod switches;
pub mod tap;
pub mod tensor;

pub use error::{Error, ErrorKind, Result};
pub use model::{Model, MtpModel};
pub use profile::Profile;
pub use session::Session;
pub use switches::Switches;
