//! NumPy arrays. The files in `files` were written by NumPy 2.4: `arange(24).reshape(4, 3, 2)` in both orders and in
//! archives, compressed and not, with classes 2, 0, 1, 2 and with half-precision numbers.

use precast::prelude::*;
use precast_train::data::Npy;
use precast_train::data::{Standardization, Targets};

use crate::readers::{Folder, files, inputs};

/// Returns a `.npy` file of version 1, by the specification of the format.
pub fn npy(dtype: &str, fortran_order: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{dtype}', 'fortran_order': {fortran_order}, 'shape': {shape}, }}\n");
    [&b"\x93NUMPY\x01\x00"[..], &(header.len() as u16).to_le_bytes(), header.as_bytes(), data].concat()
}

#[test]
fn arrays_of_both_orders_are_the_same() {
    for name in ["c_order.npy", "fortran_order.npy"] {
        let npy = Npy { targets: None, ..Npy::new(files().join(name), "") };
        let data = npy.read().unwrap();
        assert_eq!((data.len(), data.shape(), data.targets()), (4, &[3, 2][..], &Targets::None));
        assert_eq!(inputs(&data), (0..24).map(f64::from).collect::<Vec<_>>());
    }
}

#[test]
fn archives_are_packed_or_not() {
    for name in ["packed.npz", "stored.npz"] {
        let data = Npy::npz(files().join(name)).read().unwrap();
        assert_eq!((data.shape(), data.labels()), (&[3, 2][..], &[2, 0, 1, 2][..]));
        assert_eq!(inputs(&data), (0..24).map(f64::from).collect::<Vec<_>>());
    }
    let data = Npy::npz(files().join("stored.npz")).inputs("z").targets("x").read().unwrap();
    assert_eq!(inputs(&data), [0.5, 1.5, 2.5, 3.5]);
    let Targets::Numbers { shape, values } = data.targets() else { panic!("{data:?}") };
    assert_eq!((&shape[..], values.len()), (&[3, 2][..], 24));
}

/// `[n]` numbers as targets match the output of a network with one output.
#[test]
fn two_files_are_inputs_and_targets() {
    let folder = Folder::new("npy");
    let x = folder.file("x.npy", npy("<f8", "False", "(2, 1)", &[0.5f64, -2.0].map(f64::to_le_bytes).concat()));
    let y = folder.file("y.npy", npy("<f4", "False", "(2,)", &[1.0f32, 3.0].map(f32::to_le_bytes).concat()));
    let data = Npy::new(x, y).read().unwrap();
    assert_eq!((inputs(&data), data.shape()), (vec![0.5, -2.0], &[1][..]));
    assert_eq!(data.targets(), &Targets::Numbers { shape: vec![1], values: vec![1.0, 3.0] });
}

#[test]
fn every_dtype_is_read_in_both_orders_of_bytes() {
    let read = |dtype: &str, bytes: &[u8]| {
        let data = Npy::new("x.npy", "").parse(&npy(dtype, "False", "(2,)", bytes)).unwrap();
        let x = data.input_batches(2).unwrap().next().unwrap();
        (x.dtype(), x.to_f64())
    };
    let numbers = |x: [f64; 2]| (DType::F32, x.to_vec());
    let indices = |x: [f64; 2]| (DType::I64, x.to_vec());
    // 1.5 and -2.0 in three formats.
    assert_eq!(read("<f2", &[0x00, 0x3e, 0x00, 0xc0]), numbers([1.5, -2.0]));
    assert_eq!(read(">f2", &[0x3e, 0x00, 0xc0, 0x00]), numbers([1.5, -2.0]));
    assert_eq!(read(">f4", &[1.5f32, -2.0].map(f32::to_be_bytes).concat()), numbers([1.5, -2.0]));
    assert_eq!(read(">f8", &[1.5f64, -2.0].map(f64::to_be_bytes).concat()), numbers([1.5, -2.0]));
    assert_eq!(read("|u1", &[0, 255]), numbers([0.0, 255.0]));
    assert_eq!(read("|i1", &[127, 0x80]), numbers([127.0, -128.0]));
    assert_eq!(read("|b1", &[0, 1]), numbers([0.0, 1.0]));
    assert_eq!(read(">i2", &[0xff, 0xfe, 0x01, 0x00]), numbers([-2.0, 256.0]));
    assert_eq!(read("<u4", &[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]), numbers([f64::from(u32::MAX as f32), 0.0]));
    assert_eq!(read("<i4", &[7, 0, 0, 0, 0, 1, 0, 0]), indices([7.0, 256.0]));
    assert_eq!(read(">i8", &[1i64, 1 << 40].map(i64::to_be_bytes).concat()), indices([1.0, (1i64 << 40) as f64]));
}

#[test]
fn headers_of_versions_2_and_3_are_read() {
    for version in [2, 3] {
        let header = b"{\"shape\": (1, 1), \"fortran_order\": True, \"descr\": \"<f4\"}";
        let start = [&b"\x93NUMPY"[..], &[version, 0], &(header.len() as u32).to_le_bytes()].concat();
        let file = [&start[..], header, &2.5f32.to_le_bytes()].concat();
        assert_eq!(inputs(&Npy::new("x.npy", "").parse(&file).unwrap()), [2.5]);
    }
}

/// As read by NumPy 2.4: `numpy.load` of files with these headers.
#[test]
fn headers_of_python_2_are_read() {
    let read = |version: u8, header: &str| {
        let length = header.len().to_le_bytes();
        let length = if version == 1 { &length[..2] } else { &length[..4] };
        let file = [&b"\x93NUMPY"[..], &[version, 0], length, header.as_bytes(), &[0; 48]].concat();
        Npy::new("x.npy", "").parse(&file).map(|data| (data.len(), data.shape().to_vec()))
    };
    for header in [
        "{'descr': '<f4', 'fortran_order': False, 'shape': (4L, 3L), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (4L, 3), }          \n",
        "{'descr': u'<f4', 'fortran_order': True, 'shape': (4, 3)}",
        "{'shape':(4L,3L),'descr':\"<f4\",'fortran_order':False}",
        " {'descr': '<f4', 'fortran_order': False, 'shape': ( 4 , 3 ), } ",
    ] {
        for version in [1, 2, 3] {
            assert_eq!(read(version, header).unwrap(), (4, vec![3]), "{header}");
        }
    }
    assert_eq!(read(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (12L,), }").unwrap(), (12, vec![]));
    for header in [
        "{'descr': '<f4', 'fortran_order': 0, 'shape': (4, 3), }",
        "{'descr': '<f4', 'fortran_order': Falsch, 'shape': (4, 3), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (12), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (4LL, 3), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (4M, 3), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-4, 3), }",
    ] {
        let error = read(1, header).unwrap_err().to_string();
        assert!(error.contains("is none of a plain array, such as `{'descr'"), "{error}");
    }
}

/// Integers are read as indices, and the errors say how they are read as numbers.
#[test]
fn integers_used_as_numbers_are_explained() {
    let bytes = |dtype: &str| if dtype == "<i4" { 1i32.to_le_bytes().to_vec() } else { 1i64.to_le_bytes().to_vec() };
    for dtype in ["<i4", "<i8"] {
        let data = Npy::new("x.npy", "").parse(&npy(dtype, "False", "(1, 1)", &bytes(dtype))).unwrap();
        let x = data.input_batches(1).unwrap().next().unwrap();
        let rng = &mut Rng::seed(1);
        let dense = Child::new(Dense::new(1, 2, rng)).call(&x).unwrap_err().to_string();
        let norm = Child::new(LayerNorm::new(&[1])).call(&x).unwrap_err().to_string();
        let exp = x.exp().unwrap_err().to_string();
        for message in [dense, norm, exp] {
            assert!(message.contains("got i64") && message.contains("; i64 is for indices"), "{message}");
            assert!(message.ends_with("an array of NumPy saved as float64 is read as numbers"), "{message}");
        }
        let message = Standardization::of(&data).unwrap_err().to_string();
        assert!(message.ends_with("is read as indices (of an embedding), one of float64 as numbers"), "{message}");
    }
    let message = Tensor::scalar(1.0, DType::F32).is_finite().unwrap().exp().unwrap_err().to_string();
    assert!(message.ends_with("got bool; `cast` makes numbers 0 and 1 of booleans"), "{message}");
}
