//! What orders of experts can change: real runs in arrival order, and the trained model's prompts.

mod common;

use std::sync::atomic::{AtomicUsize, Ordering};

use common::{fixtures, in_parallel, settings};
use engine::cpu::{Combine, Cpu, Kernels, Level, Threads};
use engine::rows::Rows;
use engine::sampler::argmax;
use engine::tap::{Place, Site, Tap};
use engine::{Model, Profile};
use oracle::reachable::{
    self, Arrival, Decision, Head, Orders, Problem, Tail, check_arrival, of_ordered, sums,
};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};

fn cpu(threads: usize, combine: Combine) -> Cpu {
    Cpu::new(Kernels::new(Level::best(), Threads::new(threads).unwrap()), combine)
}

fn ordered_cpu() -> Cpu {
    cpu(1, Combine::Ordered)
}

#[test]
fn every_routed_sum_of_runs_in_arrival_order_is_reached_by_an_order() {
    for setting in settings() {
        let (model, profile) = (&setting.model, setting.profile);
        let tokens = &setting.tokens[..128];
        let backend = ordered_cpu();
        let plain = reachable::record(&backend, model, profile, tokens).unwrap();
        let orders = of_ordered(&backend, model, profile, &plain).unwrap();
        let mut first_layer = 0;
        let mut seen = Arrival::default();
        for _ in 0..4 {
            let atomic = cpu(2, Combine::Atomic { rows: 1 });
            let mut run = reachable::record(&atomic, model, profile, tokens).unwrap();
            // Every layer against its own inputs, the last one among them.
            let arrival = check_arrival(&backend, model, profile, &run).unwrap();
            assert_eq!(arrival.elements, 128 * model.config.hidden * model.config.layers.len());
            seen.plural += arrival.plural;
            seen.reordered += arrival.reordered;
            // The first layer has the inputs of the run in slot order.
            for position in 0..128 {
                let site = Site { place: Place::Layer(0), tap: Tap::RoutedOutput, position };
                for (element, value) in run.floats[&site].iter().enumerate() {
                    assert_eq!(orders.contains(0, position, element, *value), Some(true));
                    first_layer += 1;
                }
            }
            // A term that arrives twice: as if one product had been added again.
            let last = model.config.layers.len() - 1;
            let site = Site { place: Place::Layer(last), tap: Tap::RoutedOutput, position: 77 };
            run.floats.get_mut(&site).unwrap()[9] *= 2.0;
            let red = check_arrival(&backend, model, profile, &run).unwrap_err();
            assert!(matches!(red, Problem::Unreachable { site: s, element: 9, .. } if s == site));
            assert!(red.to_string().contains("position 77, element 9"), "{red}");
        }
        assert!(first_layer > 0 && seen.plural > 0, "{}: nothing to reorder", setting.name);
        assert!(seen.reordered > 0, "{}: every run was in slot order", setting.name);
    }
}

/// Sums of a position with every element's terms in an order of its own.
fn random_sums(orders: &Orders, position: usize, count: usize) -> Rows {
    let terms = &orders.last;
    let mut random = Xoshiro256PlusPlus::seed_from_u64(position as u64);
    let (mut rows, mut of_element) = (Rows::empty(terms.width()), Vec::new());
    let mut order: Vec<usize> = (0..terms.slots).collect();
    for _ in 0..count {
        let each = (0..terms.width()).map(|element| {
            terms.of_element(position - terms.start, element, &mut of_element);
            for i in (1..order.len()).rev() {
                order.swap(i, random.next_u32() as usize % (i + 1));
            }
            sums::in_order(&of_element, &order)
        });
        rows.push(&each.collect::<Vec<f32>>());
    }
    rows
}

#[test]
fn at_least_half_of_the_trained_prompts_positions_are_order_proof_and_none_of_those_flips() {
    let folder = fixtures().join("models/trained-tiny");
    let model = Model::open(&folder.join("model.gguf")).unwrap();
    let json = std::fs::read_to_string(folder.join("prompts.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let prompts: Vec<Vec<u32>> = json["prompts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|prompt| serde_json::from_value(prompt["ids"].clone()).unwrap())
        .collect();
    let (positions, proofs, tried) =
        (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    in_parallel(&prompts, |ids| {
        let backend = ordered_cpu();
        let record = reachable::record(&backend, &model, Profile::DS4, ids).unwrap();
        let orders = of_ordered(&backend, &model, Profile::DS4, &record).unwrap();
        let shares = orders.shares();
        assert_eq!(shares.positions, ids.len());
        assert!(shares.order_proof * 2 >= shares.positions, "{shares}");
        positions.fetch_add(shares.positions, Ordering::Relaxed);
        proofs.fetch_add(shares.order_proof, Ordering::Relaxed);
        for figures in orders.figures() {
            assert!(figures.plural * 2 > figures.elements, "orders matter: {figures:?}");
        }
        let head = Head::new(&model, Profile::DS4).unwrap();
        let proven = orders.verdicts.iter().filter(|v| v.decision == Decision::OrderProof);
        for verdict in proven.step_by(ids.len() / 2 + 1) {
            let tail = Tail::new(&head, &record, verdict.position).unwrap();
            let logits = tail.exact(&random_sums(&orders, verdict.position, 300));
            for row in logits.iter() {
                assert_eq!(argmax(row, verdict.position).unwrap(), verdict.token);
                tried.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    let (positions, proofs) = (positions.into_inner(), proofs.into_inner());
    assert_eq!(positions, 2057, "all prompts");
    assert!(proofs * 2 >= positions && tried.into_inner() >= 13 * 300, "{proofs} of {positions}");
}
