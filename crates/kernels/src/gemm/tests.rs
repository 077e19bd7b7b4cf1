//! Checks every path against its documented order of sums, bit for bit, and against exact sums.

use half::{bf16, f16};
use rand::{Rng, SeedableRng};

use super::{
    blocking::KC,
    dot::Dots,
    few_rows, loops,
    pairs::{ByWay, Multiply, are_exact},
    panels::Panels,
    portable,
    product::Product,
    tiles, *,
};
use crate::{
    amx,
    float::{Float, VectorFloat},
    simd,
    simd::{
        SizeRange,
        twin::{WithTiles, WithTwin},
    },
    threads,
};

fn random<T: Float<Wide = f32>>(len: usize, seed: u64) -> Vec<T> {
    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
    (0..len).map(|_| T::narrow(rng.random_range(-1.0..1.0))).collect()
}

/// Returns the positions of element (i, p) of the left and (p, j) of the right operand.
fn places(
    layout: Layout,
    (m, k, n): (usize, usize, usize),
) -> (impl Fn(usize, usize) -> usize, impl Fn(usize, usize) -> usize) {
    let left = move |i: usize, p: usize| if layout == Layout::TN { p * m + i } else { i * k + p };
    let right = move |p: usize, j: usize| if layout == Layout::NT { j * k + p } else { p * n + j };
    (left, right)
}

/// Computes the scalar twin of `loops`: one sum after another, in the order documented by the module.
fn twin<T: Float<Wide = f32>>(one: &Product<T>) -> Vec<T> {
    twin_of(one, KC, |terms| terms.fold(0f32, |s, (a, b)| a.mul_add(b, s)))
}

/// Computes a product whose blocks of terms are added up by `of_block`.
fn twin_of<T: Float<Wide = f32>>(
    one: &Product<T>,
    block: usize,
    of_block: impl Fn(&mut dyn Iterator<Item = (f32, f32)>) -> f32,
) -> Vec<T> {
    let (m, k, n) = one.mkn;
    let (left, right) = places(one.layout, one.mkn);
    let element = |i: usize, j: usize| {
        let mut sum = None;
        for &term in one.terms {
            let (a, b) = one.operands(term);
            for p0 in (0..k).step_by(block) {
                let terms = p0..(p0 + block).min(k);
                let block = of_block(&mut terms.map(|p| (a[left(i, p)].widen(), b[right(p, j)].widen())));
                sum = Some(sum.map_or(block, |before| before + block));
            }
        }
        let sum = sum.expect("there are terms");
        T::narrow(match one.added {
            Added::Nothing => sum,
            Added::ToColumns(x) => sum + x[j].widen(),
            Added::ToRows(x) => sum + x[i].widen(),
            Added::ToEach(x) => sum + x[i * n + j].widen(),
        })
    };
    (0..m * n).map(|at| element(at / n, at % n)).collect()
}

/// Computes one sum of a block in the order of [`Tiles::multiply`](crate::simd::Tiles): steps of 32 terms.
fn tile_order(terms: impl Iterator<Item = (f32, f32)>) -> f32 {
    let terms: Vec<(f32, f32)> = terms.collect();
    terms.chunks(32).fold(0f32, |sum, step| {
        let of = |first: usize| step.iter().skip(first).step_by(2).fold(0f32, |sum, (a, b)| a.mul_add(*b, sum));
        sum + (of(0) + of(1))
    })
}

/// Checks that the result is within the rounding error of f32 sums and one result.
fn check_near<T: Float<Wide = f32>>(one: &Product<T>, got: &[T]) {
    let (_, k, n) = one.mkn;
    let (left, right) = places(one.layout, one.mkn);
    for (at, got) in got.iter().enumerate() {
        let (i, j) = (at / n, at % n);
        let (mut exact, mut size) = (0f64, 0f64);
        for &term in one.terms {
            let (a, b) = one.operands(term);
            for p in 0..k {
                let product = f64::from(a[left(i, p)].widen()) * f64::from(b[right(p, j)].widen());
                exact += product;
                size += product.abs();
            }
        }
        let added = match one.added {
            Added::Nothing => 0.0,
            Added::ToColumns(x) => f64::from(x[j].widen()),
            Added::ToRows(x) => f64::from(x[i].widen()),
            Added::ToEach(x) => f64::from(x[at].widen()),
        };
        (exact, size) = (exact + added, size + added.abs());
        let count = (k * one.terms.len() + 2) as f64;
        let bound = count * f64::from(f32::EPSILON) * size + T::DTYPE.epsilon() * exact.abs();
        let got = f64::from(got.widen());
        assert!((got - exact).abs() <= bound, "{:?} {:?} ({i}, {j}): {got} for {exact}", one.mkn, one.layout);
    }
}

const SIZES: [(usize, usize, usize); 21] = [
    (1, 1, 1),
    (1, 7, 33),
    (2, 3, 5),
    (5, 300, 31),
    (6, 16, 16),
    (7, 13, 17),
    (8, 32, 32),
    (9, 31, 33),
    (13, 257, 65),
    (16, 256, 64),
    (3, 513, 2),
    (31, 8, 1),
    (129, 5, 3),
    (65, 35, 101),
    (20, 20, 515),
    (133, 9, 33),
    (10, 1, 1030),
    (4, 258, 4100),
    (8, 5, 600),
    (2051, 258, 3),
    (33, 2100, 34),
];

/// Keeps small sizes under Miri, which takes minutes for the large ones.
fn small_under_miri<const N: usize>(sizes: [(usize, usize, usize); N]) -> impl Iterator<Item = (usize, usize, usize)> {
    sizes.into_iter().filter(|(m, k, n)| !cfg!(miri) || m * k * n < 3000)
}

fn check_all<T: Gemm + VectorFloat>(bits: impl Fn(&T) -> u32) {
    for (mkn, layout) in small_under_miri(SIZES).flat_map(|mkn| [Layout::NN, Layout::NT, Layout::TN].map(|l| (mkn, l)))
    {
        let (m, k, n) = mkn;
        let (a, b, added) = (random::<T>(2 * m * k, 1), random::<T>(3 * k * n, 2), random::<T>(m * n, 3));
        for (terms, added) in [
            (vec![(0, 0)], Added::Nothing),
            (vec![(1, 2), (0, 1)], Added::ToEach(&added[..])),
            (vec![(0, 1)], Added::ToColumns(&added[..n])),
            (vec![(1, 2)], Added::ToRows(&added[..m])),
        ] {
            let one = Product { layout, mkn, a: &a, b: &b, terms: &terms, added };
            let want = twin(&one);
            check_near(&one, &want);
            for width in simd::widths() {
                let mut got = vec![T::default(); m * n];
                let done =
                    loops::on_one_thread(&one, &mut got, |region| simd::run_with(width, ByWay::new(region)).is_ok());
                assert!(done);
                let same = got.iter().zip(&want).all(|(got, want)| bits(got) == bits(want));
                assert!(same, "{mkn:?} {layout:?} {width:?}: {got:?} for {want:?}");
                if layout != Layout::NT && one.terms.len() == 1 {
                    let mut got = vec![T::default(); m * n];
                    few_rows::with_width(width, &one, &mut got);
                    let same = got.iter().zip(&want).all(|(got, want)| bits(got) == bits(want));
                    assert!(same, "by rows, {mkn:?} {layout:?} {width:?}: {got:?} for {want:?}");
                }
            }
            let mut got = vec![T::default(); m * n];
            portable::product(&one, &mut got);
            check_near(&one, &got);
            let mut got = vec![T::default(); m * n];
            let (terms, layout) = (&[terms.clone()][..], one.layout);
            products(&Products { layout, mkn, a: &a, b: &b, terms, added }, &mut got);
            check_near(&one, &got);
        }
    }
}

/// Instructions that multiply pairs of terms.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Instruction {
    Pairs,
    Tiles,
}

/// Checks a product by pairs or by tiles: with the twin of the instruction, and with the instruction if available.
fn check_instruction(instruction: Instruction, one: &Product<bf16>, want: &[bf16], about: &str) {
    let bits = |x: &bf16| if x.is_nan() { bf16::NAN.to_bits() } else { x.to_bits() };
    let check = |got: Vec<bf16>, by: &str| {
        let same = got.iter().zip(want).all(|(got, want)| bits(got) == bits(want));
        assert!(same, "{about} {:?} {:?} {by} of {instruction:?}: {got:?} for {want:?}", one.mkn, one.layout);
    };
    for width in simd::widths() {
        let mut got = vec![bf16::ZERO; want.len()];
        assert!(loops::on_one_thread(one, &mut got, |region| match instruction {
            Instruction::Pairs => simd::run_with(width, WithTwin(ByWay::new(region))).is_ok(),
            Instruction::Tiles => simd::run_with(width, WithTiles(ByWay::new(region))).is_ok(),
        }));
        check(got, &format!("twin with {width:?}"));
    }
    let mut got = vec![bf16::ZERO; want.len()];
    if loops::on_one_thread(one, &mut got, |region| match instruction {
        Instruction::Pairs => simd::run_pairs(ByWay::new(region)).is_ok(),
        Instruction::Tiles => simd::run_tiles(ByWay::new(region)).is_ok(),
    }) {
        check(got, "instruction");
    }
}

/// Checks all products of `a` and `b` by pairs.
fn check_pairs(mkn: (usize, usize, usize), a: &[bf16], b: &[bf16], terms: &[(usize, usize)], about: &str) {
    for layout in [Layout::NN, Layout::NT, Layout::TN] {
        let one = Product { layout, mkn, a, b, terms, added: Added::Nothing };
        check_instruction(Instruction::Pairs, &one, &twin(&one), about);
    }
}

/// Checks a product by tiles.
fn check_tiles(one: &Product<bf16>, about: &str) {
    let want = twin_of(one, tiles::BLOCK, |terms| tile_order(terms));
    check_instruction(Instruction::Tiles, one, &want, about);
}

#[test]
fn pairs_have_the_bits_of_single_terms() {
    for mkn in small_under_miri(SIZES) {
        let (m, k, n) = mkn;
        let (mut a, mut b) = (random::<bf16>(2 * m * k, 1), random::<bf16>(2 * k * n, 2));
        check_pairs(mkn, &a, &b, &[(0, 1), (1, 0)], "random");
        // Half of all numbers are 0, of either sign.
        a.iter_mut().chain(&mut b).step_by(2).for_each(|x| *x = bf16::from_f32(0f32.copysign(x.to_f32())));
        check_pairs(mkn, &a, &b, &[(1, 1)], "with zeros");
    }
}

#[test]
fn tiles_take_the_order_of_the_instruction() {
    for (mkn, layout) in small_under_miri(SIZES).flat_map(|mkn| [Layout::NN, Layout::NT, Layout::TN].map(|l| (mkn, l)))
    {
        let (m, k, n) = mkn;
        let (a, b, added) = (random::<bf16>(2 * m * k, 1), random::<bf16>(2 * k * n, 2), random::<bf16>(m * n, 3));
        let terms = [(0, 1), (1, 0)];
        for (terms, added) in [(&terms[..1], Added::ToRows(&added[..m])), (&terms[..], Added::ToEach(&added[..]))] {
            let one = Product { layout, mkn, a: &a, b: &b, terms, added };
            check_tiles(&one, "random");
            check_near(&one, &twin_of(&one, tiles::BLOCK, |terms| tile_order(terms)));
        }
    }
}

#[test]
fn tiles_of_numbers_that_the_instruction_flushes_are_multiplied_in_f32() {
    let (m, k, n) = (37, 70, 35);
    for (of_a, of_b) in [(-56, -56), (-60, -60), (-130, 0), (0, -134), (-30, -30)] {
        let number = |exponent: i32| move |x: bf16| bf16::from_f32((f64::from(x) * 2f64.powi(exponent)) as f32);
        let a: Vec<bf16> = random(m * k, 1).into_iter().map(number(of_a)).collect();
        let b: Vec<bf16> = random(k * n, 2).into_iter().map(number(of_b)).collect();
        let (layout, mkn, added) = (Layout::NN, (m, k, n), Added::Nothing);
        let one = Product { layout, mkn, a: &a, b: &b, terms: &[(0, 0)], added };
        check_tiles(&one, &format!("2^{of_a} times 2^{of_b}"));
    }
    for x in [bf16::INFINITY, bf16::NAN, bf16::MIN_POSITIVE_SUBNORMAL] {
        let (mut a, b) = (random::<bf16>(m * k, 1), random::<bf16>(k * n, 2));
        a[1000] = x;
        let (layout, mkn, added) = (Layout::NT, (m, k, n), Added::Nothing);
        check_tiles(&Product { layout, mkn, a: &a, b: &b, terms: &[(0, 0)], added }, &format!("one is {x}"));
    }
}

#[test]
fn packed_operands_take_the_order_of_tiles() {
    if simd::widest() == simd::Width::One {
        return;
    }
    for (m, k, n) in small_under_miri([(3, 7, 33), (9, 300, 65), (40, 1100, 31)]) {
        let (a, b) = (random::<bf16>(m * k, 1), partly_tiny::<bf16>(k * n, 2));
        let (wide_a, wide_b) = (bf16::widen_slice(&a), bf16::widen_slice(&b));
        let (layout, mkn, terms) = (Layout::NT, (m, k, n), [(0, 0)]);
        let one = Product { layout, mkn, a: &wide_a[..], b: &wide_b[..], terms: &terms, added: Added::Nothing };
        let want = twin_of(&one, tiles::BLOCK, |terms| tile_order(terms));
        amx::twin::with(|| {
            let mut got = vec![f32::NAN; m * n];
            Packed::<bf16>::new(layout, (k, n), &b).multiply(&a, k, None, &mut got);
            assert_eq!(got, want, "{mkn:?}");
        });
    }
}

#[test]
fn pairs_of_numbers_that_the_instruction_flushes_are_multiplied_in_f32() {
    let number = |exponent: i32| move |x: bf16| bf16::from_f32((f64::from(x) * 2f64.powi(exponent)) as f32);
    // Down to below the smallest subnormal, and on both sides of the border.
    for (of_a, of_b) in [(-56, -56), (-50, -70), (-60, -60), (-126, 0), (-130, 0), (0, -134), (-100, -30), (120, 120)] {
        let mkn = (9, 300, 35);
        let a: Vec<bf16> = random(9 * 300, 1).into_iter().map(number(of_a)).collect();
        let b: Vec<bf16> = random(300 * 35, 2).into_iter().map(number(of_b)).collect();
        check_pairs(mkn, &a, &b, &[(0, 0)], &format!("2^{of_a} times 2^{of_b}"));
    }
    let (mut a, mut b) = (random::<bf16>(9 * 300, 1), random::<bf16>(300 * 35, 2));
    for x in [bf16::INFINITY, bf16::NAN, bf16::MIN_POSITIVE_SUBNORMAL, bf16::MAX, bf16::NEG_INFINITY] {
        (a[1777], b[4444]) = (x, x);
        check_pairs((9, 300, 35), &a, &b, &[(0, 0)], &format!("one is {x}"));
    }
}

#[test]
fn numbers_are_exact_as_pairs_where_no_sum_can_be_subnormal() {
    let of = |least: f64, most: f64| {
        let bits = |x: f64| u32::from(bf16::from_f64(x).to_bits());
        SizeRange { least: bits(least), most: bits(most) }
    };
    let none = SizeRange { least: 0x10000, most: 0 };
    let two = |exponent: i32| 2f64.powi(exponent);
    assert!(are_exact(of(two(-56), 1.0), of(two(-56), 1e30)));
    assert!(!are_exact(of(two(-56), 1.0), of(1.99 * two(-57), 1.0)));
    assert!(are_exact(of(two(-126), 1.0), of(two(14), two(20))));
    assert!(!are_exact(of(two(-127), 1.0), of(two(30), two(30))));
    assert!(!are_exact(of(1.0, f64::INFINITY), of(1.0, 1.0)));
    assert!(are_exact(none, of(two(-126), 1.0)) && are_exact(none, none));
    assert!(!are_exact(none, of(two(-130), 1.0)));
}

#[test]
fn f32_products_are_the_twins() {
    check_all::<f32>(|x| x.to_bits());
}

#[test]
fn f16_products_are_the_twins() {
    check_all::<f16>(|x| x.to_bits().into());
}

#[test]
fn bf16_products_are_the_twins() {
    check_all::<bf16>(|x| x.to_bits().into());
}

/// Computes one element in the order documented by `dot`.
fn dot_twin<T: Float<Wide = f32>>(a: &[f32], b: &[T], lanes: usize) -> f32 {
    let mut sums = vec![0f32; lanes];
    for (p, (a, b)) in a.iter().zip(b).enumerate() {
        sums[p % lanes] = a.mul_add(b.widen(), sums[p % lanes]);
    }
    while sums.len() > 1 {
        let upper = sums.split_off(sums.len() / 2);
        sums.iter_mut().zip(upper).for_each(|(sum, x)| *sum += x);
    }
    sums[0]
}

#[test]
fn dots_of_rows_that_overlap_are_the_twins() {
    let (a, b) = (random::<f32>(3000, 4), random::<f16>(4000, 5));
    for (rows, columns, len) in [(1, 1, 1), (1, 5, 8), (4, 4, 16), (5, 9, 17), (8, 3, 300), (3, 2, 1023), (2, 6, 0)] {
        let a_rows: Vec<usize> = (0..rows).map(|i| i * 101 % 1900).collect();
        let b_rows: Vec<usize> = (0..columns).map(|j| j * 67 % 2900).collect();
        for width in simd::widths() {
            let mut sums = vec![f32::NAN; rows * columns];
            let dots = Dots { a: &a, a_rows: &a_rows, b: &b, b_rows: &b_rows, len, sums: &mut sums };
            assert!(simd::run_with(width, dots).is_ok());
            for (at, sum) in sums.iter().enumerate() {
                let (i, j) = (a_rows[at / columns], b_rows[at % columns]);
                let want = dot_twin(&a[i..i + len], &b[j..j + len], width.lanes());
                assert_eq!(sum.to_bits(), want.to_bits(), "{rows} x {columns} x {len}: {at}");
            }
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "what is worth two threads takes Miri an hour")]
fn the_number_of_threads_changes_no_bit() {
    for (layout, mkn) in [
        (Layout::NN, (300, 70, 290)),
        (Layout::TN, (260, 129, 257)),
        (Layout::NT, (4, 1000, 1001)),
        (Layout::NN, (5, 500, 999)),
        (Layout::TN, (1, 2000, 301)),
        (Layout::TN, (2000, 301, 1)),
    ] {
        let (m, k, n) = mkn;
        assert!(m * k * n > threads::SMALL, "large enough for threads");
        let (a, b) = (random::<bf16>(m * k, 1), random::<bf16>(k * n, 2));
        let results = [1, 2, 5].map(|count| {
            threads::set_threads(count);
            let mut out = vec![bf16::ZERO; m * n];
            let (terms, added) = (&[vec![(0, 0)]][..], Added::Nothing);
            products(&Products { layout, mkn, a: &a, b: &b, terms, added }, &mut out);
            out
        });
        threads::set_threads(0);
        assert!(results[0] == results[1] && results[0] == results[2], "{layout:?}");
    }
}

#[test]
fn a_product_without_terms_is_what_is_added() {
    let added = [f16::ONE; 6];
    let mut out = [f16::ZERO; 6];
    let (layout, mkn, a, b) = (Layout::NN, (2, 0, 3), &[][..], &[][..]);
    products(&Products { layout, mkn, a, b, terms: &[vec![(0, 0)]], added: Added::ToEach(&added) }, &mut out);
    assert_eq!(out, added);
}

/// Returns numbers of all sizes; those of the second half of the rows are too small for pairs.
fn partly_tiny<T: Float<Wide = f32>>(len: usize, seed: u64) -> Vec<T> {
    let mut numbers = random::<T>(len, seed);
    numbers[len / 2..].iter_mut().for_each(|x| *x = T::narrow(x.widen() * 2f32.powi(-100)));
    numbers
}

#[test]
fn packed_operands_take_the_same_order() {
    fn go<T: Gemm + Multiply>() {
        let sizes = [(1, 1, 1), (3, 7, 33), (16, 256, 40), (9, 300, 65), (17, 521, 31), (130, 258, 530), (2, 0, 5)];
        for (m, k, n) in small_under_miri(sizes) {
            for (layout, tiny) in [Layout::NN, Layout::NT].into_iter().flat_map(|l| [(l, false), (l, true)]) {
                let stride = k + 3;
                let numbers = if tiny { partly_tiny } else { random };
                let (rows, b, added) = (numbers(m * stride, 1), numbers(k * n, 2), random::<f32>(n, 3));
                let a: Vec<f32> =
                    rows.chunks(stride).flat_map(|row: &[T]| row[..k].iter().map(|x| x.widen())).collect();
                let wide = T::widen_slice(&b);
                let terms = [(0, 0)];
                let to_columns = Added::ToColumns(&added[..]);
                let one = Product { layout, mkn: (m, k, n), a: &a, b: &wide, terms: &terms, added: to_columns };
                let expected = if k == 0 { added.repeat(m) } else { twin(&one) };
                for width in simd::widths().filter(|_| k > 0) {
                    let mut out = vec![f32::NAN; m * n];
                    Panels::<T>::new(width, layout, (k, n), &b).unwrap().multiply(&rows, stride, to_columns, &mut out);
                    assert_eq!(out, expected, "{layout:?} {:?} {width:?}", (m, k, n));
                }
                let mut out = vec![f32::NAN; m * n];
                Packed::<T>::new(layout, (k, n), &b).multiply(&rows, stride, Some(&added), &mut out);
                check_near(&one, &out);
            }
        }
    }
    go::<f32>();
    go::<f16>();
    go::<bf16>();
    // f64 has no panels.
    let b: Vec<f64> = (0..6).map(f64::from).collect();
    let mut out = [0.0; 2];
    Packed::new(Layout::NT, (3, 2), &b).multiply(&[1.0, 10.0, 100.0], 3, Some(&[0.5, 0.25]), &mut out);
    assert_eq!(out, [210.5, 543.25]);
}
