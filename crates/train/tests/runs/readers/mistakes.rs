//! Mistakes in data files and in the options of their readers, with their messages. The snapshot is the table: one
//! mistake, one message.

use std::{fmt::Write as _, io::Write as _};

use precast::{
    Child, ErrorKind, Result,
    layers::{Dense, Rng},
};
use precast_train::data::{Addition, Csv, Images, Npy, Text};
use precast_train::{
    FitOptions,
    data::{Dataset, Inputs, Split, Targets},
    fit,
};

use crate::readers::{Folder, images::png, npy::npy};

const FLOWERS: &str = "petal,colour,species\n1.5,0,rose\n0.5,1,iris\n";

fn parse(csv: Csv, text: impl AsRef<[u8]>) -> Result<Dataset> {
    csv.parse(text.as_ref())
}

fn flowers() -> Csv {
    Csv::new("flowers.csv").target("species")
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    packed.write_all(bytes).unwrap();
    packed.finish().unwrap()
}

/// The beginning of a zip archive, with the name of its first file.
fn archive(first: &str) -> Vec<u8> {
    [b"PK\x03\x04", &[0; 22][..], &[first.len() as u8, 0, 0, 0], first.as_bytes()].concat()
}

/// The first block of a tar archive.
fn tar() -> Vec<u8> {
    let mut block = b"a.csv".to_vec();
    block.resize(257, 0);
    [&block[..], b"ustar\x0000", &[0; 247]].concat()
}

type Mistake = (&'static str, fn(&Folder) -> Result<Dataset>);

const CSV: &[Mistake] = &[
    ("a file that is not there", |folder| Csv::new(folder.0.join("none.csv")).read()),
    ("an empty file", |_| parse(flowers(), "")),
    ("a file of empty lines", |_| parse(flowers(), "\n\r\n\n")),
    ("nothing but a header", |_| parse(flowers(), "petal,colour,species\n")),
    ("a row that is too short", |_| parse(flowers(), format!("{FLOWERS}2,3\n"))),
    ("a row that is too long, after empty lines", |_| parse(flowers(), format!("{FLOWERS}\n\r\n2,3,rose,4\n"))),
    ("a row of another length without a header", |_| parse(Csv::new("a.csv").header(false), "1,2\n1\n")),
    ("a word in a column of numbers", |_| parse(flowers(), "petal,species\n1.5,rose\n1.5cm,iris\n")),
    ("NaN", |_| parse(flowers(), "petal,species\nNaN,rose\n")),
    ("an infinite number", |_| parse(flowers(), "petal,species\n1,rose\n-inf,rose\n")),
    ("a number beyond f32", |_| parse(flowers(), "petal,species\n1e39,rose\n")),
    ("an empty cell", |_| parse(flowers(), "petal,species\n1,rose\n ,rose\n")),
    ("an empty class", |_| parse(flowers(), "petal,species\n1,\n")),
    ("a cell over two lines", |_| parse(flowers(), "petal,species\n\"1\n2\",rose\n")),
    ("a quote that is not closed", |_| parse(flowers(), "petal,species\n1,\"rose\n2,iris\n")),
    ("a target that is not a column", |_| parse(flowers().target("specie"), FLOWERS)),
    ("a column of no name nearby", |_| parse(flowers().columns(["width"]), FLOWERS)),
    ("a column beyond the last", |_| parse(flowers().ignore(4), FLOWERS)),
    ("column 0", |_| parse(flowers().ignore(0), FLOWERS)),
    ("a name in a file without a header", |_| parse(flowers().header(false), FLOWERS)),
    ("a column with two uses", |_| parse(flowers().columns(["petal", "species"]), FLOWERS)),
    ("a column that is named twice", |_| parse(flowers().columns(["petal", "petal"]), FLOWERS)),
    ("no column left", |_| parse(flowers().ignore(["petal", "colour"]), FLOWERS)),
    ("two columns of one name", |_| parse(flowers(), "petal,species,petal\n1,rose,2\n")),
    ("a file without a header, read with one", |_| parse(flowers(), "1.5,0,3\n0.5,1,4\n")),
    ("a class that is none of those given", |_| parse(flowers().class_names(["iris", "roses"]), FLOWERS)),
    ("a class name given twice", |_| parse(flowers().class_names(["iris", "rose", "iris"]), FLOWERS)),
    ("numbers and words in the target", |_| parse(flowers(), "petal,species\n1,2.5\n1,3\n1,rose\n")),
    ("words as numbers", |_| parse(flowers().numbers(), FLOWERS)),
    ("classes in two columns", |_| parse(flowers().target(["colour", "species"]).classes(), FLOWERS)),
    ("a delimiter beyond ASCII", |_| parse(flowers().delimiter('→'), FLOWERS)),
    ("a quote as delimiter", |_| parse(flowers().delimiter('"'), FLOWERS)),
    ("the line of Excel that names the delimiter", |_| parse(flowers(), "sep=;\npetal;species\n1;rose\n")),
    ("the line of Excel, with the delimiter", |_| parse(flowers().delimiter(';'), "sep=;\npetal;species\n1;rose\n")),
    ("a comment in front", |_| parse(flowers(), "# flowers\npetal,species\n1,rose\n")),
    ("a comment among the rows", |_| parse(flowers(), format!("{FLOWERS}# of 2020\n"))),
    ("a comment among the rows, as long as they", |_| parse(flowers(), format!("{FLOWERS}# of May, 1, 2\n"))),
    ("a comment as long as the rows", |_| parse(flowers(), "# flowers, of 2020\npetal,species\n1,rose\n")),
    ("a zero-width space in a number", |_| parse(flowers(), "petal,species\n1\u{200b}5,rose\n")),
    ("a mark of the byte order in a number", |_| parse(flowers(), "petal,species\n\u{feff}15,rose\n")),
    ("nan in a target", |_| parse(flowers().numbers(), "petal,species\n1,nan\n")),
    ("a workbook", |_| Csv::new("a.csv").parse(&archive("[Content_Types].xml"))),
    ("an archive with a table", |_| Csv::new("a.csv").parse(&archive("a.csv"))),
    ("arrays of NumPy as a table", |_| Csv::new("a.csv").parse(&archive("x.npy"))),
    ("Parquet", |_| Csv::new("a.csv").parse(b"PAR1\x15\x04\x15\x10")),
    ("a table packed by bzip2", |_| Csv::new("a.csv").parse(b"BZh91AY&SY\xab")),
    ("a table packed by xz", |_| Csv::new("a.csv").parse(b"\xfd7zXZ\0\0\x04")),
    ("a table packed by zstd", |_| Csv::new("a.csv").parse(b"\x28\xb5\x2f\xfd\x24")),
    ("a packed archive", |_| Csv::new("a.csv").parse(&packed(&tar()))),
    ("a database", |_| Csv::new("a.csv").parse(b"SQLite format 3\0\x10\0")),
    ("JSON as a table", |_| Csv::new("a.csv").parse(b"[\n  {\"petal\": 1}]")),
    ("lines of JSON", |folder| Csv::new(folder.file("a.jsonl", "{\"petal\": 1}\n")).read()),
    ("an image as a table", |_| Csv::new("a.csv").parse(b"\x89PNG\r\n\x1a\n")),
    ("a page of HTML as a table", |_| Csv::new("a.csv").parse(b"<!DOCTYPE html>")),
    ("a mark of UTF-32", |_| Csv::new("a.csv").parse(b"\xff\xfe\0\0a\0\0\0")),
    ("an unknown encoding", |_| Csv::new("a.csv").encoding("latin9000".to_string()).parse(b"a,b\n1,2\n")),
    ("bytes that the encoding does not have", |_| {
        Csv::new("a.csv").encoding("gb18030".to_string()).parse(b"a,b\n1,2\n3,\x81")
    }),
    ("a mark of empty cells in the target", |_| {
        parse(Csv::new("a.csv").target("y").missing(["NA".to_string()]), "x,y\n1,a\n2,NA\n3,b\n")
    }),
    ("a mark of empty cells in another form", |_| {
        parse(Csv::new("a.csv").target("y").missing(["-999".to_string()]), "x,y\n1,a\n-999.0,b\n3,b\n")
    }),
    ("an error of a spreadsheet among words", |_| {
        parse(Csv::new("a.csv").target("y").one_hot("c"), "c,y\nu,a\n#DIV/0!,b\n")
    }),
    ("another delimiter than that of the file", |_| parse(flowers().delimiter(';'), FLOWERS)),
    ("the delimiter of the file among words", |_| parse(Csv::new("a.csv"), "a;b\n1;2\n")),
    ("spaces between the numbers of a file without a header", |_| {
        parse(Csv::new("a.csv").header(false).target(3), "1.5 2 0\n2.5 3 1\n")
    }),
    ("decimal commas of a file without a header", |_| {
        parse(Csv::new("a.csv").header(false).target(2), "1,5;2;0\n2,5;3;1\n")
    }),
    ("a decimal comma in an input", |_| parse(flowers().delimiter(';'), "petal;species\n1,5;rose\n")),
    ("a decimal comma without quotes", |_| parse(flowers().numbers(), "petal,species\n20,5,60,24\n")),
    ("decimal commas in the target", |_| parse(flowers().delimiter(';'), "petal;species\n20;60,24\n21;63,54\n")),
    ("one that may be either", |_| parse(flowers(), "petal,species\n20,\"1,234\"\n21,\"2,345\"\n")),
    ("thousands in the target", |_| parse(flowers(), "petal,species\n20,900\n21,\"1,234.5\"\n")),
    ("thousands and a missing one", |_| parse(flowers(), "petal,species\n1,1 234\n2,2 234\n3,none\n")),
    ("thousands and decimal commas", |_| parse(flowers().numbers().delimiter(';'), "petal;species\n1;1.234,5\n")),
    ("apostrophes as numbers", |_| parse(flowers().numbers(), "petal,species\n1,1'234.5\n")),
    ("a decimal point where a comma is", |_| parse(flowers().numbers().decimal(','), "petal,species\n1.5,1\n")),
    ("groups of other lengths", |_| parse(flowers().numbers().thousands('.').decimal(','), "petal,species\n1.23,1\n")),
    ("a decimal mark that is none", |_| parse(flowers().decimal(';'), FLOWERS)),
    ("thousands that are digits", |_| parse(flowers().thousands('0'), FLOWERS)),
    ("one mark in both roles", |_| parse(flowers().thousands('.'), FLOWERS)),
    ("the index of pandas", |_| parse(flowers(), ",petal,species\n0,1.5,rose\n1,2.5,iris\n")),
    ("the index of a part", |_| parse(flowers(), ",petal,species\n7,1.5,rose\n3,2.5,iris\n")),
    ("an index that was read and written again", |_| parse(flowers(), "Unnamed: 0,petal,species\n0,1.5,rose\n")),
    ("a delimiter at the end of each row", |_| parse(flowers(), "petal,species,\n1.5,rose,\n")),
    ("two columns without a name", |_| parse(flowers(), ",petal,species,\n0,1.5,rose,\n")),
    ("integers without a header", |_| parse(Csv::new("a.csv").target(2), "5,1\n4,0\n3,1\n")),
    ("numbers and a class without a header", |_| parse(Csv::new("a.csv").target(3), "5.1,3.5,rose\n4.9,3,iris\n")),
    ("a name among lines that end in CR", |_| parse(flowers(), "petal,species\r1,rose\rfoo,iris\r")),
    ("a row that is too long among these", |_| parse(flowers(), "petal,species\r\r1,rose\r2,iris,3\r")),
    ("an empty cell among all line ends", |_| parse(flowers(), "petal,species\r\n1,rose\n\r1,\"a\rb\"\r2,\r")),
    ("a quote that is not closed among these", |_| parse(flowers(), "petal,species\r1,rose\r2,\"iris\r")),
    ("bytes that are not text among these", |_| parse(flowers(), b"petal,species\r1,rose\r\x81,")),
    ("a target beyond f32", |_| parse(flowers().numbers(), "petal,species\n1,-1e300\n")),
    ("bytes that are not text", |_| parse(flowers(), b"petal,species\n1,\x81\n")),
    ("a packed file that is cut", |_| parse(flowers(), &packed(FLOWERS.as_bytes())[..30])),
];

const IMAGES: &[Mistake] = &[
    ("a folder that is not there", |folder| Images::new(folder.0.join("none")).read()),
    ("no folders", |folder| {
        folder.file("empty/.hidden", "");
        Images::new(folder.0.join("empty")).read()
    }),
    ("a folder of a class without images", |folder| {
        folder.file("hollow/cat/.hidden", "");
        Images::new(folder.0.join("hollow")).read()
    }),
    ("images that lie beside the folders", |folder| {
        folder.file("flat/a.png", png(1, 1, 0, &[0]));
        Images::new(folder.0.join("flat")).read()
    }),
    ("another file in the folder of a class", |folder| {
        folder.file("other/cat/a.png", png(1, 1, 0, &[0]));
        folder.file("other/cat/notes.txt", "");
        Images::new(folder.0.join("other")).read()
    }),
    ("an image of another size", |folder| {
        folder.file("sizes/cat/a.png", png(2, 1, 0, &[0, 0]));
        folder.file("sizes/dog/b.png", png(1, 1, 0, &[0]));
        Images::new(folder.0.join("sizes")).read()
    }),
    ("a class that is none of those given", |folder| {
        folder.file("classes/cats/a.png", png(1, 1, 0, &[0]));
        Images::new(folder.0.join("classes")).class_names(["cat", "dog"]).read()
    }),
    ("a file that is not an image", |_| Images::new("").parse(b"GIF89a", "a.png")),
    ("a photo of a phone", |_| Images::new("").parse(b"\0\0\0\x18ftypheic\0\0\0\0", "a.jpg")),
    ("a picture of a scanner", |_| Images::new("").parse(b"II*\0\x08\0\0\0", "a.jpg")),
    ("a picture of a hospital", |_| Images::new("").parse(&[&[0; 128][..], b"DICM"].concat(), "a.jpg")),
    ("a bitmap", |_| Images::new("").parse(b"BM\x46\0\0\0\0\0\0\0", "a.png")),
    ("an image that is cut", |_| Images::new("").parse(&png(2, 1, 0, &[0, 0])[..50], "a.png")),
    ("an image that is too wide", |_| {
        let mut huge = png(1, 1, 0, &[0]);
        huge[16..20].copy_from_slice(&100_000u32.to_be_bytes());
        let mut sum = flate2::Crc::new();
        sum.update(&huge[12..29]);
        huge[29..33].copy_from_slice(&sum.sum().to_be_bytes());
        Images::new("").parse(&huge, "a.png")
    }),
    ("a size of no pixels", |_| Images::new("").resize(0, 8).parse(&png(1, 1, 0, &[0]), "a.png")),
];

fn x(bytes: &[u8]) -> Result<Dataset> {
    Npy::new("x.npy", "").parse(bytes)
}

const NPY: &[Mistake] = &[
    ("a file that is not there", |folder| Npy::new(folder.0.join("x.npy"), folder.0.join("y.npy")).read()),
    ("a file that is not an array", |_| x(b"1,2,3\n")),
    ("an array that is cut", |_| x(&npy("<f4", "False", "(2, 2)", &[0; 12]))),
    ("more than the header says", |_| x(&npy("<f4", "False", "(1,)", &[0; 12]))),
    ("a header that asks for more than all memory", |_| x(&npy("<f8", "True", "(1000000000, 1000000000)", &[]))),
    ("a header that asks for more than can be counted", |_| x(&npy("<f8", "True", "(4294967296, 4294967296)", &[]))),
    ("a header that is cut", |_| x(&npy("<f4", "False", "(1,)", &[])[..20])),
    ("a header that is too long", |_| x(b"\x93NUMPY\x02\x00\xff\xff\xff\xff{")),
    ("a version to come", |_| x(b"\x93NUMPY\x04\x00\x00\x00{}")),
    ("a minor version to come", |_| x(b"\x93NUMPY\x01\x01\x02\x00{}")),
    ("a header of something else", |_| x(&npy("<f4", "False", "4", &[0; 16]))),
    ("complex numbers", |_| x(&npy("<c8", "False", "(1,)", &[0; 8]))),
    ("text", |_| x(&npy("<U3", "False", "(1,)", &[0; 12]))),
    ("words of bytes", |_| x(&npy("|S3", "False", "(1,)", &[0; 3]))),
    ("objects", |_| x(&npy("|O", "False", "(1,)", &[0; 8]))),
    ("dates", |_| x(&npy("<M8[D]", "False", "(1,)", &[0; 8]))),
    ("durations", |_| x(&npy("<m8[s]", "False", "(1,)", &[0; 8]))),
    ("floats of 128 bits", |_| x(&npy("<f16", "False", "(1,)", &[0; 16]))),
    ("raw bytes", |_| x(&npy("|V2", "False", "(1,)", &[0; 2]))),
    ("records", |_| {
        let header = b"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }\n";
        x(&[&b"\x93NUMPY\x01\x00"[..], &[header.len() as u8, 0], header, &[0; 4]].concat())
    }),
    ("a single number", |_| x(&npy("<f4", "False", "()", &[0; 4]))),
    ("no examples", |_| x(&npy("<f4", "False", "(0, 3)", &[]))),
    ("examples of no elements", |_| x(&npy("<f4", "False", "(3, 0)", &[]))),
    ("numbers that are not finite", |_| x(&npy("<f4", "False", "(1, 2)", &[0, 0, 0, 0, 0, 0, 0xc0, 0x7f]))),
    ("a number beyond f32", |_| x(&npy("<f8", "False", "(1, 1)", &1e300f64.to_le_bytes()))),
    ("a number beyond f32 further on", |_| {
        x(&npy("<f8", "False", "(2, 2)", &[1.0, 2.0, 3.0, -3.5e38f64].map(f64::to_le_bytes).concat()))
    }),
    ("a target beyond f32", |folder| {
        let x = folder.file("x.npy", npy("<f4", "False", "(1, 1)", &[0; 4]));
        let y = folder.file("y.npy", npy("<f8", "False", "(1,)", &1e39f64.to_le_bytes()));
        Npy::new(x, y).read()
    }),
    ("an infinite f64", |_| x(&npy("<f8", "False", "(1, 1)", &f64::INFINITY.to_le_bytes()))),
    ("an order that is not a boolean", |_| x(&npy("<f4", "0", "(1,)", &[0; 4]))),
    ("a class beyond i64", |folder| {
        let x = folder.file("x.npy", npy("<f4", "False", "(1, 1)", &[0; 4]));
        let y = folder.file("y.npy", npy("<u8", "False", "(1,)", &[0xff; 8]));
        Npy::new(x, y).read()
    }),
    ("a negative index", |_| x(&npy("<i8", "False", "(2, 1)", &[0i64, -1].map(i64::to_le_bytes).concat()))),
    ("arrays of two lengths", |folder| {
        let x = folder.file("x.npy", npy("<f4", "False", "(2, 1)", &[0; 8]));
        let y = folder.file("y.npy", npy("<i8", "False", "(3,)", &[0; 24]));
        Npy::new(x, y).read()
    }),
    ("an entry that is not there", |_| Npy::npz(crate::readers::files().join("stored.npz")).inputs("data").read()),
    ("an archive that is none", |_| Npy::npz("a.npz").parse(b"PK\x03\x04")),
];

const WORDS: &[Mistake] = &[
    ("a text that is too short", |_| Text::new("a.txt").length(4).parse(b"abcd")),
    ("an empty text", |_| Text::new("a.txt").chars().parse(b"")),
    ("a text packed by gzip", |_| Text::new("a.txt").parse(&packed(b"abc"))),
    ("a text packed by zstd", |_| Text::new("a.txt").parse(b"\x28\xb5\x2f\xfd\x24")),
    ("arrays of NumPy as a text", |_| Text::new("a.txt").parse(&archive("x.npy"))),
    ("a PDF as a text", |_| Text::new("a.txt").chars().parse(b"%PDF-1.7")),
    ("an empty prompt", |folder| Text::new(folder.file("empty.txt", "")).read_inputs()),
    ("bytes that are not characters", |_| Text::new("a.txt").chars().parse(b"abc\n\xc3\xa4b\xffc")),
    ("bytes that are not characters among lines that end in CR", |_| {
        Text::new("a.txt").chars().parse(b"a\rb\r\nc\xff")
    }),
    ("a character that is not among those given, too", |_| {
        Text::new("a.txt").chars().characters("abc\r").parse("abc\rcad".as_bytes())
    }),
    ("a character that is not among those given", |_| {
        Text::new("a.txt").chars().characters("abc\n").parse("abc\nca\u{1b}".as_bytes())
    }),
    ("a character that is given twice", |_| Text::new("a.txt").chars().characters("aba").parse(b"ab")),
    ("a length of 0", |_| Text::new("a.txt").length(0).parse(b"ab")),
    ("a stride of 0", |_| Text::new("a.txt").stride(0).parse(b"ab")),
    ("windows that are more than memory", |_| Text::new("a.txt").length(50_000).stride(1).parse(&vec![b'a'; 100_000])),
    ("sums of no digits", |_| Addition::new(0).read()),
    ("sums of too many digits", |_| Addition::new(10).read()),
    ("more sums than there are", |_| Addition::new(1).examples(101).read()),
    ("no sums", |_| Addition::new(1).examples(0).read()),
];

const DATASETS: &[Mistake] = &[
    ("classes that are not of their shape", |_| {
        let targets = Targets::Classes { shape: vec![3], values: vec![0; 4] };
        Dataset::of(Inputs::Indices(vec![0; 3]), &[3], targets)
    }),
    ("examples of nothing, without targets", |_| Dataset::of(Inputs::Numbers(vec![]), &[0], Targets::None)),
    ("training without targets", |_| {
        let data = Dataset::new(vec![0.0; 4], &[1], vec![0; 4])?.without_targets();
        let mut net = Child::new(Dense::new(1, 2, &mut Rng::seed(0)));
        let split = Split { train: data.clone(), test: data.clone() };
        fit(&mut net, &split, &FitOptions::default(), &mut |_| {})?;
        Ok(data)
    }),
    ("a network without an axis of classes", |_| {
        let targets = Targets::Classes { shape: vec![2], values: vec![0, 1, 1, 0] };
        let data = Dataset::of(Inputs::Numbers(vec![0.5; 4]), &[2], targets)?;
        let mut net = Child::new(Dense::new(2, 2, &mut Rng::seed(0)));
        let split = Split { train: data.clone(), test: data.clone() };
        fit(&mut net, &split, &FitOptions::default(), &mut |_| {})?;
        Ok(data)
    }),
];

#[test]
fn every_mistake_is_told() {
    let folder = Folder::new("mistakes");
    let here = folder.0.display().to_string();
    let repository = env!("CARGO_MANIFEST_DIR");
    let mut table = String::new();
    for (part, mistakes) in
        [("CSV", CSV), ("Images", IMAGES), ("NumPy", NPY), ("Text and sums", WORDS), ("Datasets", DATASETS)]
    {
        writeln!(table, "# {part}\n").unwrap();
        for (what, mistake) in mistakes {
            let told = match mistake(&folder) {
                Ok(data) => format!("NO ERROR: {data:?}"),
                Err(error) => format!("{:?}: {error}", error.kind()),
            };
            writeln!(table, "{what}\n    {}\n", told.replace(&here, "..").replace(repository, ".")).unwrap();
        }
    }
    insta::assert_snapshot!(table);
}

/// Neither a file that is too long nor one that decompresses to too much is held in memory.
#[test]
fn what_is_too_long_is_not_read() {
    let folder = Folder::new("long");
    let long = folder.file("long", "");
    // Longer than all memory, and empty on the disk.
    std::fs::File::options().write(true).open(&long).unwrap().set_len(1 << 42).unwrap();
    let all = [Csv::new(&long).read(), Npy::new(&long, "").read(), Npy::npz(&long).read(), Text::new(&long).read()];
    for error in all.map(Result::unwrap_err) {
        assert_eq!(error.kind(), ErrorKind::Io);
        assert!(error.to_string().contains("longer than 1073741824 bytes, the most that is read"), "{error}");
    }
    let image = folder.0.join("long.png");
    std::fs::rename(&long, &image).unwrap();
    let error = Images::new(image).read_inputs().unwrap_err();
    assert!(error.to_string().contains("longer than 67108864 bytes"), "{error}");
}
