//! The digits, and datasets split into parts and batches.

use std::{collections::BTreeMap, fs, io::Write};

use precast::{DType, ErrorKind};
use precast_train::data::{Dataset, batches_of_epoch, digits, read_digits};

use crate::common::folder::Folder;

/// The digit counts published by the UCI repository and in scikit-learn's documentation.
#[test]
fn the_digits_are_the_published_ones() {
    let digits = digits().unwrap();
    assert_eq!((digits.len(), digits.shape(), digits.classes()), (1797, &[1, 8, 8][..], 10));
    let mut counts = BTreeMap::new();
    for label in digits.labels() {
        *counts.entry(*label).or_insert(0) += 1;
    }
    let published = [178, 182, 177, 183, 181, 182, 181, 179, 174, 180];
    assert_eq!(counts.into_values().collect::<Vec<_>>(), published);
    // The first image of `sklearn.datasets.load_digits().images[0]`: its second row is 0 0 13 15 10 15 5 0.
    let first = digits.batches(1).unwrap().next().unwrap();
    let pixels: Vec<f64> = first.x.to_f64()[8..16].iter().map(|p| p * 16.0).collect();
    assert_eq!(pixels, [0., 0., 13., 15., 10., 15., 5., 0.]);
    assert_eq!((first.x.dtype(), first.y.dtype(), first.y.item().unwrap()), (DType::F32, DType::I64, 0.0));
}

#[test]
fn a_split_keeps_every_example_and_depends_on_the_seed_alone() {
    let digits = digits().unwrap();
    let rows = |d: &Dataset| -> Vec<(Vec<u64>, i64)> {
        let pixels = |x: &precast::Tensor| x.to_f64().iter().map(|x| x.to_bits()).collect();
        d.batches(1).unwrap().map(|b| (pixels(&b.x), b.y.item().unwrap() as i64)).collect()
    };
    let split = digits.split(1500, 3).unwrap();
    assert_eq!((split.train.len(), split.test.len()), (1500, 297));
    let mut parts = [rows(&split.train), rows(&split.test)].concat();
    let mut all = rows(&digits);
    assert_ne!(parts, all, "shuffled");
    parts.sort();
    all.sort();
    assert_eq!(parts, all);
    assert_eq!(digits.split(1500, 3).unwrap(), split);
    assert_ne!(digits.split(1500, 4).unwrap(), split);
    for train in [0, 1797, 5000] {
        assert_eq!(digits.split(train, 0).unwrap_err().kind(), ErrorKind::Data);
    }
}

#[test]
fn no_batch_of_an_epoch_is_a_single_example() {
    let lengths = |n: usize, size: usize| -> Vec<usize> {
        let data = Dataset::new(vec![0.0; n], &[1], (0..n as i64).collect()).unwrap();
        let batches: Vec<_> = data.shuffled_batches(size, 1, 0).unwrap().map(|batch| batch.y).collect();
        let mut seen: Vec<f64> = batches.iter().flat_map(precast::Tensor::to_f64).collect();
        seen.sort_by(f64::total_cmp);
        assert_eq!(seen, (0..n).map(|i| i as f64).collect::<Vec<_>>(), "every example once");
        assert_eq!(batches.len(), batches_of_epoch(n, size));
        batches.iter().map(precast::Tensor::len).collect()
    };
    assert_eq!(lengths(9, 4), [4, 5]);
    assert_eq!(lengths(8, 4), [4, 4]);
    assert_eq!(lengths(10, 4), [4, 4, 2]);
    assert_eq!(lengths(5, 4), [5]);
    assert_eq!(lengths(3, 2), [3]);
    assert_eq!(lengths(1, 4), [1], "there is no other");
    assert_eq!(lengths(3, 1), [1, 1, 1], "as was asked for");
    assert_eq!((batches_of_epoch(0, 4), batches_of_epoch(7, usize::MAX)), (0, 1));
}

#[test]
fn batches_hold_every_example_once() {
    let data = Dataset::new((0..20).map(|x| x as f32).collect(), &[2], (0..10).collect()).unwrap();
    let shapes: Vec<_> = data.batches(4).unwrap().map(|b| (b.x.shape().to_vec(), b.y.shape().to_vec())).collect();
    assert_eq!(shapes, [(vec![4, 2], vec![4]), (vec![4, 2], vec![4]), (vec![2, 2], vec![2])]);
    let order = |seed, epoch| -> Vec<f64> {
        data.shuffled_batches(3, seed, epoch).unwrap().flat_map(|b| b.y.to_f64()).collect()
    };
    let mut sorted = order(1, 0);
    sorted.sort_by(f64::total_cmp);
    assert_eq!(sorted, (0..10).map(f64::from).collect::<Vec<_>>());
    assert_eq!(order(1, 0), order(1, 0));
    assert_ne!(order(1, 0), order(1, 1), "another epoch, another order");
    assert_ne!(order(1, 0), order(2, 0), "another seed, another order");
    for batch in data.shuffled_batches(3, 1, 5).unwrap() {
        for (row, label) in batch.x.to_f64().chunks(2).zip(batch.y.to_f64()) {
            assert_eq!(row, [2.0 * label, 2.0 * label + 1.0], "an example keeps its label");
        }
    }
    for error in [data.batches(0).err(), data.shuffled_batches(0, 1, 0).err()] {
        assert_eq!(error.unwrap().to_string(), "a batch of 0 examples; allowed: at least 1");
    }
    assert_eq!(data.batches(usize::MAX).unwrap().count(), 1);
}

/// A bilinear resize reproduces every image that is linear in its coordinates, away from the extended edge.
#[test]
fn resize_is_bilinear_with_half_pixel_centres() {
    let plane = |y: f32, x: f32| 3.0 * y - 2.0 * x + 1.0;
    let image: Vec<f32> = (0..8).flat_map(|y| (0..8).map(move |x| plane(y as f32, x as f32))).collect();
    let resized = Dataset::new(image, &[1, 8, 8], vec![0]).unwrap().resize(32, 32).unwrap();
    assert_eq!(resized.shape(), [1, 32, 32]);
    let values = resized.batches(1).unwrap().next().unwrap().x.to_f64();
    let centre = |i: usize| (i as f32 + 0.5) / 4.0 - 0.5;
    for y in 2..30 {
        for x in 2..30 {
            let expected = f64::from(plane(centre(y), centre(x)));
            assert!((values[y * 32 + x] - expected).abs() < 1e-4, "{y} {x}");
        }
    }
    assert_eq!(values[0], 1.0, "corners are continued");
    assert_eq!(values[32 * 32 - 1], f64::from(plane(7.0, 7.0)));

    let flat = Dataset::new(vec![1.0, 2.0], &[2], vec![0]).unwrap();
    assert_eq!(flat.clone().resize(4, 4).unwrap_err().kind(), ErrorKind::Shape);
    assert_eq!(flat.clone().reshape(&[3]).unwrap_err().kind(), ErrorKind::Shape);
    assert!(flat.clone().reshape(&[usize::MAX, 2]).is_err());
    let image = flat.reshape(&[1, 2]).unwrap();
    assert!(image.clone().resize(0, 4).is_err());
    assert!(image.resize(usize::MAX, usize::MAX).is_err());
}

#[test]
fn same_size_resize_changes_nothing() {
    let digits = digits().unwrap();
    assert_eq!(digits.clone().resize(8, 8).unwrap(), digits);
}

#[test]
fn a_file_of_digits_is_read_packed_or_plain() {
    let packed = concat!(env!("CARGO_MANIFEST_DIR"), "/data/digits.csv.gz");
    assert_eq!(read_digits(packed).unwrap(), digits().unwrap());
    let row = ["16"; 64].join(",") + ",7\n";
    let folder = Folder::new("digits");
    let one = read_digits(folder.file("one.csv", row)).unwrap();
    assert_eq!((one.len(), one.labels()), (1, &[7][..]));
    assert_eq!(one.batches(1).unwrap().next().unwrap().x.to_f64(), [1.0; 64]);
    let rows = [["16"; 64].join(","), ["0"; 64].join(",")].map(|pixels| pixels + ",7");
    for end in ["\n", "\r\n", "\r"] {
        let two = read_digits(folder.file("two.csv", rows.join(end) + end)).unwrap();
        assert_eq!((two.len(), two.labels()), (2, &[7, 7][..]));
        let error = read_digits(folder.file("two.csv", rows.join(end) + end + "1,x" + end)).unwrap_err();
        assert!(error.to_string().contains("two.csv:3: column 2: `x`"), "{error}");
    }
}

#[test]
fn what_is_no_file_of_digits_is_refused_with_its_line() {
    let row = |pixel: &str, digit: &str| format!("{}{pixel},{digit}\n", "0,".repeat(63));
    let good = row("5", "3");
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    packed.write_all(good.as_bytes()).unwrap();
    let mut cut = packed.finish().unwrap();
    cut.truncate(cut.len() - 9);
    let cases: Vec<(&str, Vec<u8>, &str)> = vec![
        ("empty", vec![], "no rows"),
        ("nan", (good.clone() + &row("NaN", "3")).into(), ":2: column 64: `NaN` is not a number from 0 to 16"),
        ("inf", row("inf", "3").into(), ":1: column 64: `inf`"),
        ("word", row("five", "3").into(), ":1: column 64: `five`"),
        ("high", row("17", "3").into(), ":1: column 64: `17`"),
        ("negative", row("-1", "3").into(), ":1: column 64: `-1`"),
        ("short", (good.clone() + "1,2,3\n").into(), ":2: 3 numbers; a row holds 65"),
        ("blank", (good.clone() + "\n" + &good).into(), ":2: column 1: ``"),
        ("long", row("1,2", "3").into(), ":1: 66 numbers"),
        ("label", row("1", "10").into(), ":1: the digit is 10; allowed: 0 to 9"),
        ("fraction", row("1", "2.5").into(), ":1: the digit is 2.5"),
        ("cut", cut, ""),
        ("bytes", vec![0xff, 0xfe, 0x00], "UTF-8"),
    ];
    let folder = Folder::new("no-digits");
    for (name, bytes, part) in cases {
        let file = folder.file(name, bytes);
        let error = read_digits(&file).expect_err(name);
        assert_eq!(error.kind(), ErrorKind::Data, "{error}");
        let message = error.to_string();
        assert!(message.contains(&file.display().to_string()) && message.contains(part), "{name}: {message}");
    }
    assert_eq!(read_digits("no/such/file").unwrap_err().kind(), ErrorKind::Io);
    assert!(Dataset::new(vec![1.0; 6], &[2], vec![0, 1]).is_err());
    let nan = Dataset::new(vec![1.0, 2.0, 3.0, f32::NAN], &[2], vec![0, 1]).unwrap_err();
    assert_eq!(nan.to_string(), "value 1 of example 1 is NaN; allowed: finite numbers");
}

/// The length is checked first, then reading is limited: neither a file that is too long nor an endless one is read
/// whole.
#[test]
#[cfg(unix)]
fn a_file_that_is_too_long_is_not_read() {
    let folder = Folder::new("long");
    let file = folder.file("long.csv", "");
    // Longer than all memory, and empty on the disk.
    fs::File::options().write(true).open(&file).unwrap().set_len(1 << 42).unwrap();
    for path in [&*file, "/dev/zero".as_ref()] {
        let error = read_digits(path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        assert!(error.to_string().contains("longer than 33554432 bytes, the most that is read"), "{error}");
    }
}

/// A gzip file of zeros that decompresses to far more than any file of digits.
#[test]
fn a_file_that_unpacks_without_end_is_refused() {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    for _ in 0..40 {
        packed.write_all(&[b'0'; 1 << 20]).unwrap();
    }
    let folder = Folder::new("bomb");
    let message = read_digits(folder.file("bomb", packed.finish().unwrap())).unwrap_err().to_string();
    assert!(message.contains("longer than 32 MiB"), "{message}");
}
