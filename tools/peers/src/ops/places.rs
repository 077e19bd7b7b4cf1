//! Gathering, scattering, moving and concatenation of elements: moved elements stay exact, colliding ones are summed.

use precast::{Op, Result, Tensor};
use serde_json::json;

use super::stretching;
use crate::draw::{Case, Draw};

pub fn draw(op: Op, d: &mut Draw) -> Result<Option<Case>> {
    let shape = d.shape(1..=4);
    let rank = shape.len();
    let axis = d.axis(rank);
    let at = axis.rem_euclid(rank as isize) as usize;
    let len = shape[at];
    let with = |len: usize| {
        let mut shape = shape.clone();
        shape[at] = len;
        shape
    };
    let case = match op {
        Op::Broadcast => {
            let from = stretching(d, &shape);
            Case::new(vec![d.float(&from)?], {
                let to = shape.clone();
                move |x| x[0].broadcast_to(&to)
            })
            .option("shape", shape)
        }
        Op::Concat | Op::Stack => {
            let same = op == Op::Stack;
            let second = if same { len } else { d.size(1..=4) };
            let inputs = vec![d.float(&shape)?, d.float(&with(second))?, d.float(&shape)?];
            let call = move |x: &[Tensor]| {
                let all: Vec<&Tensor> = x.iter().collect();
                if same { Tensor::stack(&all, axis) } else { Tensor::concat(&all, axis) }
            };
            Case::new(inputs, call).option("axis", axis)
        }
        Op::Split => {
            let first = d.size(0..=len);
            let lengths = vec![first, len - first];
            let call = {
                let lengths = lengths.clone();
                move |x: &[Tensor]| x[0].split(&lengths, axis)
            };
            Case::many(vec![d.float(&shape)?], call).option("lengths", lengths).option("axis", axis)
        }
        Op::Slice => {
            let start = d.size(0..=len - 1);
            let end = d.size(start..=len);
            Case::new(vec![d.float(&shape)?], move |x| x[0].slice(axis, start..end))
                .option("axis", axis)
                .option("start", start)
                .option("end", end)
        }
        Op::Reshape | Op::Flatten => {
            let start = d.size(0..=rank - 1);
            let mut to: Vec<isize> = shape[..start].iter().map(|&n| n as isize).collect();
            to.push(-1);
            let call = {
                let to = to.clone();
                move |x: &[Tensor]| match op {
                    Op::Flatten => x[0].flatten(start),
                    _ => x[0].reshape(&to),
                }
            };
            Case::new(vec![d.float(&shape)?], call).option("shape", to)
        }
        Op::Squeeze => Case::new(vec![d.float(&with(1))?], move |x| x[0].squeeze(axis)).option("axis", axis),
        Op::Unsqueeze => Case::new(vec![d.float(&shape)?], move |x| x[0].unsqueeze(axis)).option("axis", axis),
        Op::Transpose => {
            let other = d.axis(rank);
            Case::new(vec![d.float(&shape)?], move |x| x[0].transpose(axis, other)).option("a", axis).option("b", other)
        }
        Op::Gather => {
            let index = d.size(1..=6);
            let inputs = vec![d.float(&shape)?, d.indices(&with(index), len)?];
            Case::new(inputs, move |x| x[0].gather(axis, &x[1])).option("axis", axis)
        }
        Op::IndexSelect => {
            let count = d.size(1..=6);
            let inputs = vec![d.float(&shape)?, d.indices(&[count], len)?];
            Case::new(inputs, move |x| x[0].index_select(axis, &x[1])).option("axis", axis)
        }
        Op::Embedding => {
            let (rows, ids) = (d.size(1..=9), d.shape(1..=2));
            Case::new(vec![d.indices(&ids, rows)?, d.float(&[rows, len])?], |x| x[0].embedding(&x[1]))
        }
        Op::ScatterAdd | Op::Scatter => {
            // Without duplicate indices: the one that wins is unspecified in torch.
            let count = if op == Op::Scatter { d.size(1..=len) } else { d.size(1..=6) };
            let index = match op {
                Op::Scatter => {
                    let mut column = vec![1; rank];
                    column[at] = count;
                    let column: Vec<isize> = column.iter().map(|&n| n as isize).collect();
                    d.places(count, len)?.reshape(&column)?.broadcast_to(&with(count))?
                }
                _ => d.indices(&with(count), len)?,
            };
            let inputs = vec![d.float(&shape)?, index, d.float(&with(count))?];
            let call = move |x: &[Tensor]| match op {
                Op::Scatter => x[0].scatter(axis, &x[1], &x[2]),
                _ => x[0].scatter_add(axis, &x[1], &x[2]),
            };
            Case::new(inputs, call).option("axis", axis)
        }
        Op::IndexAdd | Op::IndexCopy => {
            let count = if op == Op::IndexCopy { d.size(1..=len) } else { d.size(1..=6) };
            let index = if op == Op::IndexCopy { d.places(count, len)? } else { d.indices(&[count], len)? };
            let inputs = vec![d.float(&shape)?, index, d.float(&with(count))?];
            let call = move |x: &[Tensor]| match op {
                Op::IndexCopy => x[0].index_copy(axis, &x[1], &x[2]),
                _ => x[0].index_add(axis, &x[1], &x[2]),
            };
            Case::new(inputs, call).option("axis", axis)
        }
        Op::IndexPut => {
            let accumulate = d.flag();
            let rows = shape[0];
            let count = if accumulate { d.size(1..=6) } else { d.size(1..=rows) };
            let index = if accumulate { d.indices(&[count], rows)? } else { d.places(count, rows)? };
            let inputs = vec![d.float(&shape)?, index, d.float(&[&[count], &shape[1..]].concat())?];
            Case::new(inputs, move |x| x[0].index_put(&x[1], &x[2], accumulate)).option("accumulate", accumulate)
        }
        Op::Pad => {
            let pairs: Vec<(usize, usize)> = (0..rank).map(|_| (d.size(0..=2), d.size(0..=2))).collect();
            let value = d.number(-2.0..2.0);
            let call = {
                let pairs = pairs.clone();
                move |x: &[Tensor]| x[0].pad(&pairs, value)
            };
            Case::new(vec![d.float(&shape)?], call).option("pairs", json!(pairs)).option("value", value)
        }
        Op::ReflectionPad | Op::ReplicationPad => {
            let shape = [&[2, 3][..], &(0..d.size(1..=3)).map(|_| d.size(2..=5)).collect::<Vec<_>>()].concat();
            let most = |len: usize| if op == Op::ReflectionPad { len - 1 } else { 4 };
            let pairs: Vec<(usize, usize)> = shape
                .iter()
                .enumerate()
                .map(|(i, &len)| if i < 2 { (0, 0) } else { (d.size(0..=most(len)), d.size(0..=most(len))) })
                .collect();
            let call = {
                let pairs = pairs.clone();
                move |x: &[Tensor]| match op {
                    Op::ReflectionPad => x[0].reflection_pad(&pairs),
                    _ => x[0].replication_pad(&pairs),
                }
            };
            Case::new(vec![d.float(&shape)?], call).option("pairs", json!(pairs))
        }
        Op::Reverse => {
            let axes = d.axes(rank);
            let call = {
                let axes = axes.clone();
                move |x: &[Tensor]| x[0].flip(&axes)
            };
            Case::new(vec![d.float(&shape)?], call).option("axes", axes)
        }
        Op::Roll => {
            let axes = d.axes(rank);
            let shifts: Vec<isize> = axes.iter().map(|_| d.size(0..=12) as isize - 6).collect();
            let call = {
                let (shifts, axes) = (shifts.clone(), axes.clone());
                move |x: &[Tensor]| x[0].roll(&shifts, &axes)
            };
            Case::new(vec![d.float(&shape)?], call).option("shifts", shifts).option("axes", axes)
        }
        Op::Tile => {
            let repeats: Vec<usize> = (0..d.size(0..=rank + 1)).map(|_| d.size(1..=3)).collect();
            let call = {
                let repeats = repeats.clone();
                move |x: &[Tensor]| x[0].tile(&repeats)
            };
            Case::new(vec![d.float(&shape)?], call).option("repeats", repeats)
        }
        Op::Tril | Op::Triu => {
            let (shape, diagonal) = (d.shape(2..=4), d.size(0..=6) as isize - 3);
            let call = move |x: &[Tensor]| if op == Op::Tril { x[0].tril(diagonal) } else { x[0].triu(diagonal) };
            Case::new(vec![d.float(&shape)?], call).option("diagonal", diagonal)
        }
        Op::OneHot => Case::new(vec![d.indices(&shape, 7)?], |x| x[0].one_hot(7)).option("classes", 7),
        Op::PixelShuffle | Op::SpaceToDepth => {
            let (r, [n, c, h, w]) = (d.size(1..=3), [(); 4].map(|()| d.size(1..=4)));
            let shape = if op == Op::PixelShuffle { [n, c * r * r, h, w] } else { [n, c, h * r, w * r] };
            let call = move |x: &[Tensor]| match op {
                Op::PixelShuffle => x[0].pixel_shuffle(r),
                _ => x[0].pixel_unshuffle(r),
            };
            Case::new(vec![d.float(&shape)?], call).option("r", r)
        }
        Op::Max | Op::Min => {
            let (axes, keep) = (d.axes(rank), d.flag());
            let call = {
                let axes = axes.clone();
                move |x: &[Tensor]| match op {
                    Op::Max => x[0].max(&axes, keep),
                    _ => x[0].min(&axes, keep),
                }
            };
            Case::new(vec![d.float(&shape)?], call).option("axes", axes).option("keep", keep)
        }
        Op::ArgMax | Op::ArgMin => {
            let keep = d.flag();
            let call = move |x: &[Tensor]| match op {
                Op::ArgMax => x[0].argmax(axis, keep),
                _ => x[0].argmin(axis, keep),
            };
            Case::new(vec![d.float(&shape)?], call).option("axis", axis).option("keep", keep)
        }
        Op::Sort => {
            let descending = d.flag();
            let call = move |x: &[Tensor]| x[0].sort(axis, descending).map(|(a, b)| vec![a, b]);
            Case::many(vec![d.float(&shape)?], call).option("axis", axis).option("descending", descending)
        }
        Op::TopK => {
            let (k, largest) = (d.size(1..=len), d.flag());
            let call = move |x: &[Tensor]| x[0].topk(k, axis, largest).map(|(a, b)| vec![a, b]);
            Case::many(vec![d.float(&shape)?], call).option("k", k).option("axis", axis).option("largest", largest)
        }
        _ => return Ok(None),
    };
    Ok(Some(case))
}
