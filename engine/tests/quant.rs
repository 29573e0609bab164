//! Block formats and activation encoders: vectors of other implementations and vectors checked by hand.

use std::path::Path;

use engine::format::quant::{self, Q8KRow, Q8Row};
use engine::tensor::DType;

fn npy<T: npyz::Deserialize>(name: &str) -> (Vec<u64>, Vec<T>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../fixtures/ground-truth/quant-blocks")
        .join(name);
    let file = npyz::NpyFile::new(std::fs::File::open(path).unwrap()).unwrap();
    let shape = file.shape().to_vec();
    (shape, file.into_vec().unwrap())
}

/// Bits, except that NaN is NaN and zeros have no sign.
fn canonical(value: f32) -> u32 {
    if value.is_nan() {
        f32::NAN.to_bits()
    } else if value == 0.0 {
        0
    } else {
        value.to_bits()
    }
}

#[test]
fn every_recorded_block_decodes_to_the_recorded_bits() {
    let formats = [
        ("f16", DType::F16, 65_536),
        ("bf16", DType::Bf16, 65_536),
        ("q8_0", DType::Q8_0, 67),
        ("q2_k", DType::Q2K, 67),
        ("q4_k", DType::Q4K, 67),
        ("iq2_xxs", DType::Iq2Xxs, 67),
    ];
    for (stem, dtype, count) in formats {
        let (shape, bytes) = npy::<u8>(&format!("{stem}.blocks.npy"));
        let (_, values) = npy::<f32>(&format!("{stem}.values.npy"));
        assert_eq!(shape, [count, dtype.block_bytes() as u64], "{stem}");
        let mut out = vec![0.0; values.len()];
        quant::decode_row(dtype, &bytes, &mut out);
        for (index, (ours, theirs)) in out.iter().zip(&values).enumerate() {
            assert_eq!(canonical(*ours), canonical(*theirs), "{stem} value {index}");
        }
    }
}

#[test]
fn stored_q8_0_has_the_recorded_bytes() {
    let (_, input) = npy::<f32>("q8_0.encode_in.npy");
    let (shape, output) = npy::<u8>("q8_0.encode_out.npy");
    assert_eq!(shape, [56, 34]);
    assert_eq!(quant::encode_q8_0(&input), output);
}

#[test]
fn q8_k_activations_have_the_recorded_bytes() {
    let (_, input) = npy::<f32>("q8_k.encode_in.npy");
    let (shape, blocks) = npy::<u8>("q8_k.blocks.npy");
    assert_eq!(shape, [24, 292]);
    let row = Q8KRow::encode(&input);
    for (index, block) in blocks.chunks_exact(292).enumerate() {
        assert_eq!(row.scales[index].to_le_bytes(), block[..4], "scale of block {index}");
        let quants: Vec<u8> =
            row.quants[256 * index..256 * (index + 1)].iter().map(|q| *q as u8).collect();
        assert_eq!(quants, block[4..260], "codes of block {index}");
        let sums: Vec<u8> = row.sums[16 * index..16 * (index + 1)]
            .iter()
            .flat_map(|sum| sum.to_le_bytes())
            .collect();
        assert_eq!(sums, block[260..], "sums of block {index}");
    }
}

#[test]
fn q8_activations_round_half_to_even_and_keep_the_scale_in_f32() {
    // amax 127 makes the scale 1, so codes are the values themselves.
    let mut x = vec![0.0_f32; 32];
    x[..9].copy_from_slice(&[127.0, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 126.5, -126.5]);
    let row = Q8Row::encode(&x);
    assert_eq!(row.scales, [1.0]);
    assert_eq!(row.quants[..9], [127, 0, 2, 2, 0, -2, -2, 126, -126]);

    // A scale that f16 cannot hold: 1.001 / 127.
    x.fill(0.0);
    x[31] = -1.001;
    let row = Q8Row::encode(&x);
    assert_eq!(row.scales, [1.001 / 127.0]);
    assert_eq!((row.quants[0], row.quants[31]), (0, -127));
}

#[test]
fn activations_of_zero_and_of_the_extremes_encode_without_surprises() {
    let zeros = [0.0_f32, -0.0].repeat(128);
    let (small, large) = (Q8Row::encode(&zeros), Q8KRow::encode(&zeros));
    assert!(small.scales.iter().chain(&large.scales).all(|scale| scale.to_bits() == 0));
    assert!(small.quants.iter().chain(&large.quants).all(|q| *q == 0));
    assert!(large.sums.iter().all(|sum| *sum == 0));

    // The smallest subnormal: its inverse scale overflows, so the block counts as zero.
    let tiny = vec![f32::from_bits(1); 256];
    let (small, large) = (Q8Row::encode(&tiny), Q8KRow::encode(&tiny));
    assert!(small.scales.iter().chain(&large.scales).all(|scale| *scale == 0.0));
    assert!(small.quants.iter().chain(&large.quants).all(|q| *q == 0));

    let huge = [f32::MAX, -f32::MAX].repeat(128);
    let (small, large) = (Q8Row::encode(&huge), Q8KRow::encode(&huge));
    assert!(small.scales.iter().chain(&large.scales).all(|scale| scale.is_finite()));
    assert_eq!(small.quants[..2], [127, -127]);
    assert_eq!(large.quants[..2], [-127, 127]);
}

#[test]
fn the_largest_element_of_a_q8_k_block_becomes_minus_127_and_the_first_of_equals_decides() {
    let mut x = vec![0.0_f32; 256];
    x[7] = 2.0;
    x[9] = -2.0;
    let row = Q8KRow::encode(&x);
    assert_eq!((row.quants[7], row.quants[9]), (-127, 127));
    assert!(row.scales[0] < 0.0);
    assert_eq!(row.sums[0], 0, "the two are in one group of 16");
    (x[7], x[9]) = (-2.0, 2.0);
    let row = Q8KRow::encode(&x);
    assert_eq!((row.quants[7], row.quants[9]), (-127, 127));
    assert!(row.scales[0] > 0.0);
    // Ties: 127 parts in 254 make one code of 2 / 127 * x.
    x.fill(0.0);
    x[0] = -127.0;
    (x[1], x[2], x[3]) = (0.5, 1.5, -2.5);
    assert_eq!(Q8KRow::encode(&x).quants[..4], [-127, 0, 2, -2]);
}

/// The integer products against the decoded weights in f64, where both are exact enough to tell.
#[test]
fn integer_products_agree_with_decoded_weights() {
    let codes: Vec<i8> = (0..256).map(|i| ((i * 37 + 11) % 255 - 127) as i8).collect();
    let sums: Vec<i16> =
        codes.chunks(16).map(|group| group.iter().fold(0, |sum, q| sum + i16::from(*q))).collect();
    for (stem, dtype) in [
        ("q8_0", DType::Q8_0),
        ("q2_k", DType::Q2K),
        ("q4_k", DType::Q4K),
        ("iq2_xxs", DType::Iq2Xxs),
    ] {
        let (_, bytes) = npy::<u8>(&format!("{stem}.blocks.npy"));
        let mut compared = 0;
        for block in bytes.chunks_exact(dtype.block_bytes()) {
            let mut weights = vec![0.0; dtype.block_elements()];
            quant::decode_row(dtype, block, &mut weights);
            if weights.iter().any(|weight| !weight.is_finite()) {
                continue;
            }
            let exact = weights
                .iter()
                .zip(&codes)
                .fold(0.0_f64, |sum, (w, x)| sum + f64::from(*w) * f64::from(*x));
            let size = weights
                .iter()
                .zip(&codes)
                .fold(0.0_f64, |sum, (w, x)| sum + (f64::from(*w) * f64::from(*x)).abs());
            let product = match dtype {
                DType::Q8_0 => {
                    let (d, dot) = quant::q8_0_dot(block, &codes[..32]);
                    f64::from(d) * f64::from(dot)
                }
                DType::Iq2Xxs => {
                    let (d, dot) = quant::iq2_xxs_dot(block, &codes);
                    f64::from(d) * f64::from(dot) * 0.125
                }
                _ => {
                    let dot = if dtype == DType::Q2K { quant::q2_k_dot } else { quant::q4_k_dot };
                    let dot = dot(block, &codes, &sums);
                    f64::from(dot.d) * f64::from(dot.codes)
                        - f64::from(dot.d_min) * f64::from(dot.minima)
                }
            };
            // Decoded weights were rounded to f32 twice at most.
            assert!((product - exact).abs() <= size * 4e-7 + 1e-30, "{stem}: {product}, {exact}");
            compared += 1;
        }
        assert_eq!(compared, 64, "{stem}");
    }
}
