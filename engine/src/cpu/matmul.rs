//! Matrix products: many at a time, cut into items of a few rows of weights.
//!
//! Promises: the bytes of `reference::matmul`. Weights are read where they are stored, each row once for
//! every [`TILE`] tokens that meet it.

use super::activations::{Activations, Encoded};
use super::float;
use super::level::Level;
use super::threads::Threads;
use crate::format::weights::Matrix;
use crate::reference;
use crate::rows::Rows;
use crate::tensor::DType;

/// Rows of weights of one item.
const ITEM_ROWS: usize = 32;
/// Tokens that meet a row while it is unpacked: their codes stay in the second cache.
const TILE: usize = 16;

/// One product: a matrix with some rows of activations.
pub struct Job<'a> {
    /// The matrix.
    pub weights: Matrix,
    /// The activations.
    pub x: &'a Activations,
    /// The rows of them to meet.
    pub tokens: Vec<usize>,
}

/// Rows of the output of a job, computed by one thread.
struct Item<'a> {
    job: &'a Job<'a>,
    first: usize,
    /// `[row][token]`.
    out: &'a mut [f32],
}

/// Products at one SIMD level on some threads.
pub struct Kernels {
    level: Level,
    threads: Threads,
}

impl Kernels {
    /// Kernels of this level on these threads.
    #[must_use]
    pub fn new(level: Level, threads: Threads) -> Self {
        Self { level, threads }
    }

    /// The SIMD level.
    #[must_use]
    pub fn level(&self) -> Level {
        self.level
    }

    /// The threads.
    #[must_use]
    pub fn threads(&self) -> &Threads {
        &self.threads
    }

    /// The product with all rows of `x`; with `int8`, quantised weights meet quantised activations.
    #[must_use]
    pub fn matmul(&self, weights: &Matrix, x: &Activations, int8: bool) -> Rows {
        let tokens = (0..x.rows().count()).collect();
        let job = Job { weights: weights.clone(), x, tokens };
        self.products(&[job], int8).pop().unwrap_or_else(|| Rows::empty(weights.rows()))
    }

    /// Products side by side: group `g` of the rows of the matrix meets part `g` of each row of `x`.
    #[must_use]
    pub fn grouped(&self, weights: &Matrix, groups: usize, x: &Activations, int8: bool) -> Rows {
        let (count, rank) = (x.rows().count(), weights.rows() / groups);
        let parts: Activations = Rows::of(weights.columns(), x.rows().values().to_vec()).into();
        let job = |group| Job {
            weights: weights.row_range(group * rank, rank),
            x: &parts,
            tokens: (0..count).map(|token| token * groups + group).collect(),
        };
        let jobs: Vec<Job<'_>> = (0..groups).map(job).collect();
        let results = self.products(&jobs, int8);
        let mut out = Rows::zeros(count, weights.rows());
        for (group, result) in results.iter().enumerate() {
            for (token, row) in result.iter().enumerate() {
                out.row_mut(token)[group * rank..(group + 1) * rank].copy_from_slice(row);
            }
        }
        out
    }

    /// All products of the jobs, `[tokens][rows]` each.
    #[must_use]
    pub fn products(&self, jobs: &[Job<'_>], int8: bool) -> Vec<Rows> {
        let mut outs: Vec<Vec<f32>> = Vec::with_capacity(jobs.len());
        let (mut items, mut work) = (Vec::new(), 0);
        for job in jobs {
            self.encode(job, int8);
            outs.push(vec![0.0; job.weights.rows() * job.tokens.len()]);
        }
        for (job, out) in jobs.iter().zip(&mut outs) {
            let width = job.tokens.len();
            if width == 0 {
                continue;
            }
            for (index, out) in out.chunks_mut(ITEM_ROWS * width).enumerate() {
                work += out.len() * job.weights.columns();
                items.push(Item { job, first: index * ITEM_ROWS, out });
            }
        }
        let each = work / items.len().max(1);
        self.threads.each(items, each, |item| self.run(item, int8));
        let turned = jobs.iter().zip(outs);
        turned.map(|(job, out)| turn(out, job.tokens.len(), job.weights.rows())).collect()
    }

    /// Encodes the activations of a job as its weights ask.
    fn encode(&self, job: &Job<'_>, int8: bool) {
        if int8 && self.level.is_avx2() {
            let _ = self.encoded(job);
        }
    }

    fn encoded<'a>(&self, job: &Job<'a>) -> Option<&'a Encoded> {
        match job.weights.dtype() {
            DType::Q8_0 => Some(job.x.q8(&self.threads)),
            DType::Iq2Xxs | DType::Q2K | DType::Q4K => Some(job.x.q8_k(&self.threads)),
            DType::F32 | DType::F16 | DType::Bf16 | DType::I32 => None,
        }
    }

    fn run(&self, item: Item<'_>, int8: bool) {
        let Item { job, first, out } = item;
        let rows = out.len() / job.tokens.len();
        #[cfg(target_arch = "x86_64")]
        if self.level.is_avx2() {
            match self.encoded(job).filter(|_| int8) {
                // SAFETY: a level can only be had where the processor has its features.
                Some(x) => unsafe { quantised(&job.weights, first, x, &job.tokens, out) },
                None => {
                    let weights = job.weights.row_range(first, rows);
                    float::products(&weights, job.x.rows(), &job.tokens, out);
                }
            }
            return;
        }
        let weights = job.weights.row_range(first, rows);
        let mut x = Rows::empty(job.x.rows().width());
        job.tokens.iter().for_each(|token| x.push(job.x.rows().row(*token)));
        let product = if int8 {
            reference::matmul::quantised(&weights, &x)
        } else {
            reference::matmul::float(&weights, &x)
        };
        for (token, row) in product.iter().enumerate() {
            for (index, value) in row.iter().enumerate() {
                out[index * job.tokens.len() + token] = *value;
            }
        }
    }
}

/// `[row][token]` to `[token][row]`.
fn turn(out: Vec<f32>, tokens: usize, rows: usize) -> Rows {
    if tokens == 1 {
        return Rows::of(rows, out);
    }
    let mut turned = Rows::zeros(tokens, rows);
    for (token, turned) in turned.values_mut().chunks_exact_mut(rows).enumerate() {
        for (row, value) in turned.iter_mut().enumerate() {
            *value = out[row * tokens + token];
        }
    }
    turned
}

/// Rows from `first` on of a quantised matrix with encoded activations: `out[row][token]`.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
fn quantised(weights: &Matrix, first: usize, x: &Encoded, tokens: &[usize], out: &mut [f32]) {
    use super::avx2::{Format, Scratch, products};
    let format = match weights.dtype() {
        DType::Q8_0 => Format::Q8_0,
        DType::Iq2Xxs => Format::Iq2Xxs,
        DType::Q2K => Format::Q2K,
        DType::Q4K => Format::Q4K,
        DType::F32 | DType::F16 | DType::Bf16 | DType::I32 => unreachable!("encoded weights"),
    };
    let mut scratch = Scratch::default();
    for (tile, tokens_of_tile) in tokens.chunks(TILE).enumerate() {
        for (row, out) in out.chunks_exact_mut(tokens.len()).enumerate() {
            let rows = tokens_of_tile.iter().map(|token| x.row(*token));
            let out = &mut out[tile * TILE..][..tokens_of_tile.len()];
            products(format, weights.row(first + row), x.parts(), rows, out, &mut scratch);
        }
    }
}
