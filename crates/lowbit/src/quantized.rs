//! Quantized matrices.

use precast_base::{Error, Result};

use crate::{
    format::Format,
    scale::{Rule, Stored},
};

/// A quantized matrix: codes, and the scale of each group of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Quantized {
    format: Format,
    shape: [usize; 2],
    /// Rows and columns of a group.
    group: [usize; 2],
    codes: Vec<u8>,
    scales: Scales,
}

/// The scales of a quantized matrix, row by row of its groups. A number is about that of its code times the scale.
#[derive(Clone, Debug, PartialEq)]
pub enum Scales {
    /// An f32 for each group.
    F32(Vec<f32>),
    /// A code of `e8m0` for each group.
    E8M0(Vec<u8>),
    /// A code of `e4m3` for each group, times the scale of the tensor.
    E4M3 {
        /// Codes of the groups.
        groups: Vec<u8>,
        /// Scale of the tensor.
        tensor: f32,
    },
}

impl Scales {
    pub(crate) fn empty(rule: Rule) -> Self {
        match rule {
            Rule::F32 { .. } | Rule::Given(_) => Scales::F32(Vec::new()),
            Rule::Mx(_) => Scales::E8M0(Vec::new()),
            Rule::Nvfp4 { decode, .. } => Scales::E4M3 { groups: Vec::new(), tensor: decode },
        }
    }

    pub(crate) fn push(&mut self, scale: Stored) {
        match (self, scale) {
            (Scales::F32(scales), Stored::F32(scale)) => scales.push(scale),
            (Scales::E8M0(codes) | Scales::E4M3 { groups: codes, .. }, Stored::Code(code)) => codes.push(code),
            (Scales::F32(_), Stored::Code(_)) | (_, Stored::F32(_)) => unreachable!("a rule has scales of one kind"),
        }
    }

    /// Returns each scale. In f64 that of NVFP4, a product, is exact.
    pub fn to_f64(&self) -> Vec<f64> {
        let all = |x: Vec<f32>, tensor: f64| x.into_iter().map(|x| f64::from(x) * tensor).collect();
        match self {
            Scales::F32(scales) => all(scales.clone(), 1.0),
            Scales::E8M0(codes) => all(Format::E8M0.decode(codes), 1.0),
            Scales::E4M3 { groups, tensor } => all(Format::E4M3.decode(groups), f64::from(*tensor)),
        }
    }
}

impl Quantized {
    pub(crate) fn new(format: Format, shape: [usize; 2], group: [usize; 2], codes: Vec<u8>, scales: Scales) -> Self {
        Quantized { format, shape, group, codes, scales }
    }

    /// Returns the format of the codes.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Returns rows and columns.
    pub fn shape(&self) -> [usize; 2] {
        self.shape
    }

    /// Returns the codes row by row, one in a byte; [`pack_nibbles`](crate::pack_nibbles) packs those of four bits.
    pub fn codes(&self) -> &[u8] {
        &self.codes
    }

    /// Returns the scales.
    pub fn scales(&self) -> &Scales {
        &self.scales
    }

    /// Returns the matrix as factors of products: numbers that are exact in bf16, row by row, and what they are multiplied
    /// with, a scale for each row or one for all. Scales of several blocks in a row are part of the numbers, which are then exact
    /// from 2^-126 on: they are powers of two, or codes of `e4m3` for numbers of `e2m1`.
    pub fn factors(&self) -> (Vec<f32>, Vec<f32>) {
        let ([rows, columns], [height, width]) = (self.shape, self.group);
        let mut numbers = vec![0.0; self.codes.len()];
        self.format.decode_all(&self.codes, &mut numbers);
        let (blocks, outer) = match &self.scales {
            Scales::F32(scales) if width == columns && height == rows => return (numbers, scales.clone()),
            Scales::F32(scales) if width == columns && height == 1 => return (numbers, scales.clone()),
            Scales::F32(scales) => (scales.clone(), 1.0),
            Scales::E8M0(codes) => (Format::E8M0.decode(codes), 1.0),
            Scales::E4M3 { groups, tensor } => (Format::E4M3.decode(groups), *tensor),
        };
        let across = columns.checked_div(width).unwrap_or_default();
        for (row, numbers) in numbers.chunks_exact_mut(columns.max(1)).enumerate() {
            let scales = &blocks[row / height * across..][..across];
            for (block, scale) in numbers.chunks_exact_mut(width).zip(scales) {
                block.iter_mut().for_each(|x| *x *= scale);
            }
        }
        (numbers, vec![outer])
    }

    /// Returns the numbers of the codes times their scales, row by row, each rounded once.
    pub fn decode(&self) -> Vec<f32> {
        self.to_f64().into_iter().map(|x| x as f32).collect()
    }

    /// Returns the numbers of the codes times their scales, exactly.
    fn to_f64(&self) -> Vec<f64> {
        let ([_, columns], [height, width]) = (self.shape, self.group);
        let (scales, numbers) = (self.scales.to_f64(), self.format.decode(&self.codes));
        let across = columns.checked_div(width).unwrap_or_default();
        let scale = |at: usize| scales[at / columns / height * across + at % columns / width];
        numbers.into_iter().enumerate().map(|(at, x)| f64::from(x) * scale(at)).collect()
    }

    /// Computes the product of this matrix, [m, k], and the transpose of another, [n, k]: [m, n], row by row. Sums are in f64,
    /// over k in order, and rounded once.
    ///
    /// It is the reference of the products that run on vectors.
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](precast_base::ErrorKind::Shape) when the columns differ.
    pub fn matmul_t(&self, other: &Quantized) -> Result<Vec<f32>> {
        let ([m, k], [n, of_other]) = (self.shape, other.shape);
        if k != of_other {
            return Err(Error::shape(format!("rows of {k} numbers meet rows of {of_other}")));
        }
        let (left, right) = (self.to_f64(), other.to_f64());
        let row = |of: &[f64], i: usize| of[i * k..(i + 1) * k].to_vec();
        let rows: Vec<Vec<f64>> = (0..n).map(|j| row(&right, j)).collect();
        Ok((0..m)
            .flat_map(|i| {
                let left = row(&left, i);
                rows.iter()
                    .map(|right| left.iter().zip(right).map(|(x, y)| x * y).sum::<f64>() as f32)
                    .collect::<Vec<_>>()
            })
            .collect())
    }
}
