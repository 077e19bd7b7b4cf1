//! Recipes: the quantization of the three products of a linear layer.

use std::{fmt, str::FromStr};

use precast_base::{Error, Result, names::by_name};

use crate::{
    delayed::DelayedRule,
    format::Format,
    operand::{Operand, Rounding},
    scale::{Granularity, MxMode, Nvfp4, ScaleRule},
};

/// The operands of the three products of a linear layer with input `x` [rows, in], weight `w` [out, in] and gradient `g`
/// [rows, out] of its output. Each is quantized from the numbers themselves, never from codes of another direction.
///
/// | product | left | right | sums over |
/// | --- | --- | --- | --- |
/// | `output`: x wᵀ | x | w | in |
/// | `grad_input`: g w | g | wᵀ | out |
/// | `grad_weight`: gᵀ x | gᵀ | xᵀ | rows |
///
/// The rows of an operand are those of [`Matrix`](crate::Matrix), along which the sums run: a recipe that quantizes by
/// rows has a scale for each row of `w` in the first product, and one for each of its columns in the second.
///
/// | recipe | x | w in `output` | g | w in `grad_input` | operands of `grad_weight` |
/// | --- | --- | --- | --- | --- | --- |
/// | `tensorwise` | e4m3, tensor | as x | e5m2, tensor | as x | the same codes |
/// | `rowwise` | e4m3, rows, powers of two | as x | as x | as x | as x |
/// | `rowwise-hp-grad` | e4m3, rows, powers of two | as x | as x | e4m3, tensor, a power of two | not quantized |
/// | `block` | e4m3, 1 x 128, powers of two | e4m3, 128 x 128 | as x | the same codes | as x |
/// | `mxfp8` | e4m3, 1 x 32, e8m0 | as x | as x | as x | as x |
/// | `mxfp4` | e2m1, 1 x 32, e8m0 | as x | as x | as x | as x |
/// | `nvfp4` | e2m1, 1 x 16, e4m3 | e2m1, 16 x 16 | as x, stochastic | the same codes | as x and g, transformed |
/// | `delayed` | e4m3, tensor, delayed | as x | e5m2, tensor, delayed | as x | the same codes |
/// | `int8` | int8, rows | as x | as x | as x | as x |
///
/// Sources: torchao 0.18 (`tensorwise`, `rowwise`, `rowwise_with_gw_hp`, `int8_mixed_precision_training`, MX with its
/// default RCEIL), Transformer Engine (`Float8BlockScaling`, `DelayedScaling` with HYBRID, `NVFP4BlockScaling`).
///
/// ```
/// use precast_lowbit::{Matrix, Recipe, Stream};
///
/// let recipe: Recipe = "mxfp8".parse()?;
/// let x: Vec<f32> = (0..128).map(|i| (i as f32).sin()).collect();
/// let w: Vec<f32> = (0..192).map(|i| (i as f32).cos()).collect();
/// let random = Stream::new(0, "fc", 0);
/// let x = recipe.output.left.quantize(Matrix::new(&x, 4, 32)?, random)?;
/// let w = recipe.output.right.quantize(Matrix::new(&w, 6, 32)?, random)?;
/// assert_eq!(x.matmul_t(&w)?.len(), 4 * 6);
/// # Ok::<(), precast_base::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Recipe {
    /// Name in policies; `custom` for one of [`Recipe::custom`].
    pub name: &'static str,
    /// The operands of the output.
    pub output: Product,
    /// The operands of the gradient of the input.
    pub grad_input: Product,
    /// The operands of the gradient of the weight; `None` if they are not quantized.
    pub grad_weight: Option<Product>,
}

/// The two operands of a product.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Product {
    /// The operand [m, k].
    pub left: Operand,
    /// The operand [n, k], whose transpose is multiplied.
    pub right: Operand,
}

/// The scales of a custom recipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scaling {
    /// An f32 for each tensor, as `tensorwise`.
    Tensor,
    /// One for each row, as `rowwise` and `int8`: powers of two for floating-point formats.
    Rows,
    /// Powers of two for blocks of 128, as `block`.
    Block,
    /// `e8m0` for blocks of 32, as `mxfp8`.
    Mx,
}

impl Scaling {
    /// All of them.
    pub const ALL: [Scaling; 4] = [Scaling::Tensor, Scaling::Rows, Scaling::Block, Scaling::Mx];

    /// Returns the name in policies: `rows`.
    pub const fn name(self) -> &'static str {
        match self {
            Scaling::Tensor => "tensor",
            Scaling::Rows => "rows",
            Scaling::Block => "block",
            Scaling::Mx => "mx",
        }
    }

    /// Returns an operand of this format; a weight has square blocks, if any.
    const fn operand(self, format: Format, is_weight: bool) -> Operand {
        match self {
            Scaling::Tensor => Operand::new(format, Granularity::Tensor, TORCHAO),
            Scaling::Rows => {
                let power_of_two = !matches!(format, Format::Int8 | Format::Int4);
                Operand::new(format, Granularity::Rows, ScaleRule::F32 { power_of_two, eps: 1e-12 })
            }
            Scaling::Block => {
                let rows = if is_weight { 128 } else { 1 };
                let blocks = Granularity::Block { rows, columns: 128 };
                Operand::new(format, blocks, ScaleRule::F32 { power_of_two: true, eps: 0.0 })
            }
            Scaling::Mx => {
                let blocks = Granularity::Block { rows: 1, columns: 32 };
                Operand::new(format, blocks, ScaleRule::Mx(MxMode::RCeil))
            }
        }
    }
}

/// The f32 scales of torchao.
const TORCHAO: ScaleRule = ScaleRule::F32 { power_of_two: false, eps: 1e-12 };

impl Recipe {
    /// All recipes with a name.
    pub const ALL: [Recipe; 9] = [
        Recipe::TENSORWISE,
        Recipe::ROWWISE,
        Recipe::ROWWISE_HP_GRAD,
        Recipe::BLOCK,
        Recipe::MXFP8,
        Recipe::MXFP4,
        Recipe::NVFP4,
        Recipe::DELAYED,
        Recipe::INT8,
    ];

    /// An f32 scale for each tensor: `e4m3` forward, `e5m2` for gradients.
    pub const TENSORWISE: Recipe =
        Recipe { name: "tensorwise", ..Recipe::of(Format::E4M3, Format::E5M2, Scaling::Tensor) };

    /// A power of two for each row of an operand, in `e4m3`.
    pub const ROWWISE: Recipe = Recipe { name: "rowwise", ..Recipe::of(Format::E4M3, Format::E4M3, Scaling::Rows) };

    /// As [`ROWWISE`](Recipe::ROWWISE), with the gradient of the weight in high precision.
    pub const ROWWISE_HP_GRAD: Recipe = {
        let weight = Operand::new(Format::E4M3, Granularity::Tensor, ScaleRule::F32 { power_of_two: true, eps: 1e-12 });
        let grad_input = Product { left: Recipe::ROWWISE.grad_input.left, right: weight };
        Recipe { name: "rowwise-hp-grad", grad_input, grad_weight: None, ..Recipe::ROWWISE }
    };

    /// Powers of two for blocks of 1 x 128, and of 128 x 128 for weights, in `e4m3`.
    pub const BLOCK: Recipe = Recipe { name: "block", ..Recipe::of(Format::E4M3, Format::E4M3, Scaling::Block) };

    /// MX with `e4m3`.
    pub const MXFP8: Recipe = Recipe { name: "mxfp8", ..Recipe::of(Format::E4M3, Format::E4M3, Scaling::Mx) };

    /// MX with `e2m1`.
    pub const MXFP4: Recipe = Recipe { name: "mxfp4", ..Recipe::of(Format::E2M1, Format::E2M1, Scaling::Mx) };

    /// NVFP4: blocks of 16, of 16 x 16 for weights, with stochastic rounding of gradients, and the Hadamard transform of both
    /// operands of the gradient of the weight.
    pub const NVFP4: Recipe = {
        const fn operand(rows: usize) -> Operand {
            let blocks = Granularity::Block { rows, columns: 16 };
            Operand::new(Format::E2M1, blocks, ScaleRule::Nvfp4(Nvfp4::TransformerEngine))
        }
        let (x, w) = (operand(1), operand(16));
        let g = x.rounded(Rounding::Stochastic);
        Recipe {
            name: "nvfp4",
            output: Product { left: x, right: w },
            grad_input: Product { left: g, right: w },
            grad_weight: Some(Product { left: g.transformed(), right: x.transformed() }),
        }
    };

    /// As [`TENSORWISE`](Recipe::TENSORWISE), with the scales of delayed scaling.
    pub const DELAYED: Recipe = {
        const fn operand(format: Format) -> Operand {
            Operand::new(format, Granularity::Tensor, ScaleRule::Delayed(DelayedRule::DEFAULT))
        }
        Recipe {
            name: "delayed",
            ..Recipe::of_operands(operand(Format::E4M3), operand(Format::E4M3), operand(Format::E5M2))
        }
    };

    /// A scale for each row of an operand, in `int8`.
    pub const INT8: Recipe = Recipe { name: "int8", ..Recipe::of(Format::Int8, Format::Int8, Scaling::Rows) };

    const fn of(forward: Format, backward: Format, scaling: Scaling) -> Recipe {
        let gradient = scaling.operand(backward, false);
        Recipe::of_operands(scaling.operand(forward, false), scaling.operand(forward, true), gradient)
    }

    const fn of_operands(x: Operand, w: Operand, g: Operand) -> Recipe {
        Recipe {
            name: "custom",
            output: Product { left: x, right: w },
            grad_input: Product { left: g, right: w },
            grad_weight: Some(Product { left: g, right: x }),
        }
    }

    /// Returns the numbers that must divide the sizes of a layer: its outputs, n, and the numbers that are summed for each, k.
    /// Batches may have any size.
    ///
    /// ```
    /// use precast_lowbit::Recipe;
    /// assert_eq!(Recipe::MXFP8.multiples(), [32, 32]);
    /// assert_eq!(Recipe::TENSORWISE.multiples(), [1, 1]);
    /// ```
    pub fn multiples(&self) -> [usize; 2] {
        let block = |of: &Operand| match of.granularity {
            Granularity::Block { rows, columns } => [rows, columns],
            Granularity::Tensor | Granularity::Rows => [1, 1],
        };
        let (output, grad) = (self.output, self.grad_input);
        let [[_, k_of_x], [n_of_w, k_of_w]] = [block(&output.left), block(&output.right)];
        let [[_, n_of_g], [k_of_wt, n_of_wt]] = [block(&grad.left), block(&grad.right)];
        let [n, k] = self.grad_weight.map_or([1, 1], |product| [block(&product.left)[0], block(&product.right)[0]]);
        let most = |of: &[usize]| of.iter().copied().max().unwrap_or(1);
        [most(&[n_of_w, n_of_g, n_of_wt, n]), most(&[k_of_x, k_of_w, k_of_wt, k])]
    }

    /// Returns whether an operand is rounded at random.
    pub fn is_random(&self) -> bool {
        let products = [Some(self.output), Some(self.grad_input), self.grad_weight];
        let operands = products.into_iter().flatten().flat_map(|product| [product.left, product.right]);
        operands.into_iter().any(|operand| operand.rounding == Rounding::Stochastic)
    }

    /// Returns whether a scale of it is delayed: that of the steps before.
    pub fn is_delayed(&self) -> bool {
        [self.output.left, self.grad_input.left].iter().any(|operand| matches!(operand.scale, ScaleRule::Delayed(_)))
    }

    /// Creates a recipe of a format for `x` and `w`, another for `g`, and the rounding of `g`.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](precast_base::ErrorKind::Unsupported) for `e8m0`, which is a format of scales.
    pub fn custom(forward: Format, backward: Format, scaling: Scaling, rounding: Rounding) -> Result<Recipe> {
        if [forward, backward].contains(&Format::E8M0) {
            return Err(Error::unsupported("e8m0 is a format of scales; it has no zero and no sign"));
        }
        let [x, w] = [false, true].map(|is_weight| scaling.operand(forward, is_weight));
        Ok(Recipe::of_operands(x, w, scaling.operand(backward, false).rounded(rounding)))
    }
}

impl fmt::Display for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name)
    }
}

impl FromStr for Recipe {
    type Err = Error;

    /// Reads the name.
    fn from_str(text: &str) -> Result<Self> {
        by_name(text, Recipe::ALL, |recipe| recipe.name, "unknown recipe").map_err(Error::value)
    }
}

impl FromStr for Scaling {
    type Err = Error;

    /// Reads the name.
    fn from_str(text: &str) -> Result<Self> {
        by_name(text, Scaling::ALL, Scaling::name, "unknown scale").map_err(Error::value)
    }
}
