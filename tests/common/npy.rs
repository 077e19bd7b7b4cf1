//! Files of numpy.

use std::{fmt::Write as _, fs, path::Path};

use precast::{DType, Tensor};

/// Writes numbers as a file of numpy: floating ones as float64 or float32, which has every low number.
pub fn npy(path: &Path, x: &Tensor) {
    let (kind, bytes): (&str, Vec<u8>) = match x.dtype() {
        DType::I64 => ("<i8", x.to_vec::<i64>().expect("integers").iter().flat_map(|x| x.to_le_bytes()).collect()),
        DType::Bool => ("|b1", x.to_vec::<bool>().expect("truth values").iter().map(|x| u8::from(*x)).collect()),
        DType::F64 => ("<f8", x.to_f64().iter().flat_map(|x| x.to_le_bytes()).collect()),
        _ => ("<f4", x.to_f64().iter().flat_map(|x| (*x as f32).to_le_bytes()).collect()),
    };
    let mut shape = String::new();
    x.shape().iter().for_each(|len| write!(shape, "{len}, ").expect("a text"));
    let mut head = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': ({shape}), }}");
    while (head.len() + 11) % 64 != 0 {
        head.push(' ');
    }
    head.push('\n');
    let mut all = b"\x93NUMPY\x01\x00".to_vec();
    all.extend((head.len() as u16).to_le_bytes());
    all.extend(head.bytes());
    all.extend(bytes);
    fs::write(path, all).expect("a file");
}
