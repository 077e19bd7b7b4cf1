//! Weight files: written files are read back, and mismatches are refused before anything is changed.

use std::{fs, path::PathBuf};

use half::f16;
use precast::{
    ErrorKind,
    cell::Cast,
    policy::{Rule, RunAs},
    prelude::*,
    storage::{
        Decorate, SaveMode,
        weights::{self, LoadOptions},
    },
};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};

use crate::common::folder::Folder;

fn net(seed: u64) -> Child {
    let mut rng = Rng::seed(seed);
    Child::of(sequential![Dense::new(2, 3, &mut rng), BatchNorm1d::new(3), Dense::new(3, 2, &mut rng)])
}

/// Returns every value of every parameter and buffer, bit for bit.
fn bits<C: ?Sized + precast::cell::AsCell>(net: &Child<C>) -> Vec<(String, Vec<u64>)> {
    let bits = |param: &Param| param.value().to_f64().into_iter().map(f64::to_bits).collect();
    net.named_params().iter().map(|(path, param)| (path.clone(), bits(param))).collect()
}

/// Writes a safetensors file of f32 tensors, each filled with one number.
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
    let file = folder.at("a.safetensors");
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
    let file = folder.at("a.safetensors");
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
    weights::save(&net, folder.at("plain")).unwrap();
    net.walk_mut(&mut |_, slot| {
        let cast = Cast { inward: DType::F16, outward: DType::F32 };
        slot.set_adapter(Some(precast::cell::Adapter::Cast(cast))).unwrap();
    });
    net.call(&Tensor::ones(&[1, 2], DType::F32)).unwrap();
    weights::save(&net, folder.at("wrapped")).unwrap();
    assert_eq!(fs::read(folder.at("plain")).unwrap(), fs::read(folder.at("wrapped")).unwrap());
}

/// Compute weights are written low if every cell that uses them runs low, and are not written twice if they are already
/// low.
#[test]
fn compute_weights_are_low_where_all_their_cells_are() {
    let folder = Folder::new("compute");
    let file = folder.at("compute.safetensors");
    let mut first = Dense::new(2, 2, &mut Rng::seed(1));
    first.bias = Some(Param::new(Tensor::zeros(&[2], DType::F16)));
    let first = Child::new(first);
    let net = Child::of(sequential![first.clone(), ReLU, first]);
    let o3 = Policy::new(Level::O3, DType::F16).unwrap();
    let written = |policy: &Policy, mode: SaveMode| {
        policy.plan(&net).unwrap().save_weights(&net, &file, mode).unwrap();
        let read = weights::read(&file).unwrap();
        read.into_iter().map(|(name, x)| format!("{name} {}", x.dtype())).collect::<Vec<String>>()
    };
    assert_eq!(written(&o3, SaveMode::Compute), ["0.bias f16", "0.weight f16"]);
    assert_eq!(written(&o3, SaveMode::Both), ["0.bias f16", "0.weight f32", "@compute.0.weight f16"]);
    for path in ["0", "2"] {
        let one_full = o3.clone().rule(Rule::path(path, RunAs::Full).unwrap()).unwrap();
        assert_eq!(written(&one_full, SaveMode::Compute), ["0.bias f16", "0.weight f32"], "{path}");
    }
}

#[test]
fn tied_weights_are_stored_once_and_load_into_both_networks() {
    let folder = Folder::new("tied");
    let pair = |tied: bool, seed: u64| {
        let mut rng = Rng::seed(seed);
        let first = Child::new(Dense::new(2, 2, &mut rng));
        let second = if tied { first.clone() } else { Child::new(Dense::new(2, 2, &mut rng)) };
        Child::of(sequential![first, ReLU, second])
    };
    let (tied, untied) = (pair(true, 1), pair(false, 2));
    let file = folder.at("tied.safetensors");
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
    let both = folder.at("both.safetensors");
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
    let second = folder.at("second.safetensors");
    write(&second, &[("2.weight", &[2, 2], 5.0), ("2.bias", &[2], 6.0)]);
    weights::load(&other, &second).unwrap();
    assert_eq!(other.named_params()[0].1.value().to_f64(), [5.0; 4]);
}

#[test]
fn what_does_not_fit_is_refused_and_nothing_is_changed() {
    let folder = Folder::new("refused");
    let file = folder.at("w.safetensors");
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
        "2 differences:\n- `bias` is not in the file (did you mean `biass`?)\n\
         - `biass` is not in the network (did you mean `bias`?)"
    );
    assert_eq!(refused(&[("weight", &[3, 2], 1.0)]), "`bias` is not in the file");
    assert_eq!(
        refused(&[("weight", &[3, 2], 1.0), ("bias", &[3], 1.0), ("scale", &[3], 1.0)]),
        "`scale` is not in the network"
    );
    assert_eq!(
        refused(&[("weight", &[3, 2], 1.0), ("bias", &[4], 1.0)]),
        "`bias` has the shape [4]; the network's is [3]"
    );
    // The same number of elements in another arrangement is not the same weight.
    assert_eq!(
        refused(&[("weight", &[2, 3], 1.0), ("bias", &[3], 1.0)]),
        "`weight` has the shape [2, 3]; the network's is [3, 2]; `LoadOptions::transpose` swaps the axes"
    );
}

#[test]
fn another_dtype_is_cast_only_on_request() {
    let folder = Folder::new("cast");
    let file = folder.at("w.safetensors");
    let net = Child::new(Dense::new(1, 1, &mut Rng::seed(1)));
    let before = bits(&net);
    let store = |dtype: Dtype, bytes: [&[u8]; 2]| {
        let view = |shape: &[usize], bytes| TensorView::new(dtype, shape.to_vec(), bytes).unwrap();
        let views = [("weight", view(&[1, 1], bytes[0])), ("bias", view(&[1], bytes[1]))];
        fs::write(&file, safetensors::serialize(views, None).unwrap()).unwrap();
    };
    let cast = LoadOptions::new().cast(true);

    let half = [f16::from_f32(0.1).to_le_bytes(), f16::from_f32(-2.0).to_le_bytes()];
    store(Dtype::F16, [&half[0], &half[1]]);
    let error = weights::load(&net, &file).unwrap_err().to_string();
    let expected = "`weight` is float16; the network's is float32; `LoadOptions::cast` rounds or widens it";
    assert!(error.contains(expected), "{error}");
    assert_eq!(bits(&net), before);
    weights::load_with(&net, &file, &cast).unwrap();
    // 0.1 in binary16 is 1638 * 2^-14.
    assert_eq!(net.cell().weight.value().to_f64(), [1638.0 / 16384.0]);

    // f64 is rounded once, to nearest even.
    let wide = [(1.0 + 3.0 * 2f64.powi(-24)).to_le_bytes(), 2f64.powi(-200).to_le_bytes()];
    store(Dtype::F64, [&wide[0], &wide[1]]);
    weights::load_with(&net, &file, &cast).unwrap();
    assert_eq!(net.cell().weight.value().to_f64(), [1.0 + 2f64.powi(-22)]);

    // Integers are not weights, whatever the options.
    store(Dtype::I64, [&1i64.to_le_bytes(), &1i64.to_le_bytes()]);
    assert!(weights::load_with(&net, &file, &cast).unwrap_err().to_string().contains("is int64"));
    store(Dtype::I32, [&1i32.to_le_bytes(), &1i32.to_le_bytes()]);
    assert!(weights::load_with(&net, &file, &cast).unwrap_err().to_string().contains("I32"));
}

#[test]
fn damaged_files_are_refused() {
    let folder = Folder::new("damaged");
    let file = folder.at("w.safetensors");
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
    // Truncated anywhere, even inside the header; with an extra byte; with a header that claims to be huge.
    for cut in 0..whole.len() {
        refused(&whole[..cut]);
    }
    refused(&[&whole[..], &[0]].concat());
    assert!(refused(&[&u64::MAX.to_le_bytes()[..], &whole[8..]].concat()).contains("header too large"));
    refused(b"version: 1\nthis is not a weights file at all\n");
    assert_eq!(weights::load(&net, folder.at("none")).unwrap_err().kind(), ErrorKind::Io);
}

#[test]
fn a_file_that_cannot_be_written_stays_as_it_was() {
    let folder = Folder::new("unwritable");
    let error = weights::save(&net(1), folder.at("no/such/folder.safetensors")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.to_string().contains("folder.safetensors"));
}

/// Returns the message of a refused load, without the name of the file. Nothing is changed.
fn refused(net: &Child, file: &PathBuf, options: &LoadOptions) -> String {
    let before = bits(net);
    let error = weights::load_with(net, file, options).unwrap_err();
    assert_eq!((error.kind(), bits(net)), (ErrorKind::Weights, before));
    error.to_string().strip_prefix(&format!("{}: ", file.display())).expect("names the file").to_string()
}

/// Returns the values of a parameter.
fn values(net: &Child, path: &str) -> Vec<f64> {
    net.named_params().into_iter().find(|(known, _)| known == path).expect(path).1.value().to_f64()
}

#[test]
fn all_differences_are_told_at_once() {
    let folder = Folder::new("all");
    let file = folder.at("w.safetensors");
    let (f16, f32) = (Tensor::ones(&[3], DType::F16), Tensor::ones(&[2, 3], DType::F32));
    // Of the expected ones only `1.weight` and `1.running_mean` are there.
    let (three, six) = (Tensor::ones(&[3], DType::F32), Tensor::ones(&[3, 3], DType::F32));
    let tensors = [
        ("0.bias", &f16),
        ("0.weight", &six),
        ("1.running_mean", &three),
        ("1.weight", &three),
        ("2.weight", &f32),
        ("body.1.bias", &three),
        ("extra", &three),
    ];
    weights::write(&file, tensors).unwrap();
    let expected = "7 differences:\n\
         - `1.bias` is not in the file (did you mean `body.1.bias`?)\n\
         - `1.running_var` is not in the file\n\
         - `2.bias` is not in the file\n\
         - `body.1.bias` is not in the network (did you mean `1.bias`?)\n\
         - `extra` is not in the network\n\
         - `0.weight` has the shape [3, 3]; the network's is [3, 2]\n\
         - `0.bias` is float16; the network's is float32; `LoadOptions::cast` rounds or widens it";
    assert_eq!(refused(&net(1), &file, &LoadOptions::new()), expected);
}

/// `weight_v` without `weight_g` has the shape of `weight`, and another value.
#[test]
fn parts_of_a_weight_are_told_and_not_taken_for_it() {
    let folder = Folder::new("parts");
    let file = folder.at("w.safetensors");
    let ones = |shape: &[usize]| Tensor::ones(shape, DType::F32);
    let (bias, g, v) = (ones(&[3]), ones(&[3, 1]), ones(&[3, 2]));
    for (parts, cure) in [
        (["0.weight_g", "0.weight_v"], "remove_weight_norm"),
        (["0.weight_u", "0.weight_orig"], "remove_spectral_norm"),
        (["0.weight_mask", "0.weight_orig"], "prune.remove"),
        (
            ["0.parametrizations.weight.original0", "0.parametrizations.weight.original1"],
            "parametrize.remove_parametrizations",
        ),
    ] {
        weights::write(&file, [(parts[0], &g), (parts[1], &v), ("0.bias", &bias)]).unwrap();
        let net: Child = sequential![Dense::new(2, 3, &mut Rng::seed(1))].into();
        let told = refused(&net, &file, &LoadOptions::torch());
        assert!(told.contains(&format!("computes a weight: `torch.nn.utils.{cure}` stores the weight")), "{told}");
        assert!(!told.contains("did you mean"), "{told}");
    }
}

#[test]
fn options_fit_a_file_to_a_network_and_the_report_says_how() {
    let folder = Folder::new("options");
    let file = folder.at("w.safetensors");
    // Two dense layers in one matrix `[in, out]`, which holds 1, 2, ..., under other names.
    let both = Tensor::from_f64(&(1..=10).map(f64::from).collect::<Vec<_>>(), &[2, 5], DType::F16).unwrap();
    let bias = Tensor::full(&[3], 0.5, DType::F32);
    let tensors =
        [("old.body.qk.kernel", &both), ("old.body.q.beta", &bias), ("step", &bias), ("old.heads.a.b", &bias)];
    weights::write(&file, tensors).unwrap();
    let layers = || {
        let mut rng = Rng::seed(1);
        Child::of(sequential![Dense::new(2, 3, &mut rng), Dense::new(2, 2, &mut rng)])
    };
    let net = layers();
    let options = LoadOptions::new()
        .cast(true)
        .ignore("step")
        .ignore("old.heads.**")
        .rename("old.**", "**")
        .rename("body.q.beta", "0.bias")
        .split("body.*.kernel", ["0.weight", "1.weight"], 1);
    let message = refused(&net, &file, &options);
    assert_eq!(
        message,
        "split: `0.weight` has other wildcards than `body.*.kernel`; allowed: the same in the same order"
    );
    let options = LoadOptions::new()
        .cast(true)
        .ignore("step")
        .ignore("old.heads.**")
        .rename("old.**", "**")
        .rename("body.q.beta", "0.bias")
        .split("body.qk.kernel", ["0.weight", "1.weight"], 1)
        .transpose("*.weight");
    assert_eq!(refused(&net, &file, &options), "`1.bias` is not in the file");
    let before = values(&net, "1.bias");
    let loaded = weights::load_with(&net, &file, &options.partial("1.*")).unwrap();
    assert_eq!(values(&net, "0.weight"), [1.0, 6.0, 2.0, 7.0, 3.0, 8.0]);
    assert_eq!(values(&net, "1.weight"), [4.0, 9.0, 5.0, 10.0]);
    assert_eq!((values(&net, "0.bias"), values(&net, "1.bias")), (vec![0.5; 3], before));
    let expected = "3 of 4 parameters loaded\n\
         left as they were: 1.bias\n\
         ignored: old.heads.a.b, step\n\
         renamed: old.body.q.beta to 0.bias, old.body.qk.kernel to body.qk.kernel\n\
         split: old.body.qk.kernel into 0.weight 1.weight\n\
         transposed: 0.weight, 1.weight\n\
         cast: 0.weight, 1.weight";
    assert_eq!(loaded.to_string(), expected);
    assert_eq!(loaded.loaded, ["0.weight", "0.bias", "1.weight"]);
}

#[test]
fn what_an_option_cannot_do_is_refused() {
    let folder = Folder::new("cannot");
    let file = folder.at("w.safetensors");
    let net = Child::of(sequential![Dense::new(2, 3, &mut Rng::seed(1))]);
    weights::save(&net, &file).unwrap();
    let said = |options: LoadOptions| refused(&net, &file, &options);
    // A pattern that matches nothing, of each kind, all at once.
    let options = LoadOptions::new()
        .ignore("0.weigth")
        .rename("a.**", "b.**")
        .split("c", ["d"], 0)
        .partial("0.wight")
        .transpose("1.*");
    let expected = "5 differences:\n\
         - ignore: `0.weigth` matches no tensor of the file (did you mean `0.weight`?)\n\
         - rename: `a.**` matches no tensor of the file\n\
         - split: `c` matches no tensor of the file\n\
         - partial: `0.wight` matches no parameter of the network (did you mean `0.weight`?)\n\
         - transpose: `1.*` matches no parameter of the network";
    assert_eq!(said(options), expected);
    let message = said(LoadOptions::new().ignore("a.b*").rename("x", ""));
    assert!(message.contains("ignore: the path pattern `a.b*` has a `*` inside the segment"), "{message}");
    assert!(message.contains("; rename: the path pattern `` has an empty segment"), "{message}");
    assert_eq!(
        said(LoadOptions::new().split("0.bias", [""; 0], 0)),
        "split: `0.bias` has no parts; allowed: one or more"
    );
    assert_eq!(said(LoadOptions::new().transpose("0.bias")), "`0.bias` has the shape [3]; only a matrix is transposed");
    let transposed = said(LoadOptions::new().transpose("0.weight"));
    assert_eq!(transposed, "`0.weight` has the shape [2, 3] after it was transposed; the network's is [3, 2]");
    let two = "`0.bias` for `0.weight` and"; // one parameter cannot have two values
    let message = said(LoadOptions::new().rename("0.bias", "0.weight").partial("0.bias"));
    assert!(!message.contains(two) && message.contains("two different ones in the file"), "{message}");
    // Splits that do not fit.
    let parts = |axis| LoadOptions::new().split("0.weight", ["0.weight", "0.weight"], axis);
    let wrong = "`0.weight` has the shape [3, 2]; its parts in the network have the lengths [3, 3] along axis 0";
    assert_eq!(said(parts(0)), wrong);
    assert_eq!(said(parts(7)), "`0.weight` is split along axis 7; its part `0.weight` has the shape [3, 2]");
    let message = said(LoadOptions::new().split("0.weight", ["0.weight", "0.weigth"], 0));
    assert_eq!(message, "`0.weight` is split into `0.weigth`, which is not in the network (did you mean `0.weight`?)");
}

#[test]
fn named_tensors_are_written_and_read() {
    let folder = Folder::new("named");
    let file = folder.at("t.safetensors");
    let tensors: Vec<(String, Tensor)> = (DType::ALL.into_iter())
        .map(|dtype| (format!("t.{dtype}"), Tensor::from_f64(&[1.0, 0.0], &[2, 1], dtype).unwrap()))
        .collect();
    weights::write(&file, tensors.clone()).unwrap();
    let read = weights::read(&file).unwrap();
    assert_eq!(read.len(), tensors.len());
    for (name, tensor) in &tensors {
        let same = |x: &Tensor| (x.dtype(), x.shape().to_vec(), x.to_f64());
        assert_eq!(same(&read[name]), same(tensor), "{name}");
    }
    weights::write(&file, &read).unwrap();
    assert_eq!(weights::read(&file).unwrap().len(), read.len());
    // Impossible requests are refused, and the file stays.
    let x = Tensor::ones(&[1], DType::F32);
    let message = weights::write(&file, [("x", &x), ("x", &x)]).unwrap_err().to_string();
    assert!(message.ends_with("two tensors have the name `x`"), "{message}");
    assert_eq!(weights::read(&file).unwrap().len(), read.len());
    let view = TensorView::new(Dtype::I32, vec![1], &[0; 4]).unwrap();
    fs::write(&file, safetensors::serialize([("n", view)], None).unwrap()).unwrap();
    let message = weights::read(&file).unwrap_err().to_string();
    assert!(message.contains("`n`: is I32; float64, float32"), "{message}");
    assert_eq!(weights::read(folder.at("none")).unwrap_err().kind(), ErrorKind::Io);
}

#[test]
fn no_elements_are_split_and_transposed() {
    let folder = Folder::new("empty");
    let file = folder.at("e.safetensors");
    let net = Child::of(sequential![Dense::new(3, 0, &mut Rng::seed(1))]);
    let empty = |shape: &[usize]| Tensor::zeros(shape, DType::F32);
    weights::write(&file, [("0.weight", empty(&[3, 0])), ("0.bias", empty(&[0]))]).unwrap();
    weights::load_with(&net, &file, &LoadOptions::new().transpose("0.weight")).unwrap();
    // A file may claim any length next to an axis of length 0.
    let view = |shape: &[usize]| TensorView::new(Dtype::F32, shape.to_vec(), &[]).unwrap();
    let views = [("0.weight", view(&[0, usize::MAX])), ("0.bias", view(&[0]))];
    fs::write(&file, safetensors::serialize(views, None).unwrap()).unwrap();
    let message = refused(&net, &file, &LoadOptions::new().transpose("0.weight"));
    assert!(message.contains("after it was transposed"), "{message}");
    let message = refused(&net, &file, &LoadOptions::new().split("0.weight", ["0.weight"], 0));
    assert!(message.contains("has the shape [0, 18446744073709551615]"), "{message}");
}

/// Makes a dense layer of one weight.
fn one_weight(storage: Option<Decorate>) -> Child<Dense> {
    let net = Child::new(DenseSpec::new(1, 1).bias(false).build(&mut Rng::seed(1)).unwrap());
    if let Some(storage) = storage {
        decorate(&net, storage).unwrap();
    }
    net
}

#[test]
fn a_number_that_would_become_infinite_is_refused_with_its_name() {
    let folder = Folder::new("beyond");
    let file = folder.at("a.safetensors");
    let (f16, bf16) = (|| Decorate::new(DType::F16), || Decorate::new(DType::Bf16));
    // Dtype in the file, storage of the parameter, and dtypes that could represent the number.
    let cases = [
        (DType::F32, 1e6, Some(f16().masters(false)), "float16", "1000000", "bfloat16 and float32 can"),
        (DType::F32, 1e6, Some(f16()), "float16", "1000000", "bfloat16 and float32 can"),
        (DType::F64, 1e6, Some(f16()), "float16", "1000000", "bfloat16 and float32 can"),
        (DType::Bf16, 1e6, Some(f16()), "float16", "999424", "bfloat16 and float32 can"),
        (DType::F64, 1e300, None, "float32", "1e300", "float64 can"),
        (DType::F64, 1e300, Some(bf16().kahan()), "bfloat16", "1e300", "float64 can"),
        (DType::F32, 3.4e38, Some(bf16().stochastic_rounding(1)), "bfloat16", "3.4e38", "float32 and float64 can"),
        (DType::F32, 3.4e38, Some(bf16()), "bfloat16", "3.4e38", "float32 and float64 can"),
    ];
    for (dtype, number, storage, to, largest, can) in cases {
        let net = one_weight(storage);
        let before = (bits(&net), net.cell().weight.master().map(|master| master.to_f64()));
        weights::write(&file, [("weight", Tensor::full(&[1, 1], number, dtype))]).unwrap();
        let error = weights::load_with(&net, &file, &LoadOptions::new().cast(true)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Weights);
        let message = error.to_string();
        let words = format!("`weight` holds numbers as large as {largest}, which {to} cannot; {can}");
        assert!(message.ends_with(&words), "{message}, not {words}");
        assert_eq!((bits(&net), net.cell().weight.master().map(|master| master.to_f64())), before, "nothing is lost");
        // Infinity in the file stays infinite.
        weights::write(&file, [("weight", Tensor::full(&[1, 1], f64::INFINITY, dtype))]).unwrap();
        let loaded = weights::load_with(&net, &file, &LoadOptions::new().cast(true)).unwrap();
        assert_eq!(net.cell().weight.value().to_f64(), [f64::INFINITY]);
        assert_eq!(loaded.not_finite, ["weight"]);
    }
    // A master takes f32 without `cast`, and a buffer is loaded like a parameter.
    weights::write(&file, [("weight", Tensor::full(&[1, 1], 1e6, DType::F32))]).unwrap();
    assert!(weights::load(&one_weight(Some(f16())), &file).unwrap_err().to_string().contains("as large as 1000000"));
    let norm = Child::new(BatchNorm1d::new(1));
    decorate(&norm, f16().pack("mindspore-2.10").unwrap_or_else(|_| f16())).unwrap();
    let of = |x: f64| Tensor::full(&[1], x, DType::F64);
    let all = [("weight", of(1.0)), ("bias", of(0.0)), ("running_mean", of(1e300)), ("running_var", of(1.0))];
    weights::write(&file, all).unwrap();
    let message = weights::load_with(&norm, &file, &LoadOptions::new().cast(true)).unwrap_err().to_string();
    assert!(message.contains("`running_mean` holds numbers as large as 1e300"), "{message}");
}

#[test]
fn parameters_that_are_not_finite_are_named() {
    let folder = Folder::new("not-finite");
    let file = folder.at("a.safetensors");
    let net = Child::new(DenseSpec::new(2, 2).build(&mut Rng::seed(1)).unwrap());
    let load = |weight: [f64; 4], bias: f64| {
        let weight = Tensor::from_f64(&weight, &[2, 2], DType::F32).unwrap();
        weights::write(&file, [("weight", weight), ("bias", Tensor::full(&[2], bias, DType::F32))]).unwrap();
        weights::load(&net, &file).unwrap()
    };
    let finite = load([1.0, f64::from(f32::MAX), -1e-45, 0.0], 0.0);
    assert!(finite.not_finite.is_empty(), "{finite}");
    assert_eq!(finite.to_string(), "2 of 2 parameters loaded");
    for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let one = load([1.0, 2.0, number, 0.0], 0.0);
        assert_eq!(one.to_string(), "2 of 2 parameters loaded\nnot all numbers finite: weight");
        let mut both = load([number; 4], number).not_finite;
        both.sort();
        assert_eq!(both, ["bias", "weight"]);
    }
}

#[test]
fn a_new_master_must_fit_the_value() {
    let net = one_weight(Some(Decorate::new(DType::F16)));
    let weight = &net.cell().weight;
    let before = bits(&net);
    let error = weight.set(&Tensor::full(&[1, 1], 65520.0, DType::F32)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Value);
    let words = "an f16 parameter cannot take a value that holds numbers as large as 65520, which float16 cannot; \
                 bfloat16 and float32 can";
    assert_eq!(error.to_string(), words);
    assert_eq!(bits(&net), before);
    weight.set(&Tensor::full(&[1, 1], 65519.0, DType::F32)).unwrap();
    assert_eq!(weight.value().to_f64(), [65504.0]);
    weight.set(&Tensor::full(&[1, 1], f64::NEG_INFINITY, DType::F32)).unwrap();
}

#[test]
fn files_are_written_in_a_dtype_that_holds_the_numbers() {
    let folder = Folder::new("save-beyond");
    let file = folder.at("a.safetensors");
    let net = one_weight(None);
    net.cell().weight.set(&Tensor::full(&[1, 1], 1e6, DType::F32)).unwrap();
    decorate(&net, Decorate::new(DType::Bf16).save_dtype(DType::F16)).unwrap();
    let error = weights::save(&net, &file).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Value);
    assert!(error.to_string().contains("`weight` holds numbers as large as 1000000, which float16 cannot"), "{error}");
    assert_eq!(folder.names(), Vec::<String>::new());
}

#[test]
fn files_say_that_their_tensors_are_of_a_framework() {
    let folder = Folder::new("format");
    let file = folder.at("a.safetensors");
    let format = || {
        let bytes = fs::read(&file).unwrap();
        let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
        header.metadata().as_ref().unwrap()["format"].clone()
    };
    weights::save(&net(1), &file).unwrap();
    assert_eq!(format(), "pt");
    weights::write(&file, [("x", Tensor::ones(&[1], DType::F32))]).unwrap();
    assert_eq!(format(), "pt");
    let net = net(1);
    Policy::named("o2").unwrap().plan(&net).unwrap().save_weights(&net, &file, SaveMode::Both).unwrap();
    assert_eq!(format(), "pt");
}

#[test]
fn two_tensors_of_one_name_and_pointers_are_refused() {
    let folder = Folder::new("twice");
    let header = r#"{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#;
    let twice = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &1f32.to_le_bytes()].concat();
    let tied =
        r#"{"__metadata__":{"tied":"{\"a\":\"w\",\"a\":\"v\"}"},"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#;
    let tied = [&(tied.len() as u64).to_le_bytes()[..], tied.as_bytes(), &1f32.to_le_bytes()].concat();
    let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:4665\nsize 548105171\n".to_vec();
    for (bytes, says) in [
        (twice, "two entries have the name `w`"),
        (tied, "two entries have the name `a`"),
        (pointer, "a pointer of Git LFS in place of the file itself, which `git lfs pull` fetches"),
    ] {
        let file = folder.at("a.safetensors");
        fs::write(&file, &bytes).unwrap();
        for message in [
            weights::read(&file).map(drop).unwrap_err().to_string(),
            weights::load(&net(1), &file).map(drop).unwrap_err().to_string(),
            weights::load_bytes(&net(1), &bytes, &LoadOptions::new()).map(drop).unwrap_err().to_string(),
            Checkpoint::load(&file).map(drop).unwrap_err().to_string(),
        ] {
            assert!(message.contains(says), "{message}");
        }
    }
}

/// The length of a header in its first bytes may be those of a pickle of protocol 2.
#[test]
fn a_header_of_640_bytes_is_no_pickle() {
    let folder = Folder::new("header");
    let file = folder.at("a.safetensors");
    let read = (1..700).any(|length| {
        let name = "n".repeat(length);
        weights::write(&file, [(name.as_str(), Tensor::ones(&[1], DType::F32))]).unwrap();
        weights::read(&file).unwrap();
        fs::read(&file).unwrap().starts_with(b"\x80\x02")
    });
    assert!(read);
}
