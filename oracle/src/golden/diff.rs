//! What moved between two goldens, said in tokens, units in the last place, ranks and margins.
//!
//! Promises: two goldens that are not the same have at least one line here; elements are named with both
//! bit patterns. Explains only: whether two goldens are the same is [`Golden::same`].

use std::fmt;

use super::{Golden, Step, Tensor};

/// Steps that are listed one by one.
const STEPS_MAX: usize = 8;

/// What moved.
#[derive(Clone, Debug, Default)]
pub struct Difference {
    /// What the accepted golden was made from and is no longer so.
    pub stale: Vec<String>,
    /// Intermediates, the first one that moved first.
    pub taps: Vec<String>,
    /// Logits of the prompt, and rows that were kept.
    pub logits: Vec<String>,
    /// Greedy choices.
    pub steps: Vec<String>,
    /// Anything else.
    pub other: Vec<String>,
}

impl Difference {
    /// Whether nothing moved.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lines().next().is_none()
    }

    fn lines(&self) -> impl Iterator<Item = &String> {
        [&self.stale, &self.taps, &self.logits, &self.steps, &self.other].into_iter().flatten()
    }

    /// The first line of each kind.
    #[must_use]
    pub fn summary(&self) -> String {
        let stale = self.stale.first().map(|line| format!("stale: {line}"));
        let rest = [&self.taps, &self.logits, &self.steps, &self.other];
        let rest = rest.into_iter().filter_map(|lines| lines.first().cloned());
        stale.into_iter().chain(rest).collect::<Vec<_>>().join("; ")
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds = [
            ("stale", &self.stale),
            ("intermediates", &self.taps),
            ("logits", &self.logits),
            ("greedy choices", &self.steps),
            ("other", &self.other),
        ];
        for (kind, lines) in kinds.iter().filter(|(_, lines)| !lines.is_empty()) {
            writeln!(f, "{kind}")?;
            lines.iter().try_for_each(|line| writeln!(f, "  {line}"))?;
        }
        Ok(())
    }
}

/// Values of f32 between two bit patterns; `None` where one is NaN.
#[must_use]
pub fn ulp(a: u32, b: u32) -> Option<u64> {
    let place = |bits: u32| {
        let magnitude = i64::from(bits & 0x7fff_ffff);
        (magnitude <= 0x7f80_0000).then_some(if bits >> 31 == 1 { -magnitude } else { magnitude })
    };
    Some(place(a)?.abs_diff(place(b)?))
}

fn bits(golden: u32, ours: u32) -> String {
    let apart = match ulp(golden, ours) {
        Some(0) => "signs of zero".to_owned(),
        Some(ulp) => format!("{ulp} ulp"),
        None => "NaN".to_owned(),
    };
    let [a, b] = [golden, ours].map(|bits| format!("{bits:08x} ({})", f32::from_bits(bits)));
    format!("golden {a}, now {b}, {apart}")
}

/// What moved between two rows of values: the first element, how many, how far.
fn values(name: &str, golden: &[f32], ours: &[f32]) -> Option<String> {
    if golden.len() != ours.len() {
        return Some(format!("{name}: golden {} elements, now {}", golden.len(), ours.len()));
    }
    let pairs = golden.iter().zip(ours).map(|(a, b)| (a.to_bits(), b.to_bits()));
    let moved: Vec<(usize, (u32, u32))> = pairs.enumerate().filter(|(_, (a, b))| a != b).collect();
    let (index, (a, b)) = *moved.first()?;
    let largest = moved.iter().filter_map(|(_, (a, b))| ulp(*a, *b)).max();
    let largest = largest.map_or("NaN".to_owned(), |ulp| format!("{ulp} ulp"));
    let (count, of) = (moved.len(), golden.len());
    Some(format!("{name}[{index}]: {}; {count} of {of} elements, largest {largest}", bits(a, b)))
}

/// What moved from an accepted golden to the present one.
#[must_use]
pub fn difference(golden: &Golden, ours: &Golden) -> Difference {
    let mut moved = Difference {
        stale: golden.made_from.stale(&ours.made_from),
        taps: taps(golden, ours),
        logits: logits(golden, ours),
        steps: steps(golden, ours),
        other: Vec::new(),
    };
    if golden.case != ours.case {
        moved.other.push(format!("case: golden {}, now {}", golden.case, ours.case));
    }
    if moved.is_empty() && !golden.same(ours) {
        moved.other.push("the files differ in what no value explains".into());
    }
    moved
}

fn taps(golden: &Golden, ours: &Golden) -> Vec<String> {
    let named =
        |tap: &super::TapDigest| ours.taps.iter().find(|other| other.name == tap.name).cloned();
    let moved: Vec<_> = golden.taps.iter().filter(|tap| named(tap).as_ref() != Some(tap)).collect();
    let ids = |golden: &Golden| golden.steps.iter().map(|step| step.id).collect::<Vec<_>>();
    let other_tokens = ids(golden) != ids(ours);
    let mut lines = Vec::new();
    // The order of the model, not that of the names.
    for tap in &golden.taps {
        let [a, b] = [golden, ours].map(|golden| golden.tensors.get(&tap.name));
        lines.extend(tensor(a, b));
    }
    if let Some(first) = moved.first() {
        let now = named(first).map_or("not there".to_owned(), |tap| tap.sha256);
        let (count, of) = (moved.len(), golden.taps.len());
        let line = format!(
            "first that moved: {}: golden {}, now {now}; {count} of {of} moved",
            first.name, first.sha256
        );
        // Digests go over the steps too, so after other tokens all of them move.
        if other_tokens {
            lines.push(format!("{line}; the steps ran other tokens"));
        } else {
            lines.insert(0, line);
        }
    }
    for tap in ours.taps.iter().filter(|tap| golden.taps.iter().all(|g| g.name != tap.name)) {
        lines.push(format!("{}: not in the golden", tap.name));
    }
    lines
}

fn tensor(golden: Option<&Tensor>, ours: Option<&Tensor>) -> Option<String> {
    match (golden, ours) {
        (None, None) => None,
        (Some(a), Some(b)) if a.shape == b.shape => {
            values(&format!("{} of the prompt's last token", a.name), &a.values, &b.values)
        }
        (Some(a), Some(b)) => {
            Some(format!("{}: golden shape {:?}, now {:?}", a.name, a.shape, b.shape))
        }
        (Some(a), None) => Some(format!("{}: rows not kept any more", a.name)),
        (None, Some(b)) => Some(format!("{}: no rows in the golden", b.name)),
    }
}

fn logits(golden: &Golden, ours: &Golden) -> Vec<String> {
    let mut lines = Vec::new();
    if golden.prompt_logits != ours.prompt_logits {
        let (a, b) = (&golden.prompt_logits, &ours.prompt_logits);
        lines.push(format!("logits of the prompt: golden {a}, now {b}"));
    }
    if golden.tensors.positions != ours.tensors.positions {
        let (a, b) = (&golden.tensors.positions, &ours.tensors.positions);
        lines.push(format!("positions kept: golden {a:?}, now {b:?}"));
    }
    for position in &golden.tensors.positions {
        let rows = (golden.tensors.logits(*position), ours.tensors.logits(*position));
        if let (Some(a), Some(b)) = rows {
            lines.extend(values(&format!("logits after position {position}, id "), a, b));
        }
    }
    lines
}

fn steps(golden: &Golden, ours: &Golden) -> Vec<String> {
    let (mut lines, mut moved) = (Vec::new(), 0);
    let total = golden.steps.len();
    for (index, (a, b)) in golden.steps.iter().zip(&ours.steps).enumerate() {
        if a == b {
            continue;
        }
        moved += 1;
        if moved <= STEPS_MAX {
            lines.push(step(golden, ours, index, a, b));
        }
        if a.id != b.id {
            if index + 1 < total {
                lines.push(format!("steps from {} on follow another token", index + 1));
            }
            return lines;
        }
    }
    if total != ours.steps.len() {
        lines.push(format!("steps: golden {total}, now {}", ours.steps.len()));
    } else if golden.last_row != ours.last_row {
        lines.push(format!(
            "row after the last step: golden {}, now {}",
            golden.last_row, ours.last_row
        ));
    }
    if moved > 0 {
        lines.push(format!("{moved} of {total} steps moved, no token did"));
    }
    lines
}

fn step(golden: &Golden, ours: &Golden, index: usize, a: &Step, b: &Step) -> String {
    let mut parts = Vec::new();
    if a.id != b.id {
        let rank = rank(golden, ours, index, a.id, b);
        parts.push(format!("id {} -> {} ({} has rank {rank} now)", a.id, b.id, a.id));
    } else {
        parts.push(format!("id {}, rank 1", a.id));
    }
    if a.logit != b.logit {
        parts.push(format!("logit {}", bits(a.logit, b.logit)));
    }
    if a.runner_up != b.runner_up {
        parts.push(format!("runner-up {} -> {}", a.runner_up, b.runner_up));
    }
    parts.push(if a.margin == b.margin {
        format!("margin {}", a.margin)
    } else {
        format!("margin {} -> {}", a.margin, b.margin)
    });
    if a.row != b.row {
        parts.push("row moved".into());
    }
    format!("step {index}: {}", parts.join(", "))
}

/// Where `id` stands in the present row of a step, as far as it is known.
fn rank(golden: &Golden, ours: &Golden, index: usize, id: u32, step: &Step) -> String {
    // Step 0 chooses from the row of the prompt's last token, which is the first kept with a step.
    let prompt = golden.made_from.prompt.split(' ').next().and_then(|n| n.parse::<usize>().ok());
    let row = prompt.and_then(|prompt| ours.tensors.logits((prompt + index).checked_sub(1)?));
    let value = |row: &[f32]| row.get(id as usize).copied();
    match row.and_then(|row| Some((row, value(row)?))) {
        Some((row, value)) => {
            let ahead = row
                .iter()
                .enumerate()
                .filter(|(other, x)| **x > value || (**x == value && *other < id as usize));
            (1 + ahead.count()).to_string()
        }
        None if step.runner_up == id => "2".into(),
        None => "3 or more".into(),
    }
}
