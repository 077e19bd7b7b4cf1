//! Convolutions compared with candle.

use precast::{ConvOptions, Padding};

use crate::{
    Options,
    noise::{DTYPES, candle, ours, read_candle, read_ours},
    try_run,
};

/// Batch, channels, side, output channels, kernel, stride, padding: ResNet-18's, LeNet5's, an odd one.
const SIZES: [[usize; 7]; 7] = [
    [8, 32, 32, 32, 3, 1, 1],
    [8, 64, 16, 64, 3, 1, 1],
    [8, 256, 4, 256, 3, 1, 1],
    [8, 32, 32, 64, 1, 2, 0],
    [32, 1, 28, 6, 5, 1, 2],
    [32, 6, 14, 16, 5, 1, 0],
    [3, 17, 29, 13, 3, 2, 1],
];

pub fn rows(options: &Options) {
    options.head("", &["candle"]);
    for sizes in SIZES {
        let [batch, inputs, side, outputs, kernel, stride, padding] = sizes;
        let words = sizes.map(|size| size.to_string()).join(" ");
        for (dtype, tolerance) in DTYPES {
            let name = format!("conv {words} {dtype}");
            if !options.wants(&name) {
                continue;
            }
            let shapes = [&[batch, inputs, side, side], &[outputs, inputs, kernel, kernel]];
            let [x, w] = shapes.map(|shape| ours(shape, dtype));
            let how = ConvOptions::default().stride(vec![stride]).padding(Padding::all(padding));
            let precast = try_run(move || x.conv2d(&w, None, &how), |y| Ok(read_ours(y)));
            let [x, w] = shapes.map(|shape| candle(shape, dtype));
            let candle = try_run(move || x.conv2d(&w, padding, stride, 1, 1), read_candle);
            options.row(&name, tolerance, precast, vec![Some(candle)]);
        }
    }
}
