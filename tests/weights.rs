//! Weight files: what is written is read back, and what does not fit is refused before anything is changed.

use std::{fs, path::PathBuf};

use half::f16;
use precast::{ErrorKind, cell::Cast, io::weights, prelude::*};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};

/// A folder of its own for one test, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("precast-weights-{test}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn net(seed: u64) -> Child {
    let mut rng = Rng::seed(seed);
    Child::of(sequential![Dense::new(2, 3, &mut rng), BatchNorm1d::new(3), Dense::new(3, 2, &mut rng)])
}

/// Every value of every parameter and buffer, bit for bit.
fn bits<C: ?Sized + precast::cell::AsCell>(net: &Child<C>) -> Vec<(String, Vec<u64>)> {
    let bits = |param: &Param| param.value().to_f64().into_iter().map(f64::to_bits).collect();
    net.named_params().iter().map(|(path, param)| (path.clone(), bits(param))).collect()
}

/// A safetensors file of f32 tensors, each filled with one number.
fn write(file: &PathBuf, tensors: &[(&str, &[usize], f32)]) {
    let bytes: Vec<Vec<u8>> =
        tensors.iter().map(|(_, shape, x)| x.to_le_bytes().repeat(shape.iter().product())).collect();
    let views = tensors.iter().zip(&bytes).map(|((name, shape, _), bytes)| {
        (name.to_string(), TensorView::new(Dtype::F32, shape.to_vec(), bytes).unwrap())
    });
    fs::write(file, safetensors::serialize(views, None).unwrap()).unwrap();
}

#[test]
fn what_is_saved_is_loaded_bit_for_bit() {
    let folder = Folder::new("round");
    let file = folder.file("a.safetensors");
    let (a, b) = (net(1), net(2));
    a.named_params().iter().find(|(path, _)| path == "1.running_mean").unwrap().1.set(&nan_and_subnormal()).unwrap();
    assert_ne!(bits(&a), bits(&b));
    weights::save(&a, &file).unwrap();
    weights::load(&b, &file).unwrap();
    assert_eq!(bits(&a), bits(&b));

    // Another reader of the format finds the same names, shapes and numbers.
    let bytes = fs::read(&file).unwrap();
    let stored = SafeTensors::deserialize(&bytes).unwrap();
    let mut names = stored.names();
    names.sort_unstable();
    let expected =
        ["0.bias", "0.weight", "1.bias", "1.running_mean", "1.running_var", "1.weight", "2.bias", "2.weight"];
    assert_eq!(names, expected);
    let weight = stored.tensor("0.weight").unwrap();
    assert_eq!((weight.dtype(), weight.shape()), (Dtype::F32, &[3, 2][..]));
    let first = f32::from_le_bytes(weight.data()[..4].try_into().unwrap());
    assert_eq!(f64::from(first), a.named_params()[0].1.value().to_f64()[0]);
}

fn nan_and_subnormal() -> Tensor {
    Tensor::from_vec(vec![f32::NAN, 1e-45, f32::NEG_INFINITY], &[3]).unwrap()
}

#[test]
fn every_dtype_keeps_its_bits() {
    #[derive(Cell, Debug)]
    struct Table {
        tables: Vec<Param>,
    }
    impl Forward for Table {}

    let folder = Folder::new("dtypes");
    let file = folder.file("a.safetensors");
    let values = [1.0, -2.0, 0.0];
    let table = |zero: bool| {
        let values = if zero { [0.0; 3] } else { values };
        let tables = DType::ALL.map(|dtype| Param::buffer(Tensor::from_f64(&values, &[3], dtype).unwrap()));
        Child::new(Table { tables: tables.to_vec() })
    };
    let (a, b) = (table(false), table(true));
    weights::save(&a, &file).unwrap();
    weights::load(&b, &file).unwrap();
    assert_eq!(bits(&a), bits(&b));
    let dtypes: Vec<DType> = b.named_params().iter().map(|(_, p)| p.value().dtype()).collect();
    assert_eq!(dtypes, DType::ALL);
}

#[test]
fn adapters_change_neither_paths_nor_bytes() {
    let folder = Folder::new("adapters");
    let mut net = net(1);
    weights::save(&net, folder.file("plain")).unwrap();
    net.walk_mut(&mut |_, slot| {
        let cast = Cast { inward: DType::F16, outward: DType::F32 };
        slot.set_adapter(Some(precast::cell::Adapter::Cast(cast))).unwrap();
    });
    net.call(&Tensor::ones(&[1, 2], DType::F32)).unwrap();
    weights::save(&net, folder.file("wrapped")).unwrap();
    assert_eq!(fs::read(folder.file("plain")).unwrap(), fs::read(folder.file("wrapped")).unwrap());
}

#[test]
fn tied_weights_are_stored_once_and_loaded_into_tied_and_untied_networks() {
    let folder = Folder::new("tied");
    let pair = |tied: bool, seed: u64| {
        let mut rng = Rng::seed(seed);
        let first = Child::new(Dense::new(2, 2, &mut rng));
        let second = if tied { first.clone() } else { Child::new(Dense::new(2, 2, &mut rng)) };
        Child::of(sequential![first, ReLU, second])
    };
    let (tied, untied) = (pair(true, 1), pair(false, 2));
    let file = folder.file("tied.safetensors");
    weights::save(&tied, &file).unwrap();
    let bytes = fs::read(&file).unwrap();
    assert_eq!(SafeTensors::deserialize(&bytes).unwrap().len(), 2);
    let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
    let entries = header.metadata().clone().unwrap();
    assert_eq!(entries["tied"], r#"{"2.bias":"0.bias","2.weight":"0.weight"}"#);

    // Into a network whose weights are not shared: both places get the value.
    weights::load(&untied, &file).unwrap();
    assert_eq!(bits(&untied), bits(&tied));
    // A file of that network, whose copies agree, loads into a tied one.
    let both = folder.file("both.safetensors");
    weights::save(&untied, &both).unwrap();
    let other = pair(true, 3);
    weights::load(&other, &both).unwrap();
    assert_eq!(bits(&other), bits(&tied));
    // Copies that differ cannot both be the value of one parameter.
    weights::save(&pair(false, 4), &both).unwrap();
    let error = weights::load(&other, &both).unwrap_err().to_string();
    assert!(error.contains("`0.weight` and `2.weight` are one parameter"), "{error}");
    assert_eq!(bits(&other), bits(&tied));
    // A file that names only the second path.
    let second = folder.file("second.safetensors");
    write(&second, &[("2.weight", &[2, 2], 5.0), ("2.bias", &[2], 6.0)]);
    weights::load(&other, &second).unwrap();
    assert_eq!(other.named_params()[0].1.value().to_f64(), [5.0; 4]);
}

#[test]
fn what_does_not_fit_is_refused_and_nothing_is_changed() {
    let folder = Folder::new("refused");
    let file = folder.file("w.safetensors");
    let net = Child::new(Dense::new(2, 3, &mut Rng::seed(1)));
    let before = bits(&net);
    let refused = |tensors: &[(&str, &[usize], f32)]| {
        write(&file, tensors);
        let error = weights::load(&net, &file).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Weights);
        assert_eq!(bits(&net), before);
        let message = error.to_string();
        message.strip_prefix(&format!("{}: ", file.display())).expect("names the file").to_string()
    };
    assert_eq!(
        refused(&[("weight", &[3, 2], 1.0), ("biass", &[3], 1.0)]),
        "`bias` is not in the file (did you mean `biass`?)"
    );
    assert_eq!(refused(&[("weight", &[3, 2], 1.0)]), "`bias` is not in the file");
    assert_eq!(
        refused(&[("weight", &[3, 2], 1.0), ("bias", &[3], 1.0), ("scale", &[3], 1.0)]),
        "`scale` is not in the network"
    );
    assert_eq!(
        refused(&[("weight", &[3, 2], 1.0), ("bias", &[4], 1.0)]),
        "`bias`: has the shape [4]; the network's is [3]"
    );
    // As many elements in another arrangement are not the same weight.
    assert!(refused(&[("weight", &[2, 3], 1.0), ("bias", &[3], 1.0)]).contains("has the shape [2, 3]"));
}

#[test]
fn another_dtype_is_cast_only_on_request() {
    let folder = Folder::new("cast");
    let file = folder.file("w.safetensors");
    let net = Child::new(Dense::new(1, 1, &mut Rng::seed(1)));
    let before = bits(&net);
    let store = |dtype: Dtype, bytes: [&[u8]; 2]| {
        let view = |shape: &[usize], bytes| TensorView::new(dtype, shape.to_vec(), bytes).unwrap();
        let views = [("weight", view(&[1, 1], bytes[0])), ("bias", view(&[1], bytes[1]))];
        fs::write(&file, safetensors::serialize(views, None).unwrap()).unwrap();
    };
    let cast = weights::LoadOptions { cast: true };

    let half = [f16::from_f32(0.1).to_le_bytes(), f16::from_f32(-2.0).to_le_bytes()];
    store(Dtype::F16, [&half[0], &half[1]]);
    let error = weights::load(&net, &file).unwrap_err().to_string();
    assert!(
        error.ends_with(
            "`weight`: is float16; the network's is float32; `LoadOptions { cast: true }` rounds or widens it"
        ),
        "{error}"
    );
    assert_eq!(bits(&net), before);
    weights::load_with(&net, &file, cast).unwrap();
    // 0.1 in binary16 is 1638 * 2^-14.
    assert_eq!(net.cell().weight.value().to_f64(), [1638.0 / 16384.0]);

    // f64 is rounded once, to nearest even.
    let wide = [(1.0 + 3.0 * 2f64.powi(-24)).to_le_bytes(), 2f64.powi(-200).to_le_bytes()];
    store(Dtype::F64, [&wide[0], &wide[1]]);
    weights::load_with(&net, &file, cast).unwrap();
    assert_eq!(net.cell().weight.value().to_f64(), [1.0 + 2f64.powi(-22)]);

    // Integers are no weights, whatever is asked for.
    store(Dtype::I64, [&1i64.to_le_bytes(), &1i64.to_le_bytes()]);
    assert!(weights::load_with(&net, &file, cast).unwrap_err().to_string().contains("is int64"));
    store(Dtype::I32, [&1i32.to_le_bytes(), &1i32.to_le_bytes()]);
    assert!(weights::load_with(&net, &file, cast).unwrap_err().to_string().contains("I32"));
}

#[test]
fn damaged_files_are_refused() {
    let folder = Folder::new("damaged");
    let file = folder.file("w.safetensors");
    let net = Child::new(Dense::new(2, 3, &mut Rng::seed(1)));
    let before = bits(&net);
    weights::save(&net, &file).unwrap();
    let whole = fs::read(&file).unwrap();
    let refused = |bytes: &[u8]| {
        fs::write(&file, bytes).unwrap();
        let error = weights::load(&net, &file).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Weights, "{error}");
        assert!(error.to_string().starts_with(&file.display().to_string()), "{error}");
        assert_eq!(bits(&net), before);
        error.to_string()
    };
    // Cut anywhere, also inside the header; with a byte too many; with a header that claims to be huge.
    for cut in 0..whole.len() {
        refused(&whole[..cut]);
    }
    refused(&[&whole[..], &[0]].concat());
    assert!(refused(&[&u64::MAX.to_le_bytes()[..], &whole[8..]].concat()).contains("header too large"));
    refused(b"version: 1\nthis is no weights file at all\n");
    assert_eq!(weights::load(&net, folder.file("none")).unwrap_err().kind(), ErrorKind::Io);
}

#[test]
fn a_file_that_cannot_be_written_stays_as_it_was() {
    let folder = Folder::new("unwritable");
    let error = weights::save(&net(1), folder.file("no/such/folder.safetensors")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.to_string().contains("folder.safetensors"));
}
