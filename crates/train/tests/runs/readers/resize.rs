//! Downscaled, upscaled and grey images.

use precast_train::data::{Dataset, Images};

use crate::readers::{images::png, inputs};

/// Returns an image that is white where x is a multiple of 8.
fn lines() -> Vec<f32> {
    (0..64 * 64).map(|i| if i % 64 % 8 == 0 { 1.0 } else { 0.0 }).collect()
}

fn resized(image: Vec<f32>, from: [usize; 2], to: [usize; 2]) -> Vec<f64> {
    let data = Dataset::new(image, &[1, from[0], from[1]], vec![0]).unwrap();
    inputs(&data.resize(to[0], to[1]).unwrap())
}

/// Filters by the definition: the triangle around the centre of a new pixel, which extends `from / to` pixels to each
/// side, over all existing pixels.
fn filtered(image: &[f32], [h, w]: [usize; 2], [height, width]: [usize; 2]) -> Vec<f64> {
    let weights = |from: usize, to: usize, i: usize| -> Vec<f64> {
        let scale = from as f64 / to as f64;
        let reach = scale.max(1.0);
        let weight = |at: usize| (1.0 - ((at as f64 + 0.5 - (i as f64 + 0.5) * scale) / reach).abs()).max(0.0);
        let sum: f64 = (0..from).map(weight).sum();
        (0..from).map(|at| weight(at) / sum).collect()
    };
    let mut out = Vec::new();
    for y in 0..height {
        for x in 0..width {
            let (down, across) = (weights(h, height, y), weights(w, width, x));
            let pixel = |at: usize| f64::from(image[at]) * down[at / w] * across[at % w];
            out.push((0..h * w).map(pixel).sum());
        }
    }
    out
}

fn assert_near(met: &[f64], expected: &[f64], what: &str) {
    assert_eq!(met.len(), expected.len());
    for (i, (met, expected)) in met.iter().zip(expected).enumerate() {
        assert!((met - expected).abs() < 2e-7, "{what}: {i}: {met}, expected {expected}");
    }
}

fn pattern() -> Vec<f32> {
    (0..70).map(|i| ((i / 10 * 7 + i % 10 * 5) % 11) as f32 / 10.0).collect()
}

#[test]
fn an_image_made_smaller_is_filtered() {
    let small = resized(lines(), [64, 64], [8, 8]);
    assert!(small.chunks(8).all(|row| row[1..7].iter().all(|x| (x - 0.125).abs() < 1e-7)), "{small:?}");
    for to in [[8, 8], [16, 16], [9, 64], [64, 5], [1, 1], [63, 63]] {
        assert_near(&resized(lines(), [64, 64], to), &filtered(&lines(), [64, 64], to), &format!("{to:?}"));
    }
    for to in [[3, 4], [5, 5], [7, 3], [1, 10], [3, 15], [20, 2]] {
        assert_near(&resized(pattern(), [7, 10], to), &filtered(&pattern(), [7, 10], to), &format!("{to:?}"));
    }
}

/// Pillow 13.0: `Image.fromarray(image).resize((width, height), Image.BILINEAR)` of float32 images (mode F).
#[test]
fn the_numbers_are_those_of_pillow() {
    let ends = [0.14285715, 0.125, 0.125, 0.125, 0.125, 0.125, 0.125, 0.08035714];
    assert_near(&resized(lines(), [64, 64], [8, 8])[..8], &ends, "8 x 8");
    let mut row = vec![0.17857143];
    row.extend([0.09375, 0.15625].repeat(7));
    row.push(0.0);
    let sixteen = resized(lines(), [64, 64], [16, 16]);
    assert_near(&sixteen[16..32], &row, "16 x 16");
    let of_three_by_four = [
        0.4392857253551483,
        0.48828572034835815,
        0.5540000200271606,
        0.5392857193946838,
        0.5352941155433655,
        0.528705894947052,
        0.471294105052948,
        0.4647058844566345,
        0.46071431040763855,
        0.44600000977516174,
        0.5117142796516418,
        0.5607143044471741,
    ];
    assert_near(&resized(pattern(), [7, 10], [3, 4]), &of_three_by_four, "3 x 4");
    // Smaller along one axis, larger along the other.
    let of_three_by_fifteen = [
        0.3642857074737549,
        0.37857142090797424,
        0.43690475821495056,
        0.613095223903656,
        0.4750000238418579,
        0.33690476417541504,
        0.5130952596664429,
        0.610714316368103,
        0.6297619342803955,
        0.49166667461395264,
        0.5107142925262451,
        0.5690475702285767,
        0.5880951881408691,
        0.5285714268684387,
        0.4642857313156128,
    ];
    assert_near(&resized(pattern(), [7, 10], [3, 15])[..15], &of_three_by_fifteen, "3 x 15");
    let of_seven_by_three = [
        0.5220338702201843,
        0.6000000238418579,
        0.43559321761131287,
        0.3644067943096161,
        0.5666666626930237,
        0.6135593056678772,
        0.4864406883716583,
        0.3499999940395355,
        0.5677965879440308,
    ];
    assert_near(&resized(pattern(), [7, 10], [7, 3])[..9], &of_seven_by_three, "7 x 3");
}

#[test]
fn white_stays_white_and_black_stays_black() {
    for to in [[1, 1], [3, 5], [7, 11], [13, 29], [30, 30], [31, 2], [2, 64], [64, 64]] {
        for colour in [0.0, 1.0, 0.5] {
            let met = resized(vec![colour as f32; 31 * 31], [31, 31], to);
            assert!(met.iter().all(|x| *x == colour), "{to:?} {colour}");
        }
    }
}

/// If only one axis becomes smaller, the other is unchanged.
#[test]
fn an_axis_that_stays_is_not_touched() {
    let met = resized(vec![0.0, 0.25, 0.5, 1.0, 0.75, 0.5], [2, 3], [1, 3]);
    assert_eq!(met, [0.5, 0.5, 0.5]);
}

#[test]
fn grey_is_bt_601() {
    let grey = |colours: &[u8]| {
        let pixels = inputs(&Images::new("").grey().parse(&png(colours.len() / 3, 1, 2, colours), "a.png").unwrap());
        pixels.into_iter().map(|x| 255.0 * x).collect::<Vec<f64>>()
    };
    let met = grey(&[255, 0, 0, 0, 255, 0, 0, 0, 255, 10, 20, 30, 255, 255, 255, 0, 0, 0]);
    let right = [0.299 * 255.0, 0.587 * 255.0, 0.114 * 255.0, 2.99 + 11.74 + 3.42];
    // Pillow 13.0 rounds them to 8 bits: `convert("L")` gives 76, 150, 29 and 18.
    for ((met, right), pillow) in met.iter().zip(right).zip([76.0, 150.0, 29.0, 18.0]) {
        assert!((met - right).abs() < 1e-4 && (met - pillow).abs() <= 0.5 + 1e-2, "{met} {right}");
    }
    assert_eq!(met[4..], [255.0, 0.0]);
    // Grey converted to colour is the same grey.
    for level in 0..=255u8 {
        let read =
            |color, samples: &[u8]| inputs(&Images::new("").grey().parse(&png(1, 1, color, samples), "a").unwrap());
        assert_eq!(read(2, &[level; 3]), read(0, &[level]), "{level}");
    }
}
