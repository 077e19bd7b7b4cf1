//! Products of vectors, matrices and tensors.

pub(in crate::ops) mod addmm;
pub(in crate::ops) mod attention;
pub(in crate::ops) mod dense;
pub(in crate::ops) mod einsum;
pub(in crate::ops) mod matmul;
pub(in crate::ops) mod products;
pub(in crate::ops) mod quantized;
pub(in crate::ops) mod rotary;
