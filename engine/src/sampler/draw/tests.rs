//! Tests of sampling: definitions on rows computed by hand, distributions against exact probabilities.

use super::super::tests::row;
use super::*;

fn sampler(options: SamplerOptions) -> Sampler {
    Sampler::new(options).unwrap()
}

/// Temperature 1, no filter.
const PLAIN: SamplerOptions =
    SamplerOptions { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, seed: 0 };

/// Ids that pass the filters.
fn kept(options: SamplerOptions, logits: &[f32]) -> Vec<u32> {
    let largest = logits[argmax(logits, 0).unwrap() as usize];
    sampler(options).kept(logits, largest).iter().map(|candidate| candidate.id).collect()
}

#[test]
fn temperature_0_is_argmax_whatever_the_filters() {
    for seed in 0..200 {
        let logits = row(seed, 300);
        for options in [
            SamplerOptions { seed, ..SamplerOptions::default() },
            SamplerOptions { temperature: -0.0, top_k: 7, top_p: 0.3, min_p: 0.9, seed },
        ] {
            let chosen = sampler(options).choose(&logits, seed as usize).unwrap();
            assert_eq!(chosen, argmax(&logits, 0).unwrap());
        }
    }
}

#[test]
fn one_candidate_is_argmax() {
    for seed in 0..200 {
        let logits = row(seed, 300);
        let one = SamplerOptions { temperature: 5.0, top_k: 1, seed, ..PLAIN };
        let chosen = sampler(one).choose(&logits, seed as usize).unwrap();
        assert_eq!(chosen, argmax(&logits, 0).unwrap(), "the lowest id of a tie");
        let tiny = SamplerOptions { temperature: 5.0, top_p: f32::MIN_POSITIVE, seed, ..PLAIN };
        let chosen = sampler(tiny).choose(&logits, seed as usize).unwrap();
        assert_eq!(chosen, argmax(&logits, 0).unwrap());
    }
    assert_eq!(sampler(PLAIN).choose(&[4.0], 0).unwrap(), 0);
}

#[test]
fn candidates_are_ordered_by_logit_then_id_for_every_limit() {
    for seed in 0..20 {
        let mut logits = row(seed, 400);
        (logits[3], logits[5]) = (0.0, -0.0);
        let mut expected: Vec<u32> = (0..400).collect();
        expected.sort_by(|a, b| {
            logits[*b as usize].partial_cmp(&logits[*a as usize]).unwrap().then(a.cmp(b))
        });
        for limit in [0, 1, 2, 17, 399, 400, 401, usize::MAX] {
            let length = if limit == 0 { 400 } else { limit.min(400) };
            assert_eq!(ranked(&logits, limit), expected[..length], "limit {limit}");
        }
    }
    assert_eq!(ranked(&[-0.0, 0.0, -0.0], 0), [0, 1, 2], "zeros of both signs are equal");
    assert_eq!(ranked(&[f32::MIN, -1.0, f32::MAX, 1.0], 0), [2, 3, 1, 0]);
}

/// Logarithms of 1, 1/2, 1/2, 1/4, 1/4, 1/4 at ids that are out of order.
fn halves() -> Vec<f32> {
    let half = -std::f32::consts::LN_2;
    vec![2.0 * half, half, 2.0 * half, 0.0, half, 2.0 * half]
}

#[test]
fn top_k_cuts_ties_by_id() {
    let keep = |top_k| kept(SamplerOptions { top_k, ..PLAIN }, &halves());
    assert_eq!(keep(0), [3, 1, 4, 0, 2, 5]);
    assert_eq!(keep(2), [3, 1]);
    assert_eq!(keep(4), [3, 1, 4, 0]);
    assert_eq!(keep(6), keep(0));
    assert_eq!(keep(usize::MAX), keep(0));
}

/// Weights 1, 1/2, 1/2, 1/4, 1/4, 1/4: together 2.75.
#[test]
fn top_p_keeps_the_fewest_that_reach_it() {
    let keep = |top_p| kept(SamplerOptions { top_p, ..PLAIN }, &halves());
    assert_eq!(keep(0.36), [3], "1 reaches 0.99");
    assert_eq!(keep(0.37), [3, 1], "1 does not reach 1.0175; the lower of equals first");
    assert_eq!(keep(0.54), [3, 1], "1.5 reaches 1.485");
    assert_eq!(keep(0.55), [3, 1, 4], "1.5 does not reach 1.5125");
    assert_eq!(keep(0.8), [3, 1, 4, 0], "2.25 reaches 2.2");
    assert_eq!(keep(1.0), [3, 1, 4, 0, 2, 5]);
    let even = |top_p| kept(SamplerOptions { top_p, ..PLAIN }, &[7.0; 8]);
    assert_eq!(even(0.5), [0, 1, 2, 3], "reached exactly, by the lowest ids");
    assert_eq!(even(0.5_f32.next_up()), [0, 1, 2, 3, 4]);
    assert_eq!(even(1.0_f32.next_down()).len(), 8);
}

#[test]
fn min_p_keeps_equals_together() {
    let keep = |min_p| kept(SamplerOptions { min_p, ..PLAIN }, &halves());
    assert_eq!(keep(0.0), [3, 1, 4, 0, 2, 5]);
    assert_eq!(keep(0.2), [3, 1, 4, 0, 2, 5]);
    assert_eq!(keep(0.3), [3, 1, 4]);
    assert_eq!(keep(0.6), [3]);
    assert_eq!(keep(order::exp(-std::f32::consts::LN_2)), [3, 1, 4], "what weighs just that stays");
    assert_eq!(kept(SamplerOptions { min_p: 1.0_f32.next_down(), ..PLAIN }, &[1.0; 3]), [0, 1, 2]);
}

#[test]
fn filters_apply_in_the_order_that_is_written_down() {
    // Temperature first: squared at 1/2 the weights are 1, 1/4, 1/16; roots at 2 are 1, 0.71, 1/2.
    let at =
        |temperature, min_p| kept(SamplerOptions { temperature, min_p, ..PLAIN }, &halves()).len();
    assert_eq!([at(0.5, 0.3), at(1.0, 0.3), at(2.0, 0.3)], [1, 3, 6]);
    assert_eq!([at(0.5, 0.2), at(2.0, 0.6)], [3, 3]);
    // Top-p is a share of what top-k left: 0.7 of 2 is reached by 1.5, 0.7 of 2.75 only by 2.
    let both = |top_k| kept(SamplerOptions { top_k, top_p: 0.7, ..PLAIN }, &halves());
    assert_eq!(both(3), [3, 1]);
    assert_eq!(both(0), [3, 1, 4]);
    // Min-p comes after top-p: 0.7 of 2.75 needs three; of the 2 that min-p leaves, two would do.
    let last = SamplerOptions { top_p: 0.7, min_p: 0.3, ..PLAIN };
    assert_eq!(kept(last, &halves()), [3, 1, 4]);
}

/// Counts of each id over positions `0..draws`.
fn counts(options: SamplerOptions, logits: &[f32], draws: usize) -> Vec<usize> {
    let sampler = sampler(options);
    let mut counts = vec![0; logits.len()];
    for position in 0..draws {
        counts[sampler.choose(logits, position).unwrap() as usize] += 1;
    }
    counts
}

/// Every count within five standard deviations of the binomial distribution.
fn assert_binomial(counts: &[usize], shares: &[f64], draws: usize) {
    let total = shares.iter().fold(0.0, |sum, share| sum + share);
    for (id, (count, share)) in counts.iter().zip(shares).enumerate() {
        let p = share / total;
        let (mean, deviation) = (p * draws as f64, (p * (1.0 - p) * draws as f64).sqrt());
        let distance = (*count as f64 - mean).abs();
        assert!(distance <= 5.0 * deviation, "id {id}: {count}, expected {mean} +- {deviation}");
    }
}

#[test]
fn tokens_have_their_probabilities() {
    const DRAWS: usize = 200_000;
    let logits = [0.3, -1.2, 2.0, 0.3, -4.0, 1.1, -30.0];
    let powers = |temperature: f64| logits.map(|x: f32| libm::exp(f64::from(x) / temperature));
    for seed in [1, 2, 3] {
        for temperature in [0.7_f32, 1.0, 1.9] {
            let options = SamplerOptions { temperature, seed, ..PLAIN };
            let shares = powers(f64::from(temperature));
            assert_binomial(&counts(options, &logits, DRAWS), &shares, DRAWS);
        }
        let mut shares = powers(1.0);
        for dropped in [1, 3, 4, 6] {
            shares[dropped] = 0.0;
        }
        let three = SamplerOptions { top_k: 3, seed, ..PLAIN };
        assert_binomial(&counts(three, &logits, DRAWS), &shares, DRAWS);
    }
    assert_binomial(&counts(PLAIN, &[5.0; 8], DRAWS), &[1.0; 8], DRAWS);
}

/// Two pairs of seed and position for each number.
type Pair = fn(usize) -> [(u64, usize); 2];

#[test]
fn seeds_and_positions_share_nothing() {
    const DRAWS: usize = 100_000;
    let side = |seed: u64, position: usize| usize::from(uniform(seed, position) >= 0.5);
    let pairs: [Pair; 5] = [
        |n| [(9, n), (9, n + 1)],
        |n| [(n as u64, 9), (n as u64 + 1, 9)],
        |n| [(n as u64, n + 1), (n as u64 + 1, n)],
        |n| [(n as u64, n), (n as u64 + 1, n + 1)],
        |n| [(0, n), (1 << 63, n)],
    ];
    for pair in pairs {
        let mut counts = [0; 4];
        for n in 0..DRAWS {
            let [a, b] = pair(n);
            counts[2 * side(a.0, a.1) + side(b.0, b.1)] += 1;
        }
        assert_binomial(&counts, &[1.0; 4], DRAWS);
    }
    assert_ne!(uniform(0, 1), uniform(1, 0));
}

/// Computed outside this program from the published definitions of the two generators.
#[test]
fn random_numbers_are_those_of_the_published_generators() {
    let expected = [
        ((0_u64, 0), 2_210_210_166_919_233_u64),
        ((0, 1), 6_614_615_244_743_996),
        ((1, 0), 2_234_898_470_468_015),
        ((42, 1000), 3_028_892_921_588_239),
        ((u64::MAX, (1 << 20) - 1), 2_823_114_250_269_814),
    ];
    for ((seed, position), bits) in expected {
        assert_eq!(uniform(seed, position), bits as f64 / 9_007_199_254_740_992.0);
    }
}

#[test]
fn order_of_calls_and_repetition_change_nothing() {
    let options = SamplerOptions { temperature: 1.3, top_k: 40, top_p: 0.95, min_p: 0.01, seed: 8 };
    let rows: Vec<_> = (0..64).map(|seed| row(seed, 500)).collect();
    let forward = sampler(options);
    let tokens: Vec<_> = (0..64).map(|p| forward.choose(&rows[p], p).unwrap()).collect();
    let backward = sampler(options);
    for p in (0..64).rev() {
        // A rejected draft: a row at this position that nobody keeps.
        backward.choose(&rows[63 - p], p).unwrap();
        assert_eq!(backward.choose(&rows[p], p).unwrap(), tokens[p]);
        assert_eq!(forward.clone().choose(&rows[p], p).unwrap(), tokens[p]);
    }
    let reseeded = sampler(SamplerOptions { seed: 9, ..options });
    let other: Vec<_> = (0..64).map(|p| reseeded.choose(&rows[p], p).unwrap()).collect();
    assert_ne!(other, tokens);
    let bits = |logits: &[f32]| -> Vec<(u32, u32)> {
        let kept = forward.kept(logits, logits[argmax(logits, 0).unwrap() as usize]);
        kept.iter().map(|candidate| (candidate.id, candidate.weight.to_bits())).collect()
    };
    assert!(rows.iter().all(|row| bits(row) == bits(&row.clone())));
}

#[test]
fn extreme_rows_and_temperatures_have_a_token() {
    let rows: [&[f32]; 4] =
        [&[f32::MIN, f32::MAX], &[0.0, -0.0], &[1e-45, 0.0, -1e-45], &[-3e38, -2e38, -1e38]];
    for logits in rows {
        for temperature in [f32::from_bits(1), 1e-30, 1.0, f32::MAX] {
            for position in 0..50 {
                let options = SamplerOptions { temperature, top_p: 0.99, ..PLAIN };
                let chosen = sampler(options).choose(logits, position).unwrap();
                assert!((chosen as usize) < logits.len());
            }
        }
    }
    let cold = SamplerOptions { temperature: f32::from_bits(1), ..PLAIN };
    assert!((0..99).all(|p| sampler(cold).choose(&[1.0, 2.0, 1.999], p).unwrap() == 1));
}

#[test]
fn a_draw_never_ends_on_a_token_without_weight() {
    let kept = [(4, 1.0), (2, 0.5), (0, 0.0), (1, 0.0)];
    let kept = kept.map(|(id, weight)| Candidate { id, weight });
    assert_eq!(pick(&kept, 0.0), 4);
    assert_eq!(pick(&kept, 0.7), 2);
    assert_eq!(pick(&kept, 1.0_f64.next_down()), 2);
    let even = [6, 7].map(|id| Candidate { id, weight: 1.0 });
    assert_eq!(pick(&even, 0.5_f64.next_down()), 6);
    assert_eq!(pick(&even, 0.5), 7, "half of the numbers in [0, 1) each");
    assert_eq!(pick(&kept, 1.0), 2, "a target that rounding brought up to the total");
}

#[test]
fn options_outside_their_range_are_errors_that_name_field_and_value() {
    let refused = |options: SamplerOptions, words: [&str; 2]| {
        let text = Sampler::new(options).unwrap_err().to_string();
        assert!(words.iter().all(|word| text.contains(word)), "{words:?}: {text}");
    };
    for (value, text) in [(-0.5, "-0.5"), (f32::NAN, "NaN"), (f32::INFINITY, "inf")] {
        refused(SamplerOptions { temperature: value, ..PLAIN }, ["temperature", text]);
        refused(SamplerOptions { top_p: value, ..PLAIN }, ["top_p", text]);
        refused(SamplerOptions { min_p: value, ..PLAIN }, ["min_p", text]);
    }
    refused(SamplerOptions { top_p: 0.0, ..PLAIN }, ["top_p", "0"]);
    refused(SamplerOptions { top_p: 1.0_f32.next_up(), ..PLAIN }, ["top_p", "1.0000001"]);
    refused(SamplerOptions { min_p: 1.0, ..PLAIN }, ["min_p", "1"]);
}

#[test]
fn nan_and_infinity_are_errors_that_name_position_and_id() {
    for options in [PLAIN, SamplerOptions::default(), SamplerOptions { top_k: 1, ..PLAIN }] {
        for (index, value) in [(0, f32::NAN), (9, f32::INFINITY), (99, f32::NEG_INFINITY)] {
            let mut logits = row(3, 100);
            logits[index] = value;
            let text = sampler(options).choose(&logits, 77).unwrap_err().to_string();
            assert!(text.contains("position 77") && text.contains(&format!("element {index} ")));
        }
        assert!(matches!(sampler(options).choose(&[], 0), Err(RunError::NoLogits)));
    }
}
