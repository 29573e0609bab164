//! What is promised to be equal to what: the contract table, as code.
//!
//! Promises: every cell (axis, operation, path) has one claim; a claim is proved only by evidence that a
//! check of this very run brought, broken by one red check, and otherwise `not proved`. What is not
//! claimed is never shown as proved, whatever evidence comes along.
//! Leaves comparing to the suites.

use std::collections::BTreeMap;

use crate::battery::Family;
use crate::check::{Check, Outcome};

/// What is varied while bytes must stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Axis {
    /// Production against reference.
    Reference,
    /// The same call twice.
    Run,
    /// A row alone and beside 1 to 8 others.
    Width,
    /// A prompt in one call and in several.
    Chunk,
    /// Numbers of threads.
    Threads,
    /// Instruction sets.
    Simd,
    /// Speculative against plain decoding.
    Drafting,
    /// Accepted earlier bytes.
    Golden,
    /// Where weights are.
    Residency,
    /// Captured against launched one by one.
    Graph,
    /// Order in which threads of a device run.
    Schedule,
}

impl Axis {
    /// All axes.
    pub const ALL: [Self; 11] = [
        Self::Reference,
        Self::Run,
        Self::Width,
        Self::Chunk,
        Self::Threads,
        Self::Simd,
        Self::Drafting,
        Self::Golden,
        Self::Residency,
        Self::Graph,
        Self::Schedule,
    ];

    /// The name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reference => "reference",
            Self::Run => "run to run",
            Self::Width => "width",
            Self::Chunk => "chunk",
            Self::Threads => "threads",
            Self::Simd => "simd",
            Self::Drafting => "drafting",
            Self::Golden => "golden",
            Self::Residency => "residency",
            Self::Graph => "graph replay",
            Self::Schedule => "schedule",
        }
    }
}

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// Operations of one family, alone.
    Operations(Family),
    /// Logits, every intermediate and the state of a whole model.
    Model,
}

impl Subject {
    /// The name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Operations(family) => family.name(),
            Self::Model => "model",
        }
    }
}

/// Which code computes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Path {
    /// The CPU engine, experts added up in slot order.
    CpuOrdered,
    /// The CPU engine, experts added up as they arrive.
    CpuAtomic,
    /// A GPU.
    Cuda,
}

impl Path {
    /// The name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::CpuOrdered => "cpu ordered",
            Self::CpuAtomic => "cpu atomic",
            Self::Cuda => "cuda",
        }
    }
}

/// A cell of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cell {
    /// What is varied.
    pub axis: Axis,
    /// What is compared.
    pub subject: Subject,
    /// Which code.
    pub path: Path,
}

/// What a cell promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Equal bytes.
    Bitwise,
    /// Inside a bound derived for each element from the operation's terms.
    Bounded,
    /// Nothing, and why.
    NotClaimed(&'static str),
}

impl Claim {
    /// The name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bitwise => "bitwise",
            Self::Bounded => "bounded",
            Self::NotClaimed(_) => "not claimed",
        }
    }
}

/// The claim of a cell; `None` where the combination has no meaning.
#[must_use]
pub fn claim(cell: Cell) -> Option<Claim> {
    let Cell { axis, subject, path } = cell;
    match (path, axis) {
        (Path::Cuda, Axis::Golden | Axis::Threads | Axis::Simd) => None,
        (Path::Cuda, _) => Some(Claim::NotClaimed("there is no CUDA engine yet")),
        (_, Axis::Residency | Axis::Graph | Axis::Schedule) => None,
        (Path::CpuAtomic, Axis::Reference) => match subject {
            Subject::Operations(Family::Moe) => Some(Claim::Bounded),
            Subject::Model => Some(Claim::NotClaimed("bits follow the order of arrival")),
            Subject::Operations(_) => None,
        },
        (Path::CpuAtomic, Axis::Run) => match subject {
            Subject::Model => Some(Claim::NotClaimed("bits follow the order of arrival")),
            Subject::Operations(_) => None,
        },
        (Path::CpuAtomic, _) => None,
        (Path::CpuOrdered, Axis::Reference | Axis::Width | Axis::Threads | Axis::Simd) => {
            Some(Claim::Bitwise)
        }
        (Path::CpuOrdered, _) => match subject {
            Subject::Model => Some(Claim::Bitwise),
            Subject::Operations(_) => None,
        },
    }
}

/// All cells that mean something, with their claims.
#[must_use]
pub fn table() -> Vec<(Cell, Claim)> {
    let mut table = Vec::new();
    for axis in Axis::ALL {
        for path in [Path::CpuOrdered, Path::CpuAtomic, Path::Cuda] {
            let operations = Family::ALL.map(Subject::Operations);
            for subject in operations.into_iter().chain([Subject::Model]) {
                // One line for the whole of what does not exist.
                if path == Path::Cuda && subject != Subject::Model {
                    continue;
                }
                let cell = Cell { axis, subject, path };
                table.extend(claim(cell).map(|claim| (cell, claim)));
            }
        }
    }
    table
}

/// What a check brings for a cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// Cases compared.
    pub cases: u64,
    /// Elements compared.
    pub elements: u64,
    /// Runs of the path.
    pub runs: u64,
}

/// What a run says of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Every check that was about it is equal, and there was one.
    Proved,
    /// A check that was about it is red.
    Broken,
    /// No check was about it.
    NotProved,
    /// Nothing is promised.
    NotClaimed,
}

impl Status {
    /// The name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Proved => "proved",
            Self::Broken => "broken",
            Self::NotProved => "not proved",
            Self::NotClaimed => "not claimed",
        }
    }
}

/// A cell after a run.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    /// The cell.
    pub cell: Cell,
    /// What it promises.
    pub claim: Claim,
    /// What the run says of it.
    pub status: Status,
    /// The evidence of the checks that were equal.
    pub evidence: Evidence,
}

/// The table with what the checks of a run proved.
#[must_use]
pub fn judge(checks: &[Check]) -> Vec<Line> {
    let mut found: BTreeMap<Cell, (Evidence, bool)> = BTreeMap::new();
    for check in checks {
        for (cell, evidence) in &check.evidence {
            let (sum, broken) = found.entry(*cell).or_default();
            match check.outcome {
                Outcome::Equal => {
                    sum.cases += evidence.cases;
                    sum.elements += evidence.elements;
                    sum.runs += evidence.runs;
                }
                Outcome::Different(_) => *broken = true,
                Outcome::NotRun(_) => {}
            }
        }
    }
    let line = |(cell, claim): (Cell, Claim)| {
        let (evidence, broken) = found.get(&cell).copied().unwrap_or_default();
        let status = match claim {
            Claim::NotClaimed(_) => Status::NotClaimed,
            _ if broken => Status::Broken,
            _ if evidence.elements > 0 => Status::Proved,
            _ => Status::NotProved,
        };
        Line { cell, claim, status, evidence }
    };
    table().into_iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{Lane, Question, Tally};

    fn check(cell: Cell, equal: bool) -> Check {
        let mut tally = Tally::new();
        tally.choices("x", &[1], &[if equal { 1 } else { 2 }]);
        tally.prove(cell, Evidence { cases: 1, elements: 1, runs: 1 });
        tally.finish(Question::new("case", "other", Lane::Bits, "equal"))
    }

    fn status(checks: &[Check], cell: Cell) -> Status {
        judge(checks).into_iter().find(|line| line.cell == cell).unwrap().status
    }

    #[test]
    fn a_cell_without_evidence_is_not_proved_and_one_red_check_breaks_it() {
        let claimed: Vec<Cell> = table()
            .into_iter()
            .filter(|(_, claim)| !matches!(claim, Claim::NotClaimed(_)))
            .map(|(cell, _)| cell)
            .collect();
        assert!(claimed.len() > 40, "{}", claimed.len());
        let all: Vec<Check> = claimed.iter().map(|cell| check(*cell, true)).collect();
        for (index, cell) in claimed.iter().enumerate() {
            assert_eq!(status(&all, *cell), Status::Proved);
            let mut without = all.clone();
            without.remove(index);
            assert_eq!(status(&without, *cell), Status::NotProved, "{cell:?}");
            without.push(check(*cell, true));
            without.push(check(*cell, false));
            assert_eq!(status(&without, *cell), Status::Broken, "{cell:?}");
        }
    }

    #[test]
    fn what_is_not_claimed_is_never_proved() {
        for (cell, claim) in table() {
            if let Claim::NotClaimed(_) = claim {
                assert_eq!(status(&[check(cell, true)], cell), Status::NotClaimed);
            }
        }
    }
}
