//! Random damage never makes the reader panic, hang or take memory.
//!
//! Promises: 100,000 damaged files (always the same: the generator has a fixed seed) each open or
//! are refused, within a second each, with at most ten times their size of live memory beyond the
//! file itself and 1 KiB (an allowance for the text of a refusal, which small files need); the
//! densest valid files stay within ten times their size without the allowance. A run that meets few
//! kinds of refusal has tested little and fails.
//! The clock is read only to bound a call from above by a hundred thousand times what it takes.
//! Leaves to others: coverage-guided search (`fuzz/`).

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use engine::ErrorKind;
use engine::format::{Gguf, GgufError};
use oracle::hostile;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// The system's allocator, counting the bytes each thread holds.
struct Counting;

thread_local! {
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    let live = LIVE.get() + bytes;
    LIVE.set(live);
    PEAK.set(PEAK.get().max(live));
}

// SAFETY: every call goes to the system's allocator unchanged. Counting allocates nothing: the
// cells are constants without a destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller's promise, passed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Both may exist at once while the bytes move.
        count(size as isize);
        count(-(layout.size() as isize));
        // SAFETY: the caller's promise, passed on.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What opening a file came to.
struct Opened {
    /// The refusal, if it was refused.
    refusal: Option<&'static str>,
    /// The most bytes held at once beyond those of the file.
    peak: usize,
    took: Duration,
}

fn open(bytes: Vec<u8>) -> Opened {
    let before = LIVE.get();
    PEAK.set(before);
    let start = Instant::now();
    let result = Gguf::from_bytes(bytes);
    let took = start.elapsed();
    let peak = (PEAK.get() - before) as usize;
    let refusal = result.err().map(|error| {
        let message = error.to_string();
        assert!(!message.is_empty() && !message.ends_with('.') && message.len() < 500, "{message}");
        match error.kind() {
            ErrorKind::Gguf(refusal) => refusal.name(),
            _ => panic!("not a refusal of the format: {message}"),
        }
    });
    Opened { refusal, peak, took }
}

/// One way to damage a file. Places are fractions of the file's length, in 1/65536.
#[derive(Clone, Debug)]
enum Damage {
    FlipBit {
        at: u16,
        bit: u8,
    },
    SetByte {
        at: u16,
        byte: u8,
    },
    SetU32 {
        at: u16,
        number: u32,
    },
    SetU64 {
        at: u16,
        number: u64,
    },
    /// Overwrites the n-th field of the good file (of other files, whatever lies there).
    SetField {
        field_idx: usize,
        number: u64,
    },
    CutOff {
        at: u16,
    },
    Remove {
        at: u16,
        len: u8,
    },
    Repeat {
        at: u16,
        len: u8,
    },
    /// A piece of another seed in place of what is there.
    Splice {
        at: u16,
        seed_idx: usize,
        from: u16,
        len: u8,
    },
}

fn place(at: u16, len: usize) -> usize {
    (at as usize * len) >> 16
}

fn overwrite(bytes: &mut [u8], start: usize, new: &[u8]) {
    for (old, new) in bytes.iter_mut().skip(start).zip(new) {
        *old = *new;
    }
}

impl Damage {
    fn apply(&self, bytes: &mut Vec<u8>, seeds: &[Vec<u8>], fields: &[(usize, usize)]) {
        let len = bytes.len();
        let range = |at: u16, n: u8| {
            let start = place(at, len);
            start..(start + n as usize).min(len)
        };
        match *self {
            Self::FlipBit { at, bit } => {
                if let Some(byte) = bytes.get_mut(place(at, len)) {
                    *byte ^= 1 << bit;
                }
            }
            Self::SetByte { at, byte } => overwrite(bytes, place(at, len), &[byte]),
            Self::SetU32 { at, number } => overwrite(bytes, place(at, len), &number.to_le_bytes()),
            Self::SetU64 { at, number } => overwrite(bytes, place(at, len), &number.to_le_bytes()),
            Self::SetField { field_idx, number } => {
                let (start, width) = fields[field_idx % fields.len()];
                overwrite(bytes, start, &number.to_le_bytes()[..width]);
            }
            Self::CutOff { at } => bytes.truncate(place(at, len)),
            Self::Remove { at, len } => drop(bytes.drain(range(at, len))),
            Self::Repeat { at, len } => {
                let range = range(at, len);
                let piece = bytes[range.clone()].to_vec();
                bytes.splice(range.start..range.start, piece);
            }
            Self::Splice { at, seed_idx, from, len } => {
                let seed = &seeds[seed_idx % seeds.len()];
                let start = place(from, seed.len());
                let piece = seed[start..(start + len as usize).min(seed.len())].to_vec();
                bytes.splice(range(at, len), piece);
            }
        }
    }
}

/// Numbers at the edges of what a field can hold, and small ones.
fn extreme() -> impl Strategy<Value = u64> {
    prop_oneof![
        (0_u32..64, -1_i64..=1).prop_map(|(bit, step)| (1_u64 << bit).wrapping_add_signed(step)),
        0_u64..300,
        (0_u64..64).prop_map(|step| u64::MAX - step),
        any::<u64>(),
    ]
}

fn damage() -> impl Strategy<Value = Damage> {
    let len = 1_u8..=64;
    prop_oneof![
        2 => (any::<u16>(), 0_u8..8).prop_map(|(at, bit)| Damage::FlipBit { at, bit }),
        2 => (any::<u16>(), any::<u8>()).prop_map(|(at, byte)| Damage::SetByte { at, byte }),
        1 => (any::<u16>(), extreme())
            .prop_map(|(at, number)| Damage::SetU32 { at, number: number as u32 }),
        1 => (any::<u16>(), extreme()).prop_map(|(at, number)| Damage::SetU64 { at, number }),
        4 => (any::<usize>(), extreme())
            .prop_map(|(field_idx, number)| Damage::SetField { field_idx, number }),
        1 => any::<u16>().prop_map(|at| Damage::CutOff { at }),
        1 => (any::<u16>(), len.clone()).prop_map(|(at, len)| Damage::Remove { at, len }),
        1 => (any::<u16>(), len.clone()).prop_map(|(at, len)| Damage::Repeat { at, len }),
        1 => (any::<u16>(), any::<usize>(), any::<u16>(), len).prop_map(
            |(at, seed_idx, from, len)| Damage::Splice { at, seed_idx, from, len }
        ),
    ]
}

/// Start and width of the number fields of the good file: every place where four or eight bytes
/// hold a small number, which is what lengths, counts, types, dimensions and offsets look like.
fn number_fields(good: &[u8]) -> Vec<(usize, usize)> {
    let data_start = Gguf::from_bytes(good.to_vec()).unwrap().data_start();
    let small = |bytes: &[u8]| bytes[0] != 0 && bytes[2..].iter().all(|byte| *byte == 0);
    let widths = |start: usize| [4, 8].map(|width| (start, width));
    let fields = (4..data_start - 8).flat_map(widths);
    fields.filter(|&(start, width)| small(&good[start..start + width])).collect()
}

const CASES: u32 = 100_000;
/// Live bytes allowed beyond ten times the size of the file.
const ALLOWANCE: usize = 1024;
/// Kinds of refusal that damage to the good file alone must reach.
const KINDS_MIN: usize = 25;

#[test]
fn damaged_files_are_refused_in_little_time_and_memory() {
    let good = hostile::good_file();
    let fields = number_fields(&good);
    let mut seeds: Vec<Vec<u8>> = hostile::files().into_iter().map(|file| file.bytes).collect();
    seeds.push(good.clone());
    let strategy = (any::<bool>(), any::<usize>(), prop::collection::vec(damage(), 1..=4));

    let tally = std::cell::RefCell::new([BTreeMap::new(), BTreeMap::new()]);
    let worst = Cell::new((0.0_f64, isize::MIN, Duration::ZERO));
    let config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[0x4c; 32]);
    let result =
        TestRunner::new_with_rng(config, rng).run(&strategy, |(from_good, seed_idx, damages)| {
            let mut bytes = if from_good { &good } else { &seeds[seed_idx % seeds.len()] }.clone();
            for damage in damages {
                damage.apply(&mut bytes, &seeds, &fields);
            }
            let len = bytes.len();
            let Opened { refusal, peak, took } = open(bytes);
            prop_assert!(peak <= 10 * len + ALLOWANCE, "{peak} bytes held for a file of {len}");
            prop_assert!(took < Duration::from_secs(1), "{took:?}");
            let (ratio, excess, longest) = worst.get();
            worst.set((
                if len < 256 { ratio } else { ratio.max(peak as f64 / len as f64) },
                excess.max(peak as isize - 10 * len as isize),
                longest.max(took),
            ));
            let kind = refusal.unwrap_or("accepted");
            *tally.borrow_mut()[usize::from(from_good)].entry(kind).or_insert(0_u32) += 1;
            Ok(())
        });
    let [from_hostile, from_good] = tally.into_inner();
    report(&from_good, &from_hostile, worst.get());
    if let Err(failure) = result {
        panic!("{failure}");
    }
    assert_eq!(from_good.values().chain(from_hostile.values()).sum::<u32>(), CASES);
    for tally in [&from_good, &from_hostile] {
        let kinds = tally.keys().filter(|kind| **kind != "accepted").count();
        assert!(kinds >= KINDS_MIN, "only {kinds} kinds of refusal");
        assert!(tally.contains_key("accepted"), "no damaged file was accepted");
    }
}

#[expect(clippy::print_stdout, reason = "what was tested is part of the result")]
fn report(
    from_good: &BTreeMap<&str, u32>,
    from_hostile: &BTreeMap<&str, u32>,
    (ratio, excess, longest): (f64, isize, Duration),
) {
    println!("{:24} {:>10} {:>13}", "", "from good", "from hostile");
    for kind in std::iter::once(&"accepted").chain(GgufError::NAMES) {
        let of = |tally: &BTreeMap<&str, u32>| tally.get(kind).copied().unwrap_or(0);
        println!("{kind:24} {:>10} {:>13}", of(from_good), of(from_hostile));
    }
    println!("most memory: {ratio:.2} times the size among files of 256 bytes or more");
    println!(
        "most memory beyond ten times the size, any file: {excess} bytes of {ALLOWANCE} allowed"
    );
    println!("longest call: {longest:?}");
}

fn put(bytes: &mut Vec<u8>, text: &[u8]) {
    bytes.extend((text.len() as u64).to_le_bytes());
    bytes.extend(text);
}

fn header(n_tensors: u64, n_metadata: u64) -> Vec<u8> {
    [b"GGUF".as_slice(), &3_u32.to_le_bytes(), &n_tensors.to_le_bytes(), &n_metadata.to_le_bytes()]
        .concat()
}

/// Names of as few bytes as they can have and differ: all of one character, then all of two, ...
fn short_names(n: usize) -> impl Iterator<Item = Vec<u8>> {
    (1..)
        .flat_map(|len: u32| {
            (0..96_usize.pow(len)).map(move |mut number| {
                let digit = |_| {
                    let digit = b' ' + (number % 96) as u8;
                    number /= 96;
                    digit
                };
                (0..len).map(digit).collect()
            })
        })
        .take(n)
}

const DENSE: usize = 20_000;

/// The entries of a file that make the reader hold the most per byte.
fn dense_files() -> Vec<(&'static str, Vec<u8>)> {
    let mut bools = header(0, DENSE as u64);
    let mut empty_arrays = header(0, DENSE as u64);
    for name in short_names(DENSE) {
        put(&mut bools, &name);
        bools.extend(7_u32.to_le_bytes());
        bools.push(1);
        put(&mut empty_arrays, &name);
        empty_arrays.extend(9_u32.to_le_bytes());
        empty_arrays.extend(8_u32.to_le_bytes());
        empty_arrays.extend(0_u64.to_le_bytes());
    }
    let mut strings = header(0, 1);
    put(&mut strings, b"k");
    strings.extend(9_u32.to_le_bytes());
    strings.extend(8_u32.to_le_bytes());
    strings.extend((DENSE as u64).to_le_bytes());
    let mut one_byte_strings = strings.clone();
    for _ in 0..DENSE {
        put(&mut strings, b"");
        put(&mut one_byte_strings, b"x");
    }
    // Room is reserved for as many entries as could follow, and then one array takes all the bytes.
    let mut reserved = strings.clone();
    let entries_max = (reserved.len() - 24) / 13;
    reserved[16..24].copy_from_slice(&(entries_max as u64).to_le_bytes());
    let mut tensors = header(DENSE as u64, 0);
    for name in short_names(DENSE) {
        put(&mut tensors, &name);
        tensors.extend(1_u32.to_le_bytes());
        tensors.extend(1_u64.to_le_bytes());
        tensors.extend(0_u32.to_le_bytes());
        tensors.extend(0_u64.to_le_bytes());
    }
    tensors.resize(tensors.len().next_multiple_of(32) + 4, 0);
    vec![
        ("metadata of bools", bools),
        ("metadata of empty arrays", empty_arrays),
        ("empty strings", strings),
        ("strings of one byte", one_byte_strings),
        ("entries reserved, strings", reserved),
        ("aliases of one tensor", tensors),
    ]
}

#[test]
#[expect(clippy::print_stdout, reason = "what was measured is part of the result")]
fn the_densest_files_stay_within_ten_times_their_size() {
    for (what, bytes) in dense_files() {
        let len = bytes.len();
        // A count one higher is refused only at the very end, with everything else in memory.
        let mut late = bytes.clone();
        late[if what.contains("alias") { 8 } else { 16 }] += 1;
        for (bytes, accepted) in [(bytes, !what.contains("reserved")), (late, false)] {
            let Opened { refusal, peak, took } = open(bytes);
            println!(
                "{what:26} {refusal:?}: {:.2} times {len} bytes, {took:?}",
                peak as f64 / len as f64
            );
            assert!(peak < 10 * len, "{what}: {peak} bytes held for a file of {len}");
            assert_eq!(refusal.is_none(), accepted, "{what}");
        }
    }
}
