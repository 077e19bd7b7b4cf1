//! Numbers that f32 cannot represent: kept until they are standardized, and reported where they become equal.

use precast_train::data::{Csv, Dataset, Npy, Split, Standardization, Targets};

use crate::readers::{Folder, inputs, npy::npy, targets};

/// Consecutive seconds since 1970. f32 represents every 128th.
const SECONDS: i64 = 1_700_000_000;

fn seconds(csv: Csv, rows: i64) -> Dataset {
    let rows: String = (0..rows).map(|i| format!("{},{}\n", SECONDS + i, i / 200)).collect();
    csv.parse(format!("time,y\n{rows}").as_bytes()).unwrap()
}

/// Returns the deviation of 0, 1, .. n - 1, the root of (n² - 1) / 12.
fn deviation(n: f64) -> f64 {
    ((n * n - 1.0) / 12.0).sqrt()
}

fn f64s(shape: &str, numbers: &[f64]) -> Vec<u8> {
    npy("<f8", "False", shape, &numbers.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>())
}

#[test]
fn mean_and_deviation_are_those_of_the_file() {
    let data = seconds(Csv::new("time.csv").target("y"), 400);
    let by = Standardization::of(&data).unwrap();
    assert!((by.mean[0] - (SECONDS as f64 + 199.5)).abs() < 1e-6, "{by:?}");
    assert!((by.deviation[0] - deviation(400.0)).abs() < 1e-6, "{by:?}");
    for (i, x) in inputs(&data.standardized(&by).unwrap()).into_iter().enumerate() {
        assert!((x - (i as f64 - 199.5) / deviation(400.0)).abs() < 1e-6, "{i} {x}");
    }
    // The same for parts of it, in another order, and for other shapes.
    let Split { train, test } = data.split(300, 5).unwrap();
    let standardized = |data: &Dataset| inputs(&data.clone().reshape(&[1, 1, 1]).unwrap().standardized(&by).unwrap());
    let mut all = [standardized(&train), standardized(&test)].concat();
    all.sort_by(f64::total_cmp);
    assert!(all.windows(2).all(|pair| (pair[1] - pair[0] - 1.0 / deviation(400.0)).abs() < 1e-6), "{all:?}");
}

#[test]
fn arrays_of_f64_and_of_large_integers_are_so_too() {
    let ten = |i: i32| 1.7e9 + 10.0 * f64::from(i);
    // The deviation of four numbers 10 apart.
    let right = 125f64.sqrt();
    let x = Npy::new("x.npy", "").parse(&f64s("(4, 1)", &[0, 1, 2, 3].map(ten))).unwrap();
    assert!((Standardization::of(&x).unwrap().deviation[0] - right).abs() < 1e-9);
    // By columns, with the first axis fastest: f32 represents the second column.
    let both = [ten(0), ten(1), ten(2), ten(3), 1.0, 2.0, 3.0, 4.0].map(f64::to_le_bytes).concat();
    let fortran = npy("<f8", "True", "(4, 2)", &both);
    let by = Standardization::of(&Npy::new("x.npy", "").parse(&fortran).unwrap()).unwrap();
    assert!((by.deviation[0] - right).abs() < 1e-9 && (by.deviation[1] - 1.25f64.sqrt()).abs() < 1e-12, "{by:?}");
    for dtype in ["<u4", "<u8", ">u8"] {
        let bytes = |x: u64| match dtype {
            "<u4" => x.to_le_bytes()[..4].to_vec(),
            "<u8" => x.to_le_bytes().to_vec(),
            _ => x.to_be_bytes().to_vec(),
        };
        let data = [0, 10, 20, 30].map(|i| bytes(1_700_000_000 + i)).concat();
        let x = Npy::new("x.npy", "").parse(&npy(dtype, "False", "(4, 1)", &data)).unwrap();
        assert!((Standardization::of(&x).unwrap().deviation[0] - right).abs() < 1e-9, "{dtype}");
    }
    // A channel of images has one mean.
    let x = Npy::new("x.npy", "").parse(&f64s("(2, 1, 1, 2)", &[0, 1, 2, 3].map(ten))).unwrap();
    assert!((Standardization::of(&x).unwrap().deviation[0] - right).abs() < 1e-9);
}

#[test]
fn targets_are_so_too() {
    let folder = Folder::new("exact-targets");
    let x = folder.file("x.npy", npy("<f4", "False", "(2, 1)", &[0; 8]));
    let y = folder.file("y.npy", f64s("(2,)", &[1.7e9, 1.7e9 + 1.0]));
    let npy = Npy::new(x, y).read().unwrap();
    let table = Csv::new("t.csv").target("y").numbers().parse(b"x,y\n0,1700000000\n0,1700000001\n").unwrap();
    for data in [npy, table] {
        let by = Standardization::of_targets(&data).unwrap();
        assert_eq!((by.mean[0], by.deviation[0]), (1.7e9 + 0.5, 0.5));
        let standardized = data.targets_standardized(&by).unwrap();
        assert_eq!(targets(&standardized), [-1.0, 1.0]);
        assert!(
            data.notes()[0].contains("1700000000 and 1700000001 become one number in float32"),
            "{:?}",
            data.notes()
        );
        assert!(data.notes()[0].contains("`standardize_targets: true`") && standardized.notes().is_empty());
    }
}

/// Batches are f32, as before.
#[test]
fn inputs_are_f32_all_the_same() {
    let data = Csv::new("t.csv").target("y").parse(b"a,b,y\n0.1,1,5.5\n16777217,2,0.1\n").unwrap();
    assert_eq!(inputs(&data), [f64::from(0.1f32), 1.0, 16777216.0, 2.0]);
    assert_eq!(data.targets(), &Targets::Numbers { shape: vec![1], values: vec![5.5, 0.1] });
    assert!(data.notes().is_empty(), "all are different");
}

#[test]
fn numbers_that_merge_in_f32_are_reported_with_file_and_column() {
    let note = |text: &str| Csv::new("t.csv").parse(text.as_bytes()).unwrap().notes();
    let notes = note("a,time\n1,1700000000\n2,1700000001\n3,1700000064\n");
    assert_eq!(
        notes,
        ["t.csv: column 2 (`time`): 1700000000 and 1700000001 become one number in float32; with `standardize: true` \
          they stay apart"]
    );
    // The range is too large for standardization to help.
    let notes = note("a,b\n1,0.25\n1.0000000001,0.5\n-1,0.1\n");
    assert_eq!(notes.len(), 1);
    assert!(notes[0].contains("(`a`): 1 and 1.0000000001 become one") && notes[0].contains("either"), "{notes:?}");
    let large = note("a\n0\n1073741824\n1073741825\n");
    assert!(large[0].contains("1073741824 and 1073741825") && large[0].contains("either"), "{large:?}");
    assert!(note("a\n1.7\n1.7000000000000002\n-1\n").is_empty(), "f64 has rounded a sum");
    assert!(note("a\n1e-50\n2e-50\n")[0].contains("1e-50 and 2e-50"));
    assert!(note("a,b\n16777216,1e9\n16777217,1000000001\n")[0].contains("(and so in another column)"));
    assert!(note("a\n0.1\n0.1\n0.10\n16777216\n0\n-0.0\n").is_empty());

    let x = Npy::new("x.npy", "").parse(&f64s("(2, 2)", &[0.5, 1.7e9, 0.5, 1.7e9 + 1.0])).unwrap();
    assert!(x.notes()[0].starts_with("x.npy: column 2: 1700000000 and 1700000001"), "{:?}", x.notes());
    assert!(x.standardized(&Standardization::of(&x).unwrap()).unwrap().notes().is_empty());
}

/// f64 cannot represent them either.
#[test]
fn integers_beyond_2_to_53_that_become_one_are_told() {
    let note = |text: &str| Csv::new("t.csv").parse(text.as_bytes()).unwrap().notes();
    let notes = note("id\n9007199254740993\n9007199254740992\n");
    assert_eq!(
        notes,
        ["t.csv: column 1 (`id`): 9007199254740992 and 9007199254740993 become one number; f64 does not hold all \
          integers beyond 2^53"]
    );
    assert!(note("id\n-9223372036854775807\n-9223372036854775808\n")[0].contains("-9223372036854775808 and -922"));
    assert!(note("id\n9007199254740992\n9007199254740992\n").is_empty());
    let large = [1u64 << 60, (1 << 60) + 1].map(u64::to_le_bytes).concat();
    let x = Npy::new("x.npy", "").parse(&npy("<u8", "False", "(2, 1)", &large)).unwrap();
    assert!(x.notes()[0].contains("1152921504606846976 and 1152921504606846977"), "{:?}", x.notes());
    // Inputs of i64 are indices, and unchanged.
    let large = [(1i64 << 60) + 1, 1 << 60].map(i64::to_le_bytes).concat();
    let x = Npy::new("x.npy", "").parse(&npy("<i8", "False", "(2, 1)", &large)).unwrap();
    let kept = x.input_batches(2).unwrap().next().unwrap().to_vec::<i64>().unwrap();
    assert_eq!((kept, x.notes().len()), (vec![(1 << 60) + 1, 1 << 60], 0));
}

#[test]
fn a_column_of_names_is_told() {
    let rows = |n: usize| (0..n).map(|i| format!("{i},name {i}\n")).collect::<String>();
    let note = |n| Csv::new("t.csv").target("y").parse(format!("x,y\n{}", rows(n)).as_bytes()).unwrap().notes();
    assert_eq!(
        note(20),
        ["t.csv: column 2 (`y`): each of the 20 rows is a class of its own; none tells of another row"]
    );
    assert!(note(3).is_empty());
}

/// Their squares are below the range of f64.
#[test]
fn tiny_numbers_are_standardized() {
    let times = |by: f64| Standardization { mean: vec![49.5 * by], deviation: vec![deviation(100.0) * by] };
    for by in ["e-200", "e-300", "e-40"] {
        let rows: String = (0..100).map(|i| format!("{i}{by},{i}{by}\n")).collect();
        let data = Csv::new("x.csv").target("y").parse(format!("x,y\n{rows}").as_bytes()).unwrap();
        let right = times(format!("1{by}").parse().unwrap());
        let (of_x, of_y) = (Standardization::of(&data).unwrap(), Standardization::of_targets(&data).unwrap());
        assert_eq!(of_x, of_y);
        assert!((of_x.mean[0] / right.mean[0] - 1.0).abs() < 1e-12, "{of_x:?}");
        assert!((of_x.deviation[0] / right.deviation[0] - 1.0).abs() < 1e-12, "{of_x:?}");
        let x = inputs(&data.standardized(&of_x).unwrap());
        assert_eq!(targets(&data.targets_standardized(&of_y).unwrap()), x);
        for (i, x) in x.into_iter().enumerate() {
            assert!((x - (i as f64 - 49.5) / deviation(100.0)).abs() < 1e-6, "{by} {i} {x}");
        }
    }
}
