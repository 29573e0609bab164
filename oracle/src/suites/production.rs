//! The engine under test, in every variant that must not change a bit.
//!
//! Promises: a [`Production`] makes backends; which threads, instructions and way of adding experts a
//! backend uses is a [`Variant`], and only that. Leaves what a variant may change to the contract.

use std::sync::atomic::{AtomicUsize, Ordering};

use engine::backend::Backend;
use engine::cpu::{Combine, Cpu, Kernels, Level, Threads};
use engine::reference::Reference;
use engine::switches::{MoeDown, Switches};

use super::{Prepared, text};
use crate::contract::Path;
use crate::planted::{Fault, Planted, Slip, When};

/// How an engine is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant {
    /// Instructions.
    pub level: Level,
    /// Threads.
    pub threads: usize,
    /// How experts are added up.
    pub combine: Combine,
}

impl Variant {
    /// What the switches ask for.
    ///
    /// # Errors
    /// When the processor lacks the instructions.
    pub fn of(switches: &Switches) -> engine::Result<Self> {
        let rows = switches.atomic_threshold.value;
        let combine = match switches.moe_down.value {
            MoeDown::Ordered => Combine::Ordered,
            MoeDown::Atomic => Combine::Atomic { rows },
        };
        let level = Level::of(switches.simd.value)?;
        Ok(Self { level, threads: switches.threads.value, combine })
    }

    /// The path of the contract that it takes.
    #[must_use]
    pub fn path(self) -> Path {
        match self.combine {
            Combine::Ordered => Path::CpuOrdered,
            Combine::Atomic { .. } => Path::CpuAtomic,
        }
    }

    /// The name in reports.
    #[must_use]
    pub fn name(self) -> String {
        format!("{} x{}", self.level.name(), self.threads)
    }
}

/// What makes the backends under test.
pub trait Production: Sync {
    /// The backend.
    type Backend: Backend;

    /// A backend of this variant.
    ///
    /// # Errors
    /// When the machine cannot run it.
    fn make(&self, variant: Variant) -> Prepared<Self::Backend>;
}

/// The CPU engine.
#[derive(Clone, Copy, Debug)]
pub struct CpuEngine;

impl Production for CpuEngine {
    type Backend = Cpu;

    fn make(&self, variant: Variant) -> Prepared<Cpu> {
        let threads = Threads::new(variant.threads).map_err(text)?;
        Ok(Cpu::new(Kernels::new(variant.level, threads), variant.combine))
    }
}

/// The reference in place of an engine: proves that a check with one arm is not equal.
#[derive(Clone, Copy, Debug)]
pub struct ReferenceEngine;

impl Production for ReferenceEngine {
    type Backend = Reference;

    fn make(&self, _: Variant) -> Prepared<Reference> {
        Ok(Reference)
    }
}

/// The CPU engine with a planted fault.
#[derive(Debug)]
pub struct PlantedEngine {
    fault: Fault,
    made: AtomicUsize,
}

impl PlantedEngine {
    /// Engines with this fault.
    #[must_use]
    pub fn new(fault: Fault) -> Self {
        Self { fault, made: AtomicUsize::new(0) }
    }
}

impl Production for PlantedEngine {
    type Backend = Planted<Box<Cpu>>;

    fn make(&self, mut variant: Variant) -> Prepared<Self::Backend> {
        let count = self.made.fetch_add(1, Ordering::Relaxed);
        if self.fault == Fault::Slip(Slip::AtomicDown) {
            variant.combine = Combine::Atomic { rows: 1 };
        }
        let active = match self.fault {
            Fault::Ulp(_, When::ThreeThreads) => variant.threads == 3,
            Fault::Ulp(_, When::Scalar) => variant.level == Level::Scalar,
            Fault::Ulp(_, When::EveryOther) => count % 2 == 1,
            _ => true,
        };
        Ok(Planted::if_active(Box::new(CpuEngine.make(variant)?), self.fault, active))
    }
}
