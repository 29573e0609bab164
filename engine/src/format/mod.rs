//! Files: GGUF v3 and safetensors in, named tensors and a tokenizer out.
//!
//! `header` turns bytes into a raw header, `validate` is the only gate behind which a file counts as
//! usable, `gguf_error` lists its refusals, `gguf` is the opened file, `writer` makes such files,
//! `quant` decodes and encodes blocks,
//! `weights` finds the tensors of a model, `tokenizer` and `chat` go from text to ids and back.

pub mod chat;
pub mod gguf;
mod gguf_error;
mod header;
pub(crate) mod iq2_grid;
pub mod quant;
pub mod safetensors;
pub mod tokenizer;
mod validate;
mod value;
pub mod weights;
pub mod writer;

pub use gguf::Gguf;
pub use gguf_error::GgufError;
pub use tokenizer::{Tokenizer, TokenizerError};
pub use value::{Metadata, Value, ValueType};
pub use weights::WeightsError;
