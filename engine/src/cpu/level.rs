//! Vector instructions of the processor.
//!
//! Promises: a [`Level`] can only be had where the processor has its instructions, so code that is compiled
//! for it may run.

use crate::session::RunError;
use crate::switches::Simd;

/// Instructions that kernels are written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level(Kind);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Scalar,
    Avx2,
}

impl Level {
    /// No vectors beyond what the compiler makes of plain loops.
    pub const SCALAR: Self = Self(Kind::Scalar);

    /// AVX2 with fused multiply-add and half-precision conversion, where the processor has them.
    #[must_use]
    pub fn avx2() -> Option<Self> {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c")
        {
            return Some(Self(Kind::Avx2));
        }
        None
    }

    /// All levels of this processor, the plainest first.
    #[must_use]
    pub fn available() -> Vec<Self> {
        std::iter::once(Self::SCALAR).chain(Self::avx2()).collect()
    }

    /// The level that a switch asks for.
    ///
    /// # Errors
    /// When the processor, or this engine, lacks it.
    pub fn of(simd: Simd) -> Result<Self, RunError> {
        match simd {
            Simd::Auto => Ok(Self::avx2().unwrap_or(Self::SCALAR)),
            Simd::Scalar => Ok(Self::SCALAR),
            Simd::Avx2 => Self::avx2().ok_or(RunError::Simd { simd: simd.name() }),
            Simd::Avx512 => Err(RunError::Simd { simd: simd.name() }),
        }
    }

    /// The name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self.0 {
            Kind::Scalar => "scalar",
            Kind::Avx2 => "avx2",
        }
    }

    /// Whether this is [`Level::avx2`].
    #[must_use]
    pub fn is_avx2(self) -> bool {
        self.0 == Kind::Avx2
    }
}
