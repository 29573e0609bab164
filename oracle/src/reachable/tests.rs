//! Whole models: planted faults go red, boxes hold what is evaluated, a planted near tie flips.

use std::path::Path;
use std::sync::LazyLock;

use engine::format::weights::Matrix;
use engine::reference::Reference;
use engine::rows::Rows;
use engine::tensor::{Bytes, DType};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};

use super::interval::{Bounds, Codes, Interval};
use super::sums::tests::terms as made_terms;
use super::*;

struct Run {
    model: Model,
    record: Record,
}

fn run(model: &str, prompt: &str, tokens: usize) -> Run {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures");
    let model = Model::open(&fixtures.join("models").join(model).join("model.gguf")).unwrap();
    let ids = if prompt == "tiny-400" {
        crate::suites::token_ids(&fixtures.join("prompts/tiny-400.json"), &[]).unwrap()
    } else {
        let path = fixtures.join("models/trained-tiny/prompts.json");
        let json = crate::suites::read_json(&path).unwrap();
        let prompts = json["prompts"].as_array().unwrap();
        let found = prompts.iter().find(|found| found["name"] == prompt).unwrap();
        crate::suites::ids_of(found.get("ids")).unwrap()
    };
    let record = record(&Reference, &model, Profile::DS4, &ids[..tokens]).unwrap();
    Run { model, record }
}

static TINY: LazyLock<Run> = LazyLock::new(|| run("tiny", "tiny-400", 24));
static TRAINED: LazyLock<Run> = LazyLock::new(|| run("trained-tiny", "novel-held-short", 41));

fn copy(record: &Record) -> Record {
    let mut copy = Record::default();
    copy.floats.clone_from(&record.floats);
    copy.indices.clone_from(&record.indices);
    copy
}

fn routed_site(layer: usize, position: usize) -> Site {
    Site { place: Place::Layer(layer), tap: Tap::RoutedOutput, position }
}

fn ordered(run: &Run, record: &Record) -> Result<Orders, Problem> {
    of_ordered(&Reference, &run.model, Profile::DS4, record)
}

#[test]
fn a_dropped_term_a_changed_bit_and_a_missing_row_are_named() {
    let of = |record: &Record| Terms::of(&Reference, &TINY.model, &Profile::DS4, 2, record);
    let mut terms = of(&TINY.record).unwrap();
    assert_eq!(terms.check_ordered(&TINY.record).unwrap(), 24 * 256);
    terms.drop_slot(1);
    let red = terms.check_ordered(&TINY.record).unwrap_err();
    assert!(matches!(red, Problem::Recomputed { site, .. } if site.place == Place::Layer(2)));

    for (tap, layer) in [(Tap::ExpertMid, 2), (Tap::RouterWeights, 2)] {
        let (mut short, site) = (copy(&TINY.record), Site { tap, ..routed_site(layer, 4) });
        short.floats.get_mut(&site).unwrap().pop();
        assert!(matches!(of(&short).unwrap_err(), Problem::Width { .. }), "{tap:?}");
    }
    let whole = ordered(&TINY, &TINY.record).unwrap();
    assert_eq!(whole.compared, 24 * (4 * 256 + 512));
    let logits = Site { place: Place::Output, tap: Tap::Logits, position: 7 };
    for site in [routed_site(1, 3), routed_site(3, 9), logits] {
        let mut changed = copy(&TINY.record);
        let value = &mut changed.floats.get_mut(&site).unwrap()[100];
        *value = value.next_up();
        let red = ordered(&TINY, &changed).err().unwrap();
        assert!(matches!(red, Problem::Recomputed { site: s, element: 100, .. } if s == site));
        assert!(red.to_string().contains(&format!("position {}", site.position)), "{red}");
        changed.floats.remove(&site);
        let red = ordered(&TINY, &changed).err().unwrap();
        assert!(matches!(red, Problem::Missing { site: s } if s == site), "{red}");
    }
    let red = ordered(&TINY, &Record::default()).err().unwrap();
    assert!(matches!(red, Problem::NoTokens { layer: 0 }));
}

#[test]
fn a_value_that_no_order_gives_and_an_order_that_is_not_covered_are_seen() {
    let terms = Terms::of(&Reference, &TINY.model, &Profile::DS4, 3, &TINY.record).unwrap();
    let mut reachable = Reachable::of(&terms);
    let ends = reachable.bounds(5);
    let element = (0..256).find(|i| ends.at(*i).lo < ends.at(*i).hi).unwrap();
    let look = |reachable: &Reachable, value: f32| {
        let mut record = copy(&TINY.record);
        record.floats.get_mut(&routed_site(3, 5)).unwrap()[element] = value;
        let mut arrival = Arrival::default();
        inside(reachable, &record, &mut arrival).map(|()| arrival)
    };
    let Interval { lo, hi } = ends.at(element);
    for value in [lo, hi] {
        assert_eq!(look(&reachable, value).unwrap().elements, 24 * 256);
    }
    for value in [lo.next_down(), hi.next_up(), -hi, f32::NAN] {
        let red = look(&reachable, value).unwrap_err();
        assert!(matches!(red, Problem::Unreachable { element: e, .. } if e == element), "{red}");
    }
    reachable.forget_largest();
    assert!(look(&reachable, hi).is_err(), "the order of the largest value is not covered");
    assert_eq!(reachable.contains(24, 0, 0.0), None, "no such position");
    assert_eq!(reachable.contains(5, 256, 0.0), None, "no such element");
}

#[test]
fn a_fused_ordered_sum_is_no_order_of_rounded_terms_and_the_box_holds_both() {
    let tokens = crate::suites::token_ids(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/prompts/tiny-400.json"),
        &[],
    );
    let (model, profile) = (&TINY.model, Profile::FLOAT);
    let record = record(&Reference, model, profile, &tokens.unwrap()[..12]).unwrap();
    let orders = of_ordered(&Reference, model, profile, &record).unwrap();
    let mut outside = 0;
    for reachable in &orders.layers {
        assert!(!reachable.ordered_is_an_order());
        for position in reachable.positions() {
            let bounds = reachable.bounds(position);
            for (element, value) in reachable.ordered(position).iter().enumerate() {
                assert!(bounds.at(element).holds(*value));
                let ends = reachable.values(position, element).unwrap();
                let arrival = Interval { lo: ends[0], hi: ends[ends.len() - 1] };
                outside += usize::from(!arrival.holds(*value));
            }
        }
    }
    assert!(outside > 100, "{outside} sums by fma lie outside what arrival can give");
}

#[test]
fn many_slots_have_extremes_and_more_have_a_bound() {
    for (slots, known) in [(8, Known::Set), (9, Known::Extremes), (13, Known::Bound)] {
        let mut products = Rows::empty(16);
        (0..2 * slots as u64).for_each(|seed| products.push(&made_terms(seed, 16)));
        let reachable = Reachable::of(&Terms::made(slots, products));
        let figures = reachable.figures();
        assert_eq!((figures.known, figures.elements), (known, 32));
        assert!(figures.plural > 16 && figures.widest_ulps > 0, "{figures:?}");
        assert_eq!(reachable.values(0, 0).is_some(), known == Known::Set);
        for element in 0..16 {
            let value = reachable.ordered(1)[element];
            assert_eq!(reachable.contains(1, element, value), Some(true));
            let outside = reachable.bounds(1).at(element).hi.next_up();
            assert_eq!(reachable.contains(1, element, outside), Some(false));
        }
    }
}

/// Routed sums of a position with an order chosen for every element at random.
fn random_orders(terms: &Terms, position: usize, count: usize, seed: u64) -> Rows {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let (mut rows, mut of_element) = (Rows::empty(terms.width()), Vec::new());
    for _ in 0..count {
        let each = (0..terms.width()).map(|element| {
            terms.of_element(position - terms.start, element, &mut of_element);
            let mut order: Vec<usize> = (0..terms.slots).collect();
            for i in (1..terms.slots).rev() {
                order.swap(i, random.next_u32() as usize % (i + 1));
            }
            sums::in_order(&of_element, &order)
        });
        rows.push(&each.collect::<Vec<f32>>());
    }
    rows
}

#[test]
fn bounds_hold_the_logits_of_random_orders_and_a_box_without_them_does_not() {
    let (head, orders) = (
        Head::new(&TRAINED.model, Profile::DS4).unwrap(),
        ordered(&TRAINED, &TRAINED.record).unwrap(),
    );
    let last = &orders.layers[orders.layers.len() - 1];
    for position in [0, 17, 40] {
        let tail = Tail::new(&head, &TRAINED.record, position).unwrap();
        let routed = random_orders(&orders.last, position, 200, position as u64);
        let (bounds, narrow) = (
            tail.bounds(&last.bounds(position)).unwrap().logits,
            tail.bounds(&Bounds::point(last.ordered(position))).unwrap().logits,
        );
        let mut outside = 0;
        for logits in tail.exact(&routed).iter() {
            assert!(bounds.iter().zip(logits).all(|(x, v)| x.holds(*v)), "position {position}");
            outside += usize::from(narrow.iter().zip(logits).any(|(x, v)| !x.holds(*v)));
        }
        assert!(outside > 50, "orders that move logits: {outside} of 200");
    }
}

#[test]
fn the_lowest_id_keeps_a_tie_and_unknown_bounds_prove_nothing() {
    let bounds = |pairs: &[(f32, f32)]| {
        Bounds::of(pairs.iter().map(|(lo, hi)| Interval { lo: *lo, hi: *hi }))
    };
    let cases = [
        (vec![(1.0, 1.0), (3.0, 4.0), (2.0, 3.0)], true),
        (vec![(2.0, 3.0), (3.0, 4.0), (1.0, 1.0)], false),
        (vec![(1.0, 1.0), (3.0, 4.0), (2.0, 3.0_f32.next_up())], false),
        (vec![(1.0, 1.0), (3.0, f32::INFINITY), (2.0, 2.0)], false),
    ];
    for (pairs, expected) in cases {
        assert_eq!(proof::always_chosen(&bounds(&pairs), 1), expected, "{pairs:?}");
    }
}

/// Positions whose head has a code that is not settled, with an output matrix that makes it decide: one row
/// counts that code 126 times, the other counts the largest code of its block as often as the lower of the
/// two codes says. A third row repeats the first.
fn near_ties(run: &Run) -> Vec<(usize, Matrix)> {
    let orders = ordered(run, &run.record).unwrap();
    let last = &orders.layers[orders.layers.len() - 1];
    let head = Head::new(&run.model, Profile::DS4).unwrap();
    let mut found = Vec::new();
    for position in last.positions() {
        let tail = Tail::new(&head, &run.record, position).unwrap();
        let codes = Codes::of(&tail.head_input(&last.bounds(position)));
        let Some((block, place, 1)) = codes.open.first().copied() else { continue };
        let (first, width) = (block * 32, codes.low.len());
        let low = i32::from(codes.low[first + place]);
        let count = low.abs().min((low + 1).abs());
        let largest = (0..32).find(|i| codes.low[first + i].unsigned_abs() == 127);
        let (Some(largest), 1..126) = (largest, count) else { continue };
        let mut rows = vec![vec![0_u8; width / 32 * 34]; run.model.config.vocabulary];
        let mut put = |row: usize, place: usize, weight: i32| {
            let (scale, at) = (half::f16::from_f32(1.0).to_le_bytes(), block * 34);
            rows[row][at..at + 2].copy_from_slice(&scale);
            rows[row][at + 2 + place] = weight as i8 as u8;
        };
        put(3, place, 126 * low.signum());
        put(9, place, 126 * low.signum());
        put(5, largest, count * i32::from(codes.low[first + largest]).signum());
        let bytes = Bytes::owned(rows.concat());
        found.push((position, Matrix::new(DType::Q8_0, rows.len(), width, bytes).unwrap()));
    }
    found
}

#[test]
fn a_planted_near_tie_flips_with_a_witness_and_a_twin_does_not() {
    let mut run = run("trained-tiny", "novel-held-300", 349);
    let planted = near_ties(&run);
    assert!(!planted.is_empty(), "no position with an open code");
    let (mut flipped, mut twins) = (0, 0);
    for (position, output) in planted {
        run.model.weights.output = output;
        let head = Head::new(&run.model, Profile::DS4).unwrap();
        // The logits of the run come from another output matrix.
        let mut record = copy(&run.record);
        for position in 0..349 {
            let tail = Tail::new(&head, &run.record, position).unwrap();
            let routed = &run.record.floats[&routed_site(5, position)];
            let logits = tail.exact(&Rows::of(routed.len(), routed.clone()));
            let site = Site { place: Place::Output, tap: Tap::Logits, position };
            record.floats.insert(site, logits.row(0).to_vec());
        }
        let orders = ordered(&run, &record).unwrap();
        // Elsewhere two rows of equal bytes tie in every order, and the lower id has it.
        twins += orders.verdicts.iter().filter(|v| v.token == 3).count();
        assert!(orders.shares().order_proof >= 340, "{}", orders.shares());
        let verdict = &orders.verdicts[position];
        assert_ne!(verdict.decision, Decision::OrderProof, "position {position}");
        let Decision::Flippable(witness) = &verdict.decision else { continue };
        flipped += 1;
        let mut ids = [witness.ordered, witness.other];
        ids.sort_unstable();
        assert_eq!(ids, [3, 5]);
        let routed = witness.routed(&orders.last);
        for (element, value) in routed.iter().enumerate() {
            assert_eq!(orders.contains(5, position, element, *value), Some(true));
        }
        let tail = Tail::new(&head, &record, position).unwrap();
        let logits = tail.exact(&Rows::of(routed.len(), routed));
        let token = engine::sampler::argmax(logits.row(0), position).unwrap();
        assert_eq!(token, witness.other);
    }
    assert!(flipped > 0 && twins > 20, "{flipped} flipped, {twins} twins");
}
