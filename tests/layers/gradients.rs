//! Every layer op's gradients against central differences, and its 16-bit results against one rounding of f32, over random
//! shapes and options.

use std::slice;

use crate::random::{Random, check_op};
use precast::{ConvOptions, ConvTransposeOptions, Padding, PoolOptions, Result, Tensor};

const CASES: u64 = 24;

/// Runs a check for each of many seeds.
pub fn many(f: impl Fn(&Random)) {
    (0..CASES).for_each(|seed| f(&Random::new(seed)));
}

fn padding(r: &Random, axes: usize, most: usize) -> Padding {
    match r.size(0, 3) {
        0 => Padding::Valid,
        1 => Padding::Same,
        2 => Padding::all(r.size(0, most)),
        _ => Padding::Explicit((0..axes).map(|_| (r.size(0, most), r.size(0, most))).collect()),
    }
}

#[test]
fn shapes() {
    many(|r| {
        let shape = r.sizes(3, 1, 4);
        let x = r.tensor(&shape);
        let check = |name, f: &dyn Fn(&Tensor) -> Result<Tensor>| check_op(name, slice::from_ref(&x), |xs| f(&xs[0]));
        check("reshape", &|x| x.reshape(&[-1, shape[2] as isize]));
        check("flatten", &|x| x.flatten(1));
        check("unsqueeze", &|x| x.unsqueeze(-2));
        check("squeeze", &|x| x.slice(1, 0..1)?.squeeze(1));
        check("transpose", &|x| x.transpose(0, -1));
        check("permute", &|x| x.permute(&[2, 0, 1])?.reshape(&[-1]));
        check("t", &|x| x.flatten(1)?.t());
        check("broadcast_to", &|x| x.slice(1, 0..1)?.broadcast_to(&[2, shape[0], 3, shape[2]]));
    });
}

#[test]
fn pieces() {
    many(|r| {
        let shape = r.sizes(3, 1, 4);
        let x = r.tensor(&shape);
        let axis = r.size(0, 2);
        let (start, index) = (r.size(0, shape[axis] - 1), r.size(0, shape[axis] - 1));
        let pairs: Vec<(usize, usize)> = (0..3).map(|_| (r.size(0, 2), r.size(0, 2))).collect();
        let mut other = shape.clone();
        other[axis] = r.size(0, 3);
        let y = r.tensor(&other);
        let at = axis as isize;
        let end = shape[axis];
        check_op("slice", slice::from_ref(&x), |xs| xs[0].slice(at, start..end));
        check_op("at", slice::from_ref(&x), |xs| xs[0].at(at - 3, index));
        check_op("pad", slice::from_ref(&x), |xs| xs[0].pad(&pairs, 0.5));
        check_op("concat", &[x.clone(), y.clone(), x.clone()], |xs| Tensor::concat(&[&xs[0], &xs[1], &xs[2]], at));
        check_op("stack", &[x.clone(), x.clone()], |xs| Tensor::stack(&[&xs[0], &xs[1]], at));
        check_op("split", slice::from_ref(&x), |xs| {
            let parts = xs[0].split(&[start, end - start], at)?;
            Tensor::concat(&[&parts[1], &parts[0]], at)
        });
        check_op("chunk", slice::from_ref(&x), |xs| xs[0].chunk(end, at)?[index].tanh());
    });
}

#[test]
fn products() {
    many(|r| {
        let [m, k, n] = [r.size(0, 5), r.size(1, 6), r.size(1, 5)];
        let (a, b) = (r.tensor(&[m, k]), r.tensor(&[k, n]));
        check_op("matmul", &[a.clone(), b.clone()], |xs| xs[0].matmul(&xs[1]));
        let transposed = r.tensor(&[n, k]);
        check_op("matmul of a view", &[a, transposed], |xs| xs[0].matmul(&xs[1].t()?));

        let batch = r.sizes(2, 1, 3);
        let (a, b) = (r.tensor(&[&batch[..], &[m, k]].concat()), r.tensor(&[&batch[..], &[k, n]].concat()));
        check_op("batch_matmul", &[a.clone(), b.clone()], |xs| xs[0].batch_matmul(&xs[1]));
        let matrix = r.tensor(&[k, n]);
        check_op("matmul_ext: one matrix for all", &[a.clone(), matrix.clone()], |xs| xs[0].matmul_ext(&xs[1]));
        let stretched = r.tensor(&[batch[0], 1, k, n]);
        check_op("matmul_ext: batches stretch", &[a.clone(), stretched], |xs| xs[0].matmul_ext(&xs[1]));
        let (left, right) = (r.tensor(&[k]), r.tensor(&[k]));
        check_op("matmul_ext: column", &[a, right.clone()], |xs| xs[0].matmul_ext(&xs[1]));
        check_op("matmul_ext: row", &[left.clone(), b], |xs| xs[0].matmul_ext(&xs[1]));
        check_op("matmul_ext: row and matrix", &[left.clone(), matrix], |xs| xs[0].matmul_ext(&xs[1]));
        check_op("matmul_ext: dot", &[left, right], |xs| xs[0].matmul_ext(&xs[1]));

        let leading = r.size(0, 2);
        let x = r.tensor(&[r.sizes(leading, 1, 3), vec![k]].concat());
        let (weight, bias) = (r.tensor(&[n, k]), r.tensor(&[n]));
        check_op("linear", &[x.clone(), weight.clone(), bias], |xs| xs[0].linear(&xs[1], Some(&xs[2])));
        check_op("linear without bias", &[x, weight], |xs| xs[0].linear(&xs[1], None));

        let spatial = r.size(0, 2);
        let x = r.tensor(&[vec![m, n], r.sizes(spatial, 1, 3)].concat());
        check_op("bias_add", &[x, r.tensor(&[n])], |xs| xs[0].bias_add(&xs[1]));
    });
}

#[test]
fn convolutions() {
    many(|r| {
        for axes in 1..=3 {
            let (groups, few) = (r.size(1, 2), if axes == 3 { 2 } else { 3 });
            let (ins, outs) = (groups * r.size(1, 2), groups * r.size(1, 2));
            let kernel = r.sizes(axes, 1, few);
            let options = ConvOptions {
                stride: r.sizes(axes, 1, 3),
                padding: padding(r, axes, 2),
                dilation: r.sizes(axes, 1, 2),
                groups,
            };
            let reach = |i: usize| options.dilation[i] * (kernel[i] - 1) + 1;
            let input: Vec<usize> = (0..axes).map(|i| reach(i) + r.size(0, few)).collect();
            let x = r.tensor(&[vec![r.size(1, 2), ins], input].concat());
            let weight = r.tensor(&[vec![outs, ins / groups], kernel.clone()].concat());
            let conv = |xs: &[Tensor]| match axes {
                1 => xs[0].conv1d(&xs[1], xs.get(2), &options),
                2 => xs[0].conv2d(&xs[1], xs.get(2), &options),
                _ => xs[0].conv3d(&xs[1], xs.get(2), &options),
            };
            let name = format!("conv{axes}d {options:?}");
            if r.flag() {
                check_op(&name, &[x, weight, r.tensor(&[outs])], conv);
            } else {
                check_op(&name, &[x, weight], conv);
            }
        }
    });
}

#[test]
fn transposed_convolutions() {
    many(|r| {
        for axes in 1..=3 {
            let (groups, few) = (r.size(1, 2), if axes == 3 { 2 } else { 3 });
            let (ins, outs) = (groups * r.size(1, 2), groups * r.size(1, 2));
            let kernel = r.sizes(axes, 1, few);
            let options = ConvTransposeOptions {
                stride: r.sizes(axes, 2, 3),
                padding: padding(r, axes, 1),
                output_padding: r.sizes(axes, 0, 1),
                dilation: r.sizes(axes, 1, 2),
                groups,
            };
            let x = r.tensor(&[vec![r.size(1, 2), ins], r.sizes(axes, 2, few)].concat());
            let weight = r.tensor(&[vec![ins, outs / groups], kernel.clone()].concat());
            let conv = |xs: &[Tensor]| match axes {
                1 => xs[0].conv_transpose1d(&xs[1], xs.get(2), &options),
                2 => xs[0].conv_transpose2d(&xs[1], xs.get(2), &options),
                _ => xs[0].conv_transpose3d(&xs[1], xs.get(2), &options),
            };
            let name = format!("conv_transpose{axes}d {options:?}");
            if r.flag() {
                check_op(&name, &[x, weight, r.tensor(&[outs])], conv);
            } else {
                check_op(&name, &[x, weight], conv);
            }
        }
    });
}

#[test]
fn pools() {
    many(|r| {
        for axes in 1..=3 {
            let kernel = r.sizes(axes, 1, 3);
            let most = kernel.iter().min().unwrap() - 1;
            let options = PoolOptions {
                stride: if r.flag() { vec![] } else { r.sizes(axes, 1, 3) },
                padding: padding(r, axes, most),
                ceil: r.flag(),
                count_include_pad: r.flag(),
                kernel,
            };
            let input: Vec<usize> = options.kernel.iter().map(|k| k + r.size(0, 2)).collect();
            let shape = [vec![r.size(1, 2), r.size(1, 2)], input.clone()].concat();
            let max = |xs: &[Tensor]| match axes {
                1 => xs[0].max_pool1d_with(&options),
                2 => xs[0].max_pool2d_with(&options),
                _ => xs[0].max_pool3d_with(&options),
            };
            let average = |xs: &[Tensor]| match axes {
                1 => xs[0].avg_pool1d_with(&options),
                2 => xs[0].avg_pool2d_with(&options),
                _ => xs[0].avg_pool3d_with(&options),
            };
            check_op(&format!("max_pool{axes}d {options:?}"), &[r.apart(&shape)], max);
            check_op(&format!("avg_pool{axes}d {options:?}"), &[r.tensor(&shape)], average);
            let output: Vec<usize> = input.iter().map(|&len| r.size(1, len + 1)).collect();
            check_op(&format!("adaptive_avg_pool{axes}d {output:?}"), &[r.tensor(&shape)], |xs| match axes {
                1 => xs[0].adaptive_avg_pool1d(&output),
                2 => xs[0].adaptive_avg_pool2d(&output),
                _ => xs[0].adaptive_avg_pool3d(&output),
            });
        }
    });
}

#[test]
fn norms() {
    many(|r| {
        let (n, groups, spatial) = (r.size(2, 3), r.size(1, 2), r.size(0, 2));
        let c = groups * r.size(1, 3);
        let x = r.tensor(&[vec![n, c], r.sizes(spatial, 2, 3)].concat());
        let (gamma, beta) = (r.tensor(&[c]), r.tensor(&[c]));
        let (mean, var) = (r.tensor(&[c]), r.between(0.5, 2.0, &[c]));
        let (x1, eps) = (x.clone(), 0.1);
        let all = [x.clone(), gamma.clone(), beta.clone()];
        check_op("batch_norm", &[x, mean.clone(), var.clone(), gamma.clone(), beta], |xs| {
            xs[0].batch_norm(&xs[1], &xs[2], Some(&xs[3]), Some(&xs[4]), eps)
        });
        check_op("batch_norm plain", &[x1.clone(), mean, var], |xs| xs[0].batch_norm(&xs[1], &xs[2], None, None, eps));
        let train = |xs: &[Tensor]| xs[0].batch_norm_train(xs.get(1), xs.get(2), eps).map(|(y, _, _)| y);
        check_op("batch_norm_train", &all, train);
        check_op("batch_norm_train plain", &all[..1], train);
        check_op("group_norm", &all, |xs| xs[0].group_norm(groups, Some(&xs[1]), Some(&xs[2]), eps));
        check_op("group_norm gamma", &all[..2], |xs| xs[0].group_norm(groups, Some(&xs[1]), None, eps));
        check_op("instance_norm", &all, |xs| xs[0].instance_norm(Some(&xs[1]), Some(&xs[2]), eps));
        check_op("group_norm beta", &[x1.clone(), gamma], |xs| xs[0].group_norm(groups, None, Some(&xs[1]), eps));

        let count = r.size(1, x1.rank());
        let last = &x1.shape()[x1.rank() - count..];
        let (gamma, beta) = (r.tensor(last), r.tensor(last));
        check_op("layer_norm", &[x1.clone(), gamma, beta], |xs| {
            xs[0].layer_norm(last, Some(&xs[1]), Some(&xs[2]), eps)
        });
        check_op("layer_norm plain", slice::from_ref(&x1), |xs| xs[0].layer_norm(last, None, None, eps));
        let gamma = r.tensor(&x1.shape()[x1.rank() - 1..]);
        check_op("rms_norm", &[x1.clone(), gamma], |xs| xs[0].rms_norm(Some(&xs[1]), eps));
        check_op("rms_norm plain", &[x1], |xs| xs[0].rms_norm(None, eps));
    });
}

#[test]
fn indexing() {
    many(|r| {
        let shape = r.sizes(3, 1, 4);
        let x = r.tensor(&shape);
        let axis = r.size(0, 2);
        let mut shorter: Vec<usize> = shape.iter().map(|&len| r.size(0, len)).collect();
        shorter[axis] = r.size(1, 6);
        let index = r.indices(shape[axis], &shorter);
        check_op("gather", &[x.clone(), index], |xs| xs[0].gather(axis as isize, &xs[1]));
        let index = r.indices(shape[axis], &[r.size(0, 6)]);
        check_op("index_select", &[x, index], |xs| xs[0].index_select(axis as isize - 3, &xs[1]));
        let (table, ids) = (r.tensor(&[4, r.size(1, 3)]), r.indices(4, &r.sizes(2, 1, 3)));
        check_op("embedding", &[table, ids], |xs| xs[1].embedding(&xs[0]));
    });
}
