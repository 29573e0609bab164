//! Instruction sets that kernels are written for.
//!
//! Promises: a level that [`Level::available`] lists runs on this machine; all levels give the same bits.

use crate::session::RunError;
use crate::switches::Simd;

/// A set of instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// What every machine has.
    Scalar,
    /// AVX2, FMA and F16C.
    #[cfg(target_arch = "x86_64")]
    Avx2,
}

impl Level {
    /// The levels of this machine, slowest first.
    #[must_use]
    pub fn available() -> Vec<Self> {
        #[allow(unused_mut)]
        let mut levels = vec![Self::Scalar];
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c")
        {
            levels.push(Self::Avx2);
        }
        levels
    }

    /// The fastest level of this machine.
    #[must_use]
    pub fn best() -> Self {
        Self::available().pop().expect("the scalar level is always there")
    }

    /// The name on the command line and in result files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => "avx2",
        }
    }

    /// The level that a switch asks for.
    ///
    /// # Errors
    /// When the processor, or this engine, lacks it.
    pub fn of(simd: Simd) -> Result<Self, RunError> {
        let found = match simd {
            Simd::Auto => return Ok(Self::best()),
            named => Self::available().into_iter().find(|level| level.name() == named.name()),
        };
        found.ok_or(RunError::Simd { simd: simd.name() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_finds_its_level_or_is_refused() {
        assert!(Level::available().contains(&Level::best()));
        assert_eq!(Level::of(Simd::Auto).unwrap(), Level::best());
        assert_eq!(Level::of(Simd::Scalar).unwrap(), Level::Scalar);
        let refused = Level::of(Simd::Avx512).unwrap_err().to_string();
        assert!(refused.contains("avx512"), "{refused}");
    }
}
