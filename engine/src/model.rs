//! An opened model: hyper-parameters and tensors, ready to run.
//!
//! Promises: what opens can run: hyper-parameters and every tensor were checked against each other.
//! GGUF is the format that is served; safetensors with a `config.json` beside it is read for ground truth.

use std::path::{Path, PathBuf};

use crate::config::{Config, RawConfig};
use crate::error::{Error, Result};
use crate::format::safetensors::{self, SafetensorsFile};
use crate::format::weights::{self, MtpWeights, TensorSource, Weights};
use crate::format::{Gguf, Metadata, Tokenizer};

/// A main model.
pub struct Model {
    /// Hyper-parameters.
    pub config: Config,
    /// Tensors by role.
    pub weights: Weights,
    /// Names of tensors in the file that nothing reads.
    pub unclaimed: Vec<String>,
    /// Metadata of the file; empty for safetensors.
    pub metadata: Metadata,
    path: PathBuf,
}

/// A multi-token-prediction block.
pub struct MtpModel {
    /// Tensors by role.
    pub weights: MtpWeights,
    /// Names of tensors in the file that nothing reads.
    pub unclaimed: Vec<String>,
}

fn is_safetensors(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "safetensors")
}

fn open_source(path: &Path) -> Result<Box<dyn TensorSource>> {
    Ok(if is_safetensors(path) {
        Box::new(SafetensorsFile::open(path)?)
    } else {
        Box::new(Gguf::open(path)?)
    })
}

impl Model {
    /// Opens the model at `path`: GGUF, or safetensors (by its extension) with `config.json` beside it.
    ///
    /// # Errors
    /// Names the file and the field, tensor or value that cannot be used.
    pub fn open(path: &Path) -> Result<Self> {
        if is_safetensors(path) {
            let source = SafetensorsFile::open(path)?;
            let raw = safetensors::read_config(&path.with_file_name("config.json"))?;
            return Self::from_source(&source, &raw, Metadata::new(), path);
        }
        let file = Gguf::open(path)?;
        let raw = RawConfig::from_gguf(file.metadata());
        let raw = raw.map_err(|error| Error::from(error).in_file(path))?;
        Self::from_source(&file, &raw, file.metadata().clone(), path)
    }

    /// A model whose tensors come from `source`; `path` is what errors name.
    ///
    /// # Errors
    /// As for [`Model::open`].
    pub fn from_source(
        source: &dyn TensorSource,
        raw: &RawConfig,
        metadata: Metadata,
        path: &Path,
    ) -> Result<Self> {
        let config = Config::new(raw).map_err(|error| Error::from(error).in_file(path))?;
        let found = weights::main_weights(source, &config);
        let found = found.map_err(|error| Error::from(error).in_file(path))?;
        let (weights, unclaimed) = (found.weights, found.unclaimed);
        Ok(Self { config, weights, unclaimed, metadata, path: path.to_path_buf() })
    }

    /// The tokenizer that the file carries.
    ///
    /// # Errors
    /// Names the metadata key at fault.
    pub fn tokenizer(&self) -> Result<Tokenizer> {
        Tokenizer::from_metadata(&self.metadata).map_err(|error| error.in_file(&self.path))
    }
}

impl MtpModel {
    /// Opens the block at `path`, which belongs to a model of `config`.
    ///
    /// # Errors
    /// Names the file and the tensor or value that cannot be used.
    pub fn open(path: &Path, config: &Config) -> Result<Self> {
        Self::from_source(open_source(path)?.as_ref(), config).map_err(|error| error.in_file(path))
    }

    /// A block whose tensors come from `source`.
    ///
    /// # Errors
    /// As for [`MtpModel::open`].
    pub fn from_source(source: &dyn TensorSource, config: &Config) -> Result<Self> {
        let found = weights::mtp_weights(source, config)?;
        Ok(Self { weights: found.weights, unclaimed: found.unclaimed })
    }
}
