//! Gradient of the weight of a convolution of bf16 as the product that it is by the tiles of AMX: of the output gradient
//! with the transposed im2col matrix.

use std::ops::Range;

use half::bf16;

use super::{
    by_products::{Patches, ROW, in_parts, layout},
    geometry::Geometry,
    image_terms::ImageTerms,
};
use crate::{
    amx,
    float::Float,
    gemm::{
        blocking::MAX_NR,
        factors::{Factors, Places},
        loops,
        pack::{Operand, Packer, pack_transposed},
        pairs::run_tiles_or_pairs,
        product::Added,
    },
    memory::{Pooled, uninit_vec},
    simd::{Simd, SizeRange},
};

/// Least number of output channels, weights of one, or outputs of the batch.
const LEAST: usize = 16;

/// The im2col matrix as a right operand whose terms are outputs, and whose columns are the weights of a channel.
#[derive(Clone, Copy)]
struct PatchTerms<'a>(Patches<'a>);

impl Operand<bf16> for PatchTerms<'_> {
    fn sizes(&self) -> Option<SizeRange> {
        Some(self.0.sizes)
    }

    #[inline(always)]
    unsafe fn pack_panel<S: Simd, K: Packer<S, bf16>>(
        self,
        simd: S,
        packer: &mut K,
        some: Range<usize>,
        terms: Range<usize>,
        to: *mut f32,
        width: usize,
    ) {
        let PatchTerms(patches) = self;
        let mut rows = [[bf16::ZERO; ROW]; MAX_NR];
        let (offsets, mut at) = (&patches.offsets[some], 0);
        patches.sequences(terms.clone(), |from, len| {
            for (row, offset) in rows.iter_mut().zip(offsets) {
                // SAFETY: the sequence belongs to the patches; a row has room for all terms and a copy more.
                unsafe { patches.copy(from + offset, len, row.as_mut_ptr().add(at)) };
            }
            at += len;
        });
        // SAFETY: the rows have these terms; the rest is guaranteed by the caller.
        unsafe { pack_transposed(simd, packer, rows[0].as_ptr(), ROW, offsets.len(), terms.len(), to, width) };
    }
}

/// Output gradient times patches, added to the sums of the images before.
struct OfImages<'a> {
    grad: ImageTerms<'a, bf16>,
    patches: Patches<'a>,
    channels: usize,
    before: Added<'a, f32>,
}

impl<'a> Factors for OfImages<'a> {
    type Of = bf16;
    type Out = f32;
    type Left = ImageTerms<'a, bf16>;
    type Right = PatchTerms<'a>;

    fn size(&self) -> (usize, usize) {
        (self.channels, self.patches.offsets.len())
    }

    fn depths(&self) -> impl Iterator<Item = usize> {
        std::iter::once(self.patches.outputs())
    }

    fn pair(&self, _: usize) -> (ImageTerms<'a, bf16>, PatchTerms<'a>) {
        (self.grad, PatchTerms(self.patches))
    }

    fn added(&self) -> Added<'_, f32> {
        self.before
    }

    fn places(&self) -> Places {
        Places::rows_of(self.patches.offsets.len())
    }
}

/// Computes [`weight_gradient`](super::dispatch::weight_gradient) by tiles, or returns `None` if they are not allowed or
/// there is too little to multiply.
pub(super) fn weight_gradient(g: &Geometry, x: &[bf16], grad: &[bf16]) -> Option<Pooled<bf16>> {
    let (patch, volume) = (g.patch(), g.out_volume());
    let is_large = [g.out_channels, patch, g.batch * volume].into_iter().all(|count| count >= LEAST);
    (amx::uses_amx() && g.groups == 1 && g.taps() > 1 && is_large).then(|| product(g, x, grad))
}

fn product(g: &Geometry, x: &[bf16], grad: &[bf16]) -> Pooled<bf16> {
    let (source, offsets, runs) = layout(g);
    let len = g.out_channels * g.patch();
    let mut sums: Option<Pooled<f32>> = None;
    in_parts(&source, x, &offsets, (&runs, g.output[2]), |first, patches| {
        let grad = ImageTerms::new(grad, (g.out_channels, g.out_volume()), first, 0);
        let before = sums.as_deref().map_or(Added::Nothing, Added::ToEach);
        let of_images = OfImages { grad, patches, channels: g.out_channels, before };
        let mut out = uninit_vec(len);
        loops::regions(&of_images, &mut out, |region| run_tiles_or_pairs(true, region));
        sums = Some(out);
    });
    bf16::narrow_vec(sums.unwrap_or_else(|| Pooled::zeros(len)))
}
