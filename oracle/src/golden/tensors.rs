//! The payload of a golden: rows of raw f32 in a safetensors file.
//!
//! Promises: bits go in and come out unchanged, whatever they mean (NaN payloads, -0.0, subnormals); the
//! same rows give the same bytes on every machine. Leaves the container to the `safetensors` crate.

use safetensors::{Dtype, SafeTensors, tensor::TensorView};

use crate::digest;

/// Bytes of a payload at most.
pub const PAYLOAD_BYTES_MAX: usize = 256 << 10;

/// A named array, outermost dimension first.
#[derive(Clone, Debug)]
pub struct Tensor {
    /// The name.
    pub name: String,
    /// Lengths of the dimensions.
    pub shape: Vec<usize>,
    /// The values.
    pub values: Vec<f32>,
}

impl Tensor {
    /// The values as they are stored.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        self.values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    /// Name, type, shape and digest, as in the text of the golden.
    #[must_use]
    pub fn line(&self) -> String {
        let shape: Vec<String> = self.shape.iter().map(usize::to_string).collect();
        let sha256 = digest::of_bytes(&self.bytes());
        format!("tensor {}: f32 [{}], sha256 {sha256}", self.name, shape.join(", "))
    }
}

/// Rows of logits at chosen positions, and intermediates of the prompt's last token.
#[derive(Clone, Debug, Default)]
pub struct Tensors {
    /// Positions whose logits are rows of `logits`.
    pub positions: Vec<usize>,
    /// The arrays, sorted by name.
    pub arrays: Vec<Tensor>,
}

impl Tensors {
    /// The array of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.arrays.iter().find(|tensor| tensor.name == name)
    }

    /// The logits after the token at `position`, where they were kept.
    #[must_use]
    pub fn logits(&self, position: usize) -> Option<&[f32]> {
        let index = self.positions.iter().position(|p| *p == position)?;
        let logits = self.get("logits")?;
        logits.values.chunks_exact(*logits.shape.last()?).nth(index)
    }

    /// The file.
    ///
    /// # Panics
    /// When a shape does not fit its values.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let arrays: Vec<(&Tensor, Vec<u8>)> = self.arrays.iter().map(|t| (t, t.bytes())).collect();
        let views = arrays.iter().map(|(tensor, bytes)| {
            let view = TensorView::new(Dtype::F32, tensor.shape.clone(), bytes);
            (tensor.name.as_str(), view.expect("a shape fits its values"))
        });
        safetensors::serialize(views, None).expect("names and shapes are plain")
    }

    /// The arrays of a file, without positions.
    ///
    /// # Errors
    /// Names what is wrong.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, String> {
        let parsed = SafeTensors::deserialize(bytes).map_err(|error| error.to_string())?;
        let mut arrays = Vec::new();
        for (name, view) in parsed.iter() {
            if view.dtype() != Dtype::F32 {
                return Err(format!("tensor {name}: type {:?}, must be F32", view.dtype()));
            }
            let four = |bytes: &[u8]| bytes.try_into().expect("chunks of four");
            let values = view.data().chunks_exact(4).map(|b| f32::from_le_bytes(four(b))).collect();
            arrays.push(Tensor { name: name.to_owned(), shape: view.shape().to_vec(), values });
        }
        arrays.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Self { positions: Vec::new(), arrays })
    }
}
