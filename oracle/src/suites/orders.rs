//! What the order of experts can change, derived and not tried.
//!
//! Promises: every routed sum of a run in arrival order lies in the set that its own inputs can reach over
//! all orders, layer by layer; every position of a run in slot order is order-proof (no order of the last
//! layer changes the token), flippable (an evaluated order does) or undecided. Shares are figures, not
//! verdicts; a run whose sums or logits do not come out with its own bits proves nothing and is red.

use engine::Profile;
use engine::cpu::Combine;

use super::subjects::{self, Subject};
use super::{Job, Prepared, Production, Setup, Variant, text};
use crate::battery::Family;
use crate::check::{Check, Lane, Question};
use crate::contract::{self, Axis, Cell, Evidence, Path};
use crate::reachable::{check_arrival, of_ordered, record};

pub(super) fn jobs<'a, P: Production>(setup: &'a Setup, production: &'a P) -> Vec<Job<'a>> {
    let subjects = subjects::all(setup);
    let mut jobs: Vec<Job<'a>> = subjects
        .iter()
        .filter(|subject| setup.own.is_some() || subject.name.starts_with("trained-tiny"))
        .map(|subject| {
            let (name, subject) = (format!("orders/{}", subject.name), subject.clone());
            Job::new(name.clone(), move || {
                let rule = "sums and logits of the run made again; shares of positions";
                let question = Question::new(&name, "all orders", Lane::Bits, rule);
                let run = || positions(setup, production, &subject, question.clone());
                setup.checked(question.clone(), run)
            })
        })
        .collect();
    for subject in subjects {
        let long = ["trained-tiny/recall-200", "tiny/tiny-400", "six/six-400"];
        if setup.own.is_some() || long.contains(&subject.name.as_str()) {
            let name = format!("orders/arrival {}", subject.name);
            jobs.push(Job::new(name.clone(), move || {
                let rule = "every sum is one that its terms can reach";
                let question = Question::new(&name, "all orders", Lane::Bound, rule);
                let run = || arrival(setup, production, &subject, question.clone());
                setup.checked(question.clone(), run)
            }));
        }
    }
    jobs
}

fn positions<P: Production>(
    setup: &Setup,
    production: &P,
    subject: &Subject,
    question: Question,
) -> Prepared<Check> {
    let opened = subject.open(setup)?;
    let (model, prompt) = (&opened.model, &opened.prompt);
    let ordered = Variant { combine: Combine::Ordered, ..setup.variant };
    let backend = production.make(ordered)?;
    let seen = record(&backend, model, Profile::DS4, prompt).map_err(text)?;
    let mut tally = setup.tally();
    match of_ordered(&backend, model, Profile::DS4, &seen) {
        Ok(orders) => {
            tally.count(orders.layers.len() + orders.verdicts.len(), orders.compared);
            tally.note(orders.shares().to_string());
            tally.details.orders = Some(orders.shares());
        }
        Err(problem) => tally.require(false, || problem.to_string()),
    }
    Ok(tally.finish(question))
}

fn arrival<P: Production>(
    setup: &Setup,
    production: &P,
    subject: &Subject,
    question: Question,
) -> Prepared<Check> {
    let opened = subject.open(setup)?;
    let (model, prompt) = (&opened.model, &opened.prompt);
    let combine = Combine::Atomic { rows: setup.atomic_rows.min(prompt.len()) };
    let threads = setup.variant.threads.max(2);
    let atomic = Variant { combine, threads, ..setup.variant };
    let backend = production.make(atomic)?;
    let seen = record(&backend, model, Profile::DS4, prompt).map_err(text)?;
    let mut tally = setup.tally();
    match check_arrival(&backend, model, Profile::DS4, &seen) {
        Ok(found) => {
            tally.count(model.config.layers.len(), found.elements);
            let (all, plural, moved) = (found.elements, found.plural, found.reordered);
            tally.note(format!("{plural} of {all} sums have several values, {moved} took another"));
            tally.require(moved > 0, || {
                "not exercised: every sum was that of slot order".to_owned()
            });
            let subject = contract::Subject::Operations(Family::Moe);
            let cell = Cell { axis: Axis::Reference, subject, path: Path::CpuAtomic };
            let elements = found.elements as u64;
            tally.prove(cell, Evidence { cases: 1, elements, runs: 1 });
        }
        Err(problem) => tally.require(false, || problem.to_string()),
    }
    Ok(tally.finish(question))
}
