//! Table formats of other programs and countries.

use std::{
    fs,
    time::{Duration, Instant},
};

use precast_train::data::{Csv, Dataset, Empty, Targets};

use crate::readers::{Folder, inputs, targets};

fn parse(csv: Csv, text: &str) -> Dataset {
    csv.parse(text.as_bytes()).unwrap()
}

fn error(csv: Csv, text: &str) -> String {
    csv.parse(text.as_bytes()).unwrap_err().to_string()
}

fn file() -> Csv {
    Csv::new("table.csv")
}

#[test]
fn decimal_commas_and_thousands_are_read() {
    let german = file().delimiter(';').decimal(',').thousands('.').target("preis");
    let data = parse(german.clone(), "flaeche;preis\n20,5;1.060,25\n-21;63,5\n1.000;2e3\n");
    assert_eq!((inputs(&data), targets(&data)), (vec![20.5, -21.0, 1000.0], vec![1060.25, 63.5, 2000.0]));
    assert_eq!(data, parse(german.delimiter('\t'), "flaeche\tpreis\n20,5\t1.060,25\n-21\t63,5\n1.000\t2e3\n"));
    let english = file().thousands(',').target("y");
    assert_eq!(targets(&parse(english, "a,y\n1,\"1,234.5\"\n2,\"2,000.0\"\n")), [1234.5, 2000.0]);
    let french = file().delimiter(';').decimal(',').thousands(' ');
    assert_eq!(inputs(&parse(french, "a\n1 234,5\n1\u{202f}234\u{a0}567\n")), [1234.5, 1_234_567.0]);
    let swiss = file().thousands('\'');
    assert_eq!(inputs(&parse(swiss, "a\n1'234.5\n1\u{2019}234\n")), [1234.5, 1234.0]);
}

/// Integers are classes, except those with thousands separators.
#[test]
fn targets_with_thousands_are_numbers() {
    let csv = || file().thousands('.').decimal(',').target(1).header(false).delimiter(';');
    assert_eq!(targets(&parse(csv(), "1.060;1\n63;1\n")), [1060.0, 63.0]);
    assert_eq!(parse(csv(), "3;1\n2;1\n").labels(), [1, 0]);
    assert!(matches!(parse(csv(), "60,24;1\n63,54;1\n").targets(), Targets::Numbers { .. }));
}

/// Prices do not silently become classes; explicit classes do.
#[test]
fn targets_that_look_like_numbers_are_refused() {
    let told = |cells: &[&str]| error(file().delimiter(';').target("y"), &format!("x;y\n1;{}\n", cells.join("\n1;")));
    for (cells, words) in [
        (&["60,24", "63,54"][..], "a decimal comma (`decimal: \",\"`)"),
        (&["1,234.5", "2,000.0"], "commas between thousands (`thousands: \",\"`)"),
        (&["900", "1,234", "1,5"], "a decimal comma (`decimal: \",\"`)"),
        (&["1,234", "1,234.5"], "commas between thousands (`thousands: \",\"`)"),
        (&["1.234,5"], "a decimal comma and points between thousands (`decimal: \",\"`, `thousands: \".\"`)"),
        (&["1 234", "56"], "spaces between thousands (`thousands: \" \"`)"),
        (&["60,24", "63,54", "n/a"], "a decimal comma (`decimal: \",\"`)"),
        (&["1.5", "2,5"], "a decimal comma (`decimal: \",\"`)"),
        (&["10%", "12.5 %"], "`10%` looks like a number with a unit; numbers are written without"),
        (&["\u{20ac} 1,50", "\u{20ac}2,50"], "`\u{20ac} 1,50` looks like a number with a unit"),
        (
            &["1.5", "(2.25)"],
            "`(2.25)` looks like a number in parentheses; a negative number has a minus sign in front",
        ),
        (&["1.5-", "2"], "`1.5-` looks like a number with a minus sign behind it; the sign is in front"),
        (&["\u{661}\u{66b}\u{665}"], "looks like a number in digits of another script; the digits are 0 to 9"),
    ] {
        let told = told(cells);
        assert!(
            told.contains("looks like a number ") && told.contains(words) && told.contains("as: classes"),
            "{told}"
        );
    }
    let classes = file().delimiter(';').target("y");
    let text = "x;y\n1;60,24\n1;63,54\n";
    assert_eq!(parse(classes.clone().classes(), text).labels(), [0, 1]);
    assert_eq!(parse(classes.clone().class_names(["63,54", "60,24"]), text).labels(), [1, 0]);
    assert_eq!(parse(classes.clone(), "x;y\n1;a,b\n1;1,c\n1;3,4\n").classes(), 3);
    // Whole numbers are classes, however they are written.
    assert_eq!(parse(classes.clone(), "x;y\n1;(1)\n1;(2)\n1;2-\n1;\u{661}\n").classes(), 4);
    assert_eq!(parse(classes.clone(), "x;y\n1;5% fat\n1;100%\n1;none\n").classes(), 3);
    assert_eq!(parse(classes.clone(), "x;y\n1;\u{2212}1\n1;1\n").labels().len(), 2);
    let numbers = parse(classes, "x;y\n1;\u{2212}1.5\n1;2\n");
    assert_eq!(*numbers.targets(), Targets::Numbers { shape: vec![1], values: vec![-1.5, 2.0] });
}

/// A failed formula of a spreadsheet is neither a class nor a word.
#[test]
fn errors_of_spreadsheets_are_no_words() {
    for cell in ["#N/A", "#NV", "#DIV/0!", "#VALUE!", "#NAME?", "#WERT!", "Err:502"] {
        let target = error(file().target("y"), &format!("x,y\n1,7\n2,{cell}\n"));
        let words = format!("table.csv:3: column 2 (`y`): `{cell}` is an error of a spreadsheet: remove these rows");
        assert!(target.starts_with(&words) && target.contains("as: classes"), "{target}");
        assert_eq!(parse(file().target("y").classes(), &format!("x,y\n1,7\n2,{cell}\n")).classes(), 2);
        let input = error(file(), &format!("x,y\n{cell},7\n"));
        assert!(input.ends_with(&format!("if it marks an empty cell: `missing: [\"{cell}\"]` with `empty: median`")));
    }
    assert_eq!(parse(file().target("y"), "x,y\n1,#1\n2,#2\n3,Err: no!\n4,# a!\n").classes(), 4);
    let input = error(file(), "x,y\n(5),7\n");
    assert!(
        input.ends_with("it looks like one in parentheses, and a negative number has a minus sign in front"),
        "{input}"
    );
}

#[test]
fn an_index_is_named_to_be_left_out_or_read() {
    let text = ",a,y\n0,1.5,x\n1,2.5,z\n";
    for csv in [file().ignore(""), file().ignore([""]), file().ignore(1), file().columns("a"), file().columns(2)] {
        let csv = csv.target("y");
        let data = parse(csv.clone(), text);
        assert_eq!(inputs(&data), [1.5, 2.5]);
        assert_eq!(csv.found(&data).columns, "a".into(), "a prediction reads no index either");
    }
    assert_eq!(inputs(&parse(file().target("y").columns(["", "a"]), text)), [0.0, 1.5, 1.0, 2.5]);
    assert_eq!(inputs(&parse(file().target("y").ignore("Unnamed: 0"), "Unnamed: 0,a,y\n0,1,x\n")), [1.0]);
}

#[test]
fn a_header_of_numbers_is_one_where_it_is_named() {
    let told = error(file(), "0,1\n5,6\n");
    assert!(told.starts_with("table.csv:1: the header has numbers and no names") && told.contains("`header: false`"));
    // As written by pandas for an array.
    let text = "0,1,2\n5,6,0\n7,8,1\n";
    for csv in [file().target("2"), file().target("2").columns([1, 2]), file().target(3).columns(["0", "1"])] {
        let data = parse(csv.clone(), text);
        assert_eq!((inputs(&data), data.labels()), (vec![5.0, 6.0, 7.0, 8.0], &[0, 1][..]));
        assert_eq!(parse(csv.found(&data), text), data);
    }
    assert_eq!(parse(file().header(false).target(3), text).len(), 3);
    // One name is enough.
    assert_eq!(inputs(&parse(file(), "x,2019\n1,2\n")), [1.0, 2.0]);
    assert_eq!(inputs(&parse(file().target("city"), "2019,2020,city\n1,2,a\n")), [1.0, 2.0]);
    assert_eq!(inputs(&parse(file(), "inf,nan\n1,2\n")), [1.0, 2.0]);
}

fn row(columns: usize, cell: impl Fn(usize) -> String) -> String {
    (0..columns).map(cell).collect::<Vec<_>>().join(",") + "\n"
}

/// Ten times as many columns take ten times as long: a minute would be a hundred times the time.
#[test]
fn wide_tables_and_long_ones_take_linear_time() {
    let columns = 300_000;
    let numbers = |offset: usize| row(columns, |i| format!("{}.1", i + offset));
    let text = row(columns, |i| format!("c{i}")) + &numbers(0) + &numbers(1);
    let target = format!("c{}", columns - 1);
    let begun = Instant::now();
    let csv = file().target(&*target).ignore(["c1", "c2"]);
    let data = parse(csv.clone(), &text);
    assert_eq!((data.len(), data.shape()), (2, &[columns - 3][..]));
    assert_eq!(parse(csv.found(&data), &text), data);
    let by = precast_train::data::Standardization::of(&data).unwrap();
    assert_eq!(inputs(&data.standardized(&by).unwrap())[..2], [-1.0, -1.0]);
    assert!(data.notes().is_empty());
    for (csv, text, words) in [
        (file().target("none"), text.clone(), "there is no column `none`"),
        (file(), text.replacen("c299999", "c0", 1), "columns 1 and 300000 have the same name, `c0`"),
        (file(), text.replacen("c299999", "", 1), "column 300000 (``) has no name"),
        (file(), text.clone() + "1,2\n", "table.csv:4: 2 fields; the header has 300000"),
    ] {
        let told = error(csv, &text);
        assert!(told.contains(words), "{told}");
    }
    let wide = begun.elapsed();

    let begun = Instant::now();
    let rows: String = (0..columns).map(|i| format!("{i}.1,{},{}\n", i % 7, i % 3)).collect();
    assert_eq!(parse(file().target("y"), &format!("a,b,y\n{rows}")).len(), columns);
    let long = begun.elapsed();
    assert!(wide < Duration::from_secs(40) && long < Duration::from_secs(20), "{wide:?} {long:?}");
}

/// Bytes are those of `encode` of Python. A file that is not held in memory has the same numbers and notes.
#[test]
fn texts_in_other_encodings_are_read() {
    let folder = Folder::new("encodings");
    let read = |bytes: &[u8], csv: &dyn Fn(Csv) -> Csv| {
        fs::write(folder.at("t.csv"), bytes).unwrap();
        let csv = csv(Csv::new(folder.at("t.csv")).target("y").classes());
        let data = csv.read().unwrap();
        let stored = csv.read_within(1).unwrap();
        let notes = data.notes().to_vec();
        assert_eq!((stored.class_names(), stored.input_names()), (data.class_names(), data.input_names()));
        assert_eq!(stored.notes(), notes);
        assert_eq!(stored.try_batches(9).unwrap().next().unwrap().unwrap().x.to_f64(), [1.0, 2.0]);
        (
            data.input_names().to_vec(),
            data.class_names().to_vec(),
            notes.into_iter().filter(|note| note.contains("UTF-8")).count(),
        )
    };
    let names = |input: &str, classes: [&str; 2], notes: usize| {
        (vec![input.to_string()], classes.map(String::from).to_vec(), notes)
    };
    let utf16 = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
    let plain = |csv: Csv| csv;
    let german = names("L\u{e4}nge", ["gro\u{df}", "klein"], 0);
    let text = "L\u{e4}nge,y\n1,klein\n2,gro\u{df}\n";
    assert_eq!(read(text.as_bytes(), &plain), german);
    assert_eq!(read(format!("\u{feff}{text}").as_bytes(), &plain), german);
    assert_eq!(read(&utf16(&format!("\u{feff}{text}")), &plain), german);
    let guessed = read(b"L\xe4nge,y\n1,klein\n2,gro\xdf\n", &plain);
    assert_eq!(guessed, names("L\u{e4}nge", ["gro\u{df}", "klein"], 1));
    assert_eq!(read(b"L\xe4nge,y\n1,klein\n2,gro\xdf\n", &|csv| csv.encoding("latin1".to_string())), german);
    let russian =
        read(b"\xf6\xe5\xed\xe0,y\n1,\xe4\xe0\n2,\xed\xe5\xf2\n", &|csv| csv.encoding("windows-1251".to_string()));
    assert_eq!(russian, names("\u{446}\u{435}\u{43d}\u{430}", ["\u{434}\u{430}", "\u{43d}\u{435}\u{442}"], 0));
    let japanese = read(b"\x89\xbf\x8ai,y\n1,\x82\xcd\x82\xa2\n2,\x94\xdb\n", &|csv| csv.encoding("cp932".to_string()));
    assert_eq!(japanese, names("\u{4fa1}\u{683c}", ["\u{306f}\u{3044}", "\u{5426}"], 0));
}

/// All that a table needs is in one message, and reads it.
#[test]
fn keys_for_a_whole_table_are_proposed() {
    let rows = |row: &dyn Fn(usize) -> String| (0..30).map(row).collect::<String>();
    let words = ["Diesel", "Benzin"];
    let messy = rows(&|i| {
        let size = if i == 7 { "n/a".to_string() } else { format!("1,{i}") };
        format!("{};1.{:03},5;{size};{:02}.01.2020;{}\n", words[i % 2], 3 * i, i + 1, i % 3)
    });
    let messy = format!("fuel;price;size;day;class\n{messy}");
    let met = error(file().target("class"), &messy);
    let keys = "delimiter: \";\", decimal: \",\", thousands: \".\", one_hot: \"fuel\", ignore: \"day\", missing: [\"n/a\"], \
                empty: median";
    assert!(met.ends_with(&format!("; keys that read the whole table: `{keys}`")), "{met}");
    let csv = file().target("class").delimiter(';').decimal(',').thousands('.').one_hot("fuel").ignore("day");
    let data = parse(csv.missing(["n/a".to_string()]).empty(Empty::Median), &messy);
    assert_eq!((data.len(), data.classes()), (30, 3));
    // What the message has anyway is not repeated, and one wrong cell is no reason to leave out a column.
    let comma = error(file().delimiter(';').target("y"), &format!("x;y\n{}", rows(&|i| format!("1,{i};{}\n", i % 2))));
    assert!(comma.ends_with("a decimal comma (`decimal: \",\"`)"), "{comma}");
    let one = error(
        file().target("y"),
        &format!("x,y\n{}", rows(&|i| if i == 3 { "1O,1\n".into() } else { format!("{i},0\n") })),
    );
    assert!(!one.contains("keys"), "{one}");
    let keys = |text: &str| {
        let met = error(file().target("y"), text);
        met.split_once("; keys that read the whole table: ")
            .map_or(String::new(), |(_, keys)| keys.trim_matches('`').into())
    };
    let table =
        |cell: &dyn Fn(usize) -> String| format!("a,w,y\n{}", rows(&|i| format!("{i}.5,{},{}\n", cell(i), i % 2)));
    let every = |n: usize, mark: &'static str| {
        move |i: usize| if i.is_multiple_of(n) { mark.to_string() } else { format!("{i}") }
    };
    // Marks, whatever their share, and words that are met again and again among numbers.
    for mark in ["NA", "--", "k.A."] {
        assert_eq!(keys(&table(&every(2, mark))), "", "{mark}: its own hint has the keys");
        let words = |i: usize| format!("{},{}", every(2, mark)(i), ["p", "q"][i / 3 % 2]);
        let text = format!("a,w,c,y\n{}", rows(&|i| format!("{i}.5,{},{}\n", words(i), i % 2)));
        assert_eq!(keys(&text), format!("one_hot: \"c\", missing: [\"{mark}\"], empty: median"));
    }
    assert_eq!(keys(&table(&every(5, "lost"))), "missing: [\"lost\"], empty: median");
    assert_eq!(keys(&table(&|_| "NA".into())), "ignore: \"w\"");
    // Numbers that no format reads are not left out, nor made words; nor is the label that is not named.
    for cell in ["$1.50", "5 kg", "(5)", "5-", "\u{663}\u{664}", "1,5"] {
        let text = table(&|i| format!("\"{}\"", cell.replace('5', &(i % 3 + 5).to_string())));
        let met = keys(&text);
        assert!(!met.contains("ignore") && !met.contains("one_hot"), "{cell}: {met}");
    }
    let label = error(file(), &table(&|i| i.to_string()).replace(",0\n", ",p\n").replace(",1\n", ",q\n"));
    assert!(!label.contains("keys"), "{label}");
    let unit = error(file().target("y"), &table(&|i| format!("{i} kg")));
    assert!(unit.ends_with("`0 kg` is not a number; if it has a unit, numbers are written without"), "{unit}");
    let typo = error(file().target("y"), &table(&|i| if i == 9 { "l2".into() } else { i.to_string() }));
    let words = "`l2` is not a number; nearly all other cells are numbers: correct it, or `missing: [\"l2\"]` with `empty: median` \
                 takes it for an empty one";
    assert!(typo.ends_with(words), "{typo}");
    let unknown = error(file().target("w"), &table(&|i| if i == 9 { "NA".into() } else { format!("{i}.5") }));
    assert!(unknown.contains("`NA` marks a target that is not known: remove these rows"), "{unknown}");
    // Rows without a value, as spreadsheets write them.
    assert_eq!(parse(file().target("y"), &(table(&|i| i.to_string()) + ",,\n,,\n")).len(), 30);
    let mixed = file().target("y").parse(b"x,y\n1,\xc3\xa4\n2,\xe4\n").unwrap_err().to_string();
    assert!(
        mixed.starts_with("table.csv:3: ") && mixed.ends_with("a part of the file has another encoding; correct it"),
        "{mixed}"
    );
    let named = file().target("y").encoding("latin1".to_string()).parse(b"x,y\n1,\xc3\xa4\n").unwrap();
    assert!(named.notes()[0].ends_with("UTF-8 by its bytes, and not read so, for `encoding` names another"));
    // Two formats fit.
    let both =
        error(file().delimiter(';').target("y"), &format!("x;y\n{}", rows(&|i| format!("1,{:03};{}\n", i, i % 2))));
    assert!(!both.contains("keys"), "{both}");
}
