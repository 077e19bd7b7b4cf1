//! Shapes, dtypes and numbers passed by mistake: errors, forward and backward, and no panic.

use precast::{DType, Interpolation, Reduction, Resize, Result, Tensor};

use crate::ops::inputs::Draw;

#[test]
fn nothing_panics() {
    let odd = [0, 1, 2, 3, 5, 1 << 33, usize::MAX];
    let numbers = [0.0, 1.0, -1.0, 0.5, 1e300, f64::INFINITY, f64::NAN];
    let (mut fine, mut refused) = (0, 0);
    let cases = if cfg!(miri) { 20 } else { 2000 };
    for case in 0..cases {
        let mut draw = Draw::new(case);
        let tensor = |draw: &mut Draw, most: usize| {
            let rank = draw.size(0..=most);
            let shape: Vec<usize> = (0..rank).map(|_| draw.size(0..=3)).collect();
            let dtype = if draw.size(0..=9) == 0 { DType::ALL[draw.size(0..=5)] } else { DType::F32 };
            let x = Tensor::full(&shape, 0.5, dtype);
            if dtype.is_float() { x.requires_grad() } else { x }
        };
        let (x, y, z) = (tensor(&mut draw, 5), tensor(&mut draw, 3), tensor(&mut draw, 2));
        // Matching shapes, equally often.
        let y = if draw.size(0..=1) == 0 { x.clone() } else { y };
        let z = if draw.size(0..=1) == 0 { x.clone() } else { z };
        let index = z.cast(DType::I64);
        let axis = draw.size(0..=9) as isize - 5;
        let reduction = [Reduction::Mean, Reduction::Sum, Reduction::None][draw.size(0..=2)];
        let mut any = || odd[draw.size(0..=odd.len() - 1)];
        let (m, n) = (any(), any());
        let small = [m.min(3), n.min(3)];
        let pairs: Vec<(usize, usize)> = (0..x.rank()).map(|i| if i % 2 == 0 { (m, n) } else { (0, 1) }).collect();
        // Legal, and only too large to make in a test.
        let pairs = if m > 9 && m < usize::MAX || n > 9 && n < usize::MAX { vec![] } else { pairs };
        let number = numbers[case as usize % numbers.len()];
        let size = Resize::To(small.to_vec());
        let results: Vec<Result<Tensor>> = vec![
            x.selu(),
            x.celu(number),
            x.softshrink(number),
            x.tanh_shrink(),
            x.softsign(),
            x.softmin(axis),
            x.glu(axis),
            x.logsumexp(&[axis], m == 1),
            x.logsumexp(&[], true),
            x.std(&[axis], m, n == 0),
            x.atan2(&y),
            x.hypot(&y),
            x.fmod(&y),
            x.remainder(&y),
            x.lerp(&y, number),
            x.huber_loss(&y, number, reduction),
            x.binary_cross_entropy(&y, reduction),
            x.poisson_nll_loss(&y, m == 1, reduction),
            x.soft_margin_loss(&y, reduction),
            x.hinge_embedding_loss(&index, number, reduction),
            x.gaussian_nll_loss(&y, &z, number, reduction),
            x.margin_ranking_loss(&y, &index, number, reduction),
            x.cosine_embedding_loss(&y, &index, number, reduction),
            x.triplet_margin_loss(&y, &z, number, number, reduction),
            x.multi_margin_loss(&index, small[0] as u32, number, reduction),
            x.multilabel_margin_loss(&index, reduction),
            x.multilabel_soft_margin_loss(&y, reduction),
            x.cosine_similarity(&y, axis, number),
            x.normalize(number, axis, number),
            x.dist(&y, number),
            x.renorm(number.abs().max(0.5), axis, number),
            x.pdist(number),
            x.tensordot(&y, &[axis], &[axis]),
            x.tensordot(&y, &[0, axis], &[1, 0]),
            x.inner(&y),
            x.vecdot(&y),
            x.kron(&z),
            Tensor::multi_dot(&[&x, &y, &z]),
            x.addr(&y, &z),
            x.bilinear(&y, &z, None),
            x.trace(),
            x.index_add(axis, &index, &y),
            x.index_copy(axis, &index, &y),
            x.scatter(axis, &index, &y),
            x.masked_fill(&y.cast(DType::Bool), number),
            x.reflection_pad(&pairs),
            x.replication_pad(&pairs),
            x.pixel_shuffle(m),
            x.pixel_unshuffle(n),
            x.flip(&[axis, axis ^ 1]),
            x.roll(&[axis.wrapping_mul(1 << 40), isize::MIN], &[axis, 0]),
            x.tile(&small),
            x.tile(&[usize::MAX, 2]),
            x.tril(axis.wrapping_mul(1 << 62)),
            x.triu(axis),
            x.diagonal(axis),
            x.diag_embed(),
            x.repeat_interleave(small[0], axis),
            x.move_axis(axis, 0),
            x.nan_to_num(number, number, -number),
            x.nonzero(),
            x.masked_select(&y.cast(DType::Bool)),
            x.cast(DType::Bool).any(&[axis], true),
            index.one_hot(small[0]),
            x.unfold(&small, &[m], &[n.min(2)], &small),
            x.adaptive_max_pool2d(&small),
            x.interpolate(&size, Interpolation::Cubic, m == 1),
            x.affine_grid(&[small[0], m.min(9), small[1], 2], n == 1),
            x.softmax_as(axis, DType::F16),
            x.sum_as(&[axis], false, DType::I64),
            x.norm_as(number, &[], true, DType::F64),
        ];
        for result in results {
            match result {
                // An op without a gradient has no backward pass.
                Ok(y) if y.dtype().is_float() && y.is_tracked() => {
                    fine += 1;
                    y.backward_from(&Tensor::ones(y.shape(), y.dtype())).unwrap();
                }
                Ok(_) => fine += 1,
                Err(error) => {
                    refused += 1;
                    assert!(!error.to_string().is_empty());
                }
            }
        }
    }
    assert!(fine > 10 * cases && refused > 10 * cases, "{fine} went well, {refused} were refused");
}
