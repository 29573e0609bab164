//! Cases by name, and the faults that each must see.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};

use super::*;
use crate::check::Outcome;

fn side(row: &[f32]) -> Side<'_> {
    Side::greedy(row, 0).unwrap()
}

fn flip(reference: &[f32], candidate: &[f32], bound: Option<f64>) -> Option<Flip> {
    classify(side(reference), side(candidate), bound, 0).unwrap()
}

/// A row of logits of spread about 5, and the same with noise of that size.
fn noisy(seed: u64, width: usize, noise: f64) -> (Vec<f32>, Vec<f32>) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut uniform = || f64::from(random.next_u32()) / 4_294_967_296.0 - 0.5;
    let row: Vec<f64> = (0..width).map(|_| 10.0 * uniform()).collect();
    let other = row.iter().map(|x| (x + noise * uniform()) as f32).collect();
    (row.iter().map(|x| *x as f32).collect(), other)
}

#[test]
fn margins_in_value_and_ulp_with_the_lowest_id_first() {
    let one_up = 3.0_f32.next_up();
    let cases = [
        (vec![1.0, 3.0, 2.0], (1, 2, 1.0, ulps_between(3.0, 2.0))),
        (vec![3.0, 1.0, 3.0], (0, 2, 0.0, 0)),
        (vec![3.0, one_up, 3.0], (1, 0, f64::from(one_up) - 3.0, 1)),
        (vec![-0.0, 0.0, -1.0], (0, 1, 0.0, 0)),
        (vec![-1e-45, 1e-45], (1, 0, f64::from(2e-45_f32 + 1e-45), 2)),
    ];
    for (row, (best, second, value, ulps)) in cases {
        let found = Margin::of(&row, 0).unwrap();
        assert_eq!((found.best, found.second, found.ulps), (best, second, ulps), "{row:?}");
        assert!((found.value - value).abs() <= value * 0.5, "{row:?}: {found:?}");
        assert_eq!(found.is_exact_tie(), found.value == 0.0);
    }
    assert_eq!(ulps_between(f32::MIN, f32::MAX), 2 * u64::from(f32::MAX.to_bits()));
    assert!(matches!(Margin::of(&[1.0], 4), Err(MarginError::Alone { position: 4 })));
    assert!(matches!(Margin::of(&[], 4), Err(MarginError::Row(RunError::NoLogits))));
}

#[test]
fn without_a_bound_only_an_exact_tie_is_no_defect() {
    let tie = [1.0, 2.0, 2.0];
    let other_rule = Side { row: &tie, chosen: 2 };
    assert_eq!(classify(side(&tie), other_rule, None, 0).unwrap(), Some(Flip::ExactTie));
    let up = [1.0, 2.0, 2.0_f32.next_up()];
    let gap = f64::from(2.0_f32.next_up()) - 2.0;
    assert_eq!(flip(&tie, &up, None), Some(Flip::Defect { gap, bound: 0.0 }));
    assert_eq!(flip(&tie, &up, Some(gap)), Some(Flip::InsideBound { gap, bound: 2.0 * gap }));
    assert_eq!(flip(&tie, &up, Some(gap / 2.0)), Some(Flip::InsideBound { gap, bound: gap }));
    assert_eq!(flip(&tie, &up, Some(gap / 4.0)).map(|flip| flip.is_defect()), Some(true));
    assert_eq!(flip(&tie, &up, Some(f64::NAN)).map(|flip| flip.is_defect()), Some(true));
    assert_eq!(flip(&tie, &tie, None), None);
    // Both tie at the end, but the reference preferred its own by 3.
    let far = [5.0, 2.0, 5.0];
    assert_eq!(flip(&[5.0, 2.0, 2.0], &[4.0, 2.0, 4.0], None), None);
    let chose_last = Side { row: &far, chosen: 2 };
    let found = classify(side(&[5.0, 2.0, 2.0]), chose_last, Some(1.0), 0).unwrap();
    assert_eq!(found, Some(Flip::Defect { gap: 3.0, bound: 2.0 }));
    // A token that is not the largest of its own row.
    let wrong = Side { row: &far, chosen: 1 };
    let found = classify(side(&far), wrong, Some(100.0), 0).unwrap();
    assert_eq!(found, Some(Flip::Defect { gap: 3.0, bound: 0.0 }));
    let outside = Side { row: &far, chosen: 3 };
    assert!(matches!(classify(side(&far), outside, None, 8), Err(MarginError::Chosen { .. })));
    let shorter = side(&far[..2]);
    assert!(matches!(classify(side(&far), shorter, None, 8), Err(MarginError::Widths { .. })));
}

#[test]
fn b102_nan_and_infinity_are_refused_before_anything_is_compared() {
    let fine = [1.0_f32, 2.0, 3.0];
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    let cases: [([f32; 3], [f32; 3]); 5] = [
        (fine, [nan; 3]),
        (fine, [1.0, nan, 3.0]),
        ([1.0, 2.0, nan], fine),
        ([1.0, inf, 3.0], [1.0, -inf, 3.0]),
        ([nan; 3], [nan; 3]),
    ];
    for (reference, candidate) in cases {
        let sides = [&reference, &candidate].map(|row| Side { row, chosen: 2 });
        assert!(matches!(classify(sides[0], sides[1], Some(1e9), 5), Err(MarginError::Row(_))));
        let mut flips = Flips::default();
        flips.add(&reference, &candidate, Some(1e9), 5);
        flips.add_precision(&reference, &candidate, Some(1e9), 5);
        flips.add(&fine, &fine, None, 6);
        assert_eq!((flips.compared, flips.excluded), (1, 2));
        for outcome in [flips.strict(), flips.explained()] {
            let Outcome::Different(text) = outcome else { panic!("{outcome:?}") };
            assert!(text.contains("position 5"), "{text}");
        }
    }
}

#[test]
fn b104_a_gap_inside_the_references_own_noise_is_undecidable_and_outside_it_a_defect() {
    let noise = Noise { between: Some(0.02), ..Noise::default() };
    let near = classify_gaps(0.08, 0.05, &noise.with_own(0.53));
    assert!(matches!(near, Flip::UndecidableNearTie { noise, .. } if noise == 0.53), "{near:?}");
    let far = classify_gaps(0.8, 0.05, &noise.with_own(0.01));
    assert!(matches!(far, Flip::Defect { bound, .. } if bound == 0.02), "{far:?}");
    // The bound of one file is not that of another: the same gap, with what was measured there.
    let gaps = |between| classify_gaps(0.08, 0.05, &Noise { between, ..Noise::default() });
    assert!(matches!(gaps(Some(0.5)), Flip::NearTieUnderQuantisation { .. }));
    assert!(gaps(Some(0.1)).is_defect() && gaps(None).is_defect());
    assert_eq!(classify_gaps(0.0, 0.0, &Noise::default()), Flip::ExactTie);
    for odd in [f64::NAN, f64::INFINITY, -0.1] {
        assert!(classify_gaps(odd, 0.0, &noise.with_own(9.0)).is_defect(), "{odd}");
        assert!(classify_gaps(0.0, odd, &noise.with_own(9.0)).is_defect(), "{odd}");
    }
}

#[test]
fn b104_noise_is_measured_at_the_position_and_a_large_defect_is_not_inside_it() {
    let (mut near, mut defects) = (0, 0);
    for seed in 0..200 {
        let (mut row, mut other) = noisy(seed, 300, 0.2);
        // Two equal favourites, which the noise decides.
        (row[7], row[11]) = (20.0, 20.05);
        (other[7], other[11]) = (20.06, 20.0);
        let found = classify_precision(side(&row), side(&other), None, 0).unwrap().unwrap();
        near += usize::from(matches!(found, Flip::NearTieUnderQuantisation { .. }));
        other[7] = 20.6;
        let found = classify_precision(side(&row), side(&other), None, 0).unwrap().unwrap();
        defects += usize::from(found.is_defect());
    }
    assert_eq!((near, defects), (200, 200));
    // The entries that change take no part in the noise, however far they moved.
    let entries = [(0, 0.0, 90.0), (1, 1.0, -90.0), (2, 2.0, 2.1), (3, 8.0, 8.0), (4, 4.0, 4.0)];
    let noise = Noise::between(&entries, &[0, 1]);
    assert!((noise.between.unwrap() - 0.1).abs() < 1e-9 && noise.entries == 3, "{noise:?}");
    assert_eq!(Noise::between(&entries[..3], &[0, 1]).between, None, "one entry measures nothing");
    assert_eq!(Noise::between(&[(0, 0.0, f64::NAN); 4], &[]).between, None);
}

#[test]
fn b104_rows_of_other_positions_explain_nothing() {
    for seed in 0..50 {
        let ((row, _), (other, _)) = (noisy(seed, 300, 0.0), noisy(seed + 1000, 300, 0.0));
        let found = classify_precision(side(&row), side(&other), None, 0).unwrap().unwrap();
        assert_eq!(found, Flip::Defect { gap: found.gap(), bound: 0.0 });
    }
}

#[test]
fn b109_the_rate_fails_a_strict_comparison_even_when_the_worst_gap_is_small() {
    let mut flips = Flips::default();
    for position in 0..159 {
        let (row, _) = noisy(position, 50, 0.0);
        flips.add(&row, &row, None, position as usize);
    }
    assert_eq!((flips.strict(), flips.rate()), (Outcome::Equal, Some(0.0)));
    let tie = [2.0_f32, 2.0];
    flips.add(&tie, &[2.0, 2.0_f32.next_up()], Some(1e-3), 159);
    assert_eq!((flips.flips(), flips.rate()), (1, Some(1.0 / 160.0)));
    assert!(flips.worst_gap < 1e-6 && flips.worst_gap > 0.0);
    assert!(matches!(flips.strict(), Outcome::Different(text) if text.contains("1 of 160")));
    assert_eq!(flips.explained(), Outcome::Equal);
    flips.add(&[2.0, 0.0], &[0.0, 2.0], Some(1e-3), 160);
    assert!(matches!(flips.explained(), Outcome::Different(text) if text.contains("at 160")));
    let margins = &flips.margins;
    assert_eq!((margins.rows, margins.exact_ties, flips.gaps.rows), (161, 1, 2));
    assert_eq!(margins.value.values().sum::<u64>(), 160);
    assert_eq!(margins.ulps.values().sum::<u64>(), 160);
    assert_eq!(Flips::default().rate(), None);
    assert!(matches!(Flips::default().strict(), Outcome::Different(_)), "nothing compared");
}

#[test]
fn b109_a_histogram_counts_every_row_once_prints_and_reads_back() {
    let mut histogram = Histogram::default();
    let rows = [[4.0_f32, 1.0], [2.0, 2.0], [1.5, 1.0], [1.0, 1.0_f32.next_up()]];
    rows.iter().for_each(|row| histogram.add(&Margin::of(row, 0).unwrap()));
    histogram.exclude();
    histogram.add_gap(f64::NAN);
    assert_eq!((histogram.rows, histogram.exact_ties, histogram.excluded), (4, 1, 2));
    assert_eq!(histogram.value.iter().collect::<Vec<_>>(), [(&-23, &1), (&-1, &1), (&1, &1)]);
    assert_eq!(histogram.ulps.iter().collect::<Vec<_>>(), [(&0, &1), (&22, &1), (&24, &1)]);
    let text = histogram.to_string();
    assert!(text.contains("4 rows, 1 exact ties, 2 excluded") && text.contains("2^-23"), "{text}");
    let json = serde_json::to_string(&histogram).unwrap();
    assert_eq!(serde_json::from_str::<Histogram>(&json).unwrap(), histogram);
    let mut twice = histogram.clone();
    twice.merge(&histogram);
    assert_eq!((twice.rows, twice.value[&1], twice.ulps[&0]), (8, 2, 2));
}

#[test]
fn b111_zero_by_zero_is_zero_and_every_exclusion_is_counted() {
    let found = Relative::of(&[0.0, 0.0, 2.0, -0.0], &[0.0, 1e-7, 2.5, 0.0]);
    assert_eq!((found.compared, found.both_zero, found.reference_zero), (3, 2, 1));
    assert_eq!((found.largest, found.largest_absolute), (Some(0.25), Some(0.5)));
    assert_eq!(found.excluded(), 1);
    assert_eq!(Relative::of(&[0.0], &[-0.0]).largest, Some(0.0), "defined, not NaN");
    let lost = Relative::of(&[0.0], &[1e-7]);
    assert_eq!((lost.largest, lost.excluded()), (None, 1), "no relative difference, and no NaN");
    assert_eq!(lost.largest_absolute, Some(f64::from(1e-7_f32)), "but its size is kept");
    let broken = Relative::of(&[1.0, f32::NAN, f32::INFINITY], &[1.0, 1.0, f32::NEG_INFINITY, 4.0]);
    assert_eq!((broken.not_finite, broken.unpaired, broken.largest), (2, 1, Some(0.0)));
    assert_eq!(Relative::of(&[], &[]).largest, None);
}

#[test]
fn kinds_of_change_have_names_in_json() {
    let json = serde_json::to_value(Flip::Defect { gap: 1.5, bound: 0.0 }).unwrap();
    assert_eq!(json, serde_json::json!({ "kind": "defect", "gap": 1.5, "bound": 0.0 }));
    let near: Flip = serde_json::from_value(
        serde_json::json!({ "kind": "near-tie-under-quantisation", "gap": 1.0, "noise": 2.0 }),
    )
    .unwrap();
    assert_eq!(near, Flip::NearTieUnderQuantisation { gap: 1.0, noise: 2.0 });
}
