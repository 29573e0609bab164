//! Arrays of numpy files.
//!
//! Promises: the values of the file as f64 (exact for every type read) with their shape; a missing array
//! or one of another type is an error that names file and array. Leaves parsing to the `npyz` crate.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use npyz::{DType, NpyFile, TypeChar};

/// An array of any number of dimensions, in C order.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    /// Length of each dimension, outermost first.
    pub shape: Vec<usize>,
    /// The values.
    pub values: Vec<f64>,
}

/// A file that cannot be read as asked.
#[derive(Debug, thiserror::Error)]
#[error("{}{}: {problem}", path.display(), array.as_ref().map(|a| format!(" [{a}]")).unwrap_or_default())]
pub struct NpyError {
    path: PathBuf,
    array: Option<String>,
    problem: String,
}

impl Array {
    /// Values of one entry of the first dimension.
    #[must_use]
    pub fn row(&self, index: usize) -> &[f64] {
        let width = self.width();
        &self.values[index * width..(index + 1) * width]
    }

    /// Entries of the first dimension.
    #[must_use]
    pub fn count(&self) -> usize {
        self.shape.first().copied().unwrap_or(1)
    }

    /// Values of each entry of the first dimension.
    #[must_use]
    pub fn width(&self) -> usize {
        self.shape.iter().skip(1).product()
    }

    /// The values as f32; exact when the file holds f32 or shorter.
    #[must_use]
    pub fn as_f32(&self) -> Vec<f32> {
        self.values.iter().map(|value| *value as f32).collect()
    }

    /// The values as bytes; meant for arrays of u8.
    #[must_use]
    pub fn as_bytes(&self) -> Vec<u8> {
        self.values.iter().map(|value| *value as u8).collect()
    }
}

fn read(file: NpyFile<impl Read>) -> io::Result<Array> {
    let invalid = |problem: String| io::Error::new(io::ErrorKind::InvalidData, problem);
    if file.order() != npyz::Order::C {
        return Err(invalid("not in C order".into()));
    }
    let shape = file.shape().iter().map(|n| usize::try_from(*n).unwrap_or(usize::MAX)).collect();
    let DType::Plain(plain) = file.dtype() else {
        return Err(invalid("structured arrays are not read".into()));
    };
    fn widen<T: Into<f64>>(values: Vec<T>) -> Vec<f64> {
        values.into_iter().map(Into::into).collect()
    }
    let values = match (plain.type_char(), plain.size_field()) {
        (TypeChar::Float, 4) => widen(file.into_vec::<f32>()?),
        (TypeChar::Float, 8) => file.into_vec::<f64>()?,
        (TypeChar::Uint, 1) => widen(file.into_vec::<u8>()?),
        (TypeChar::Uint, 2) => widen(file.into_vec::<u16>()?),
        (TypeChar::Int, 2) => widen(file.into_vec::<i16>()?),
        (TypeChar::Int, 4) => widen(file.into_vec::<i32>()?),
        // Indices: far below 2^53.
        (TypeChar::Int, 8) => file.into_vec::<i64>()?.into_iter().map(|v| v as f64).collect(),
        _ => return Err(invalid(format!("type {} is not read", plain))),
    };
    Ok(Array { shape, values })
}

fn fail(path: &Path, array: Option<&str>, problem: impl ToString) -> NpyError {
    let array = array.map(str::to_owned);
    NpyError { path: path.to_path_buf(), array, problem: problem.to_string() }
}

/// Reads an `.npy` file.
///
/// # Errors
/// Names the file.
pub fn read_npy(path: &Path) -> Result<Array, NpyError> {
    let file = File::open(path).map_err(|error| fail(path, None, error))?;
    let file = NpyFile::new(BufReader::new(file)).map_err(|error| fail(path, None, error))?;
    read(file).map_err(|error| fail(path, None, error))
}

/// An opened `.npz` file.
pub struct Npz {
    path: PathBuf,
    archive: npyz::npz::NpzArchive<BufReader<File>>,
}

impl Npz {
    /// Opens the file at `path`.
    ///
    /// # Errors
    /// Names the file.
    pub fn open(path: &Path) -> Result<Self, NpyError> {
        let archive = npyz::npz::NpzArchive::open(path).map_err(|error| fail(path, None, error))?;
        Ok(Self { path: path.to_path_buf(), archive })
    }

    /// Reads the array of that name.
    ///
    /// # Errors
    /// Names file and array.
    pub fn array(&mut self, name: &str) -> Result<Array, NpyError> {
        let found = self.archive.by_name(name);
        let found = found.map_err(|error| fail(&self.path, Some(name), error))?;
        let Some(file) = found else {
            return Err(fail(&self.path, Some(name), "no such array"));
        };
        read(file).map_err(|error| fail(&self.path, Some(name), error))
    }
}
