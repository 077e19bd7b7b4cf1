//! Sizes shared by several benches.

/// Iterates over the sizes of matrix products (rows of the left operand, terms of a sum, columns of the right operand),
/// whether the right operand is transposed, and a label.
pub fn products() -> impl Iterator<Item = ((usize, usize, usize), bool, String)> {
    let square = [1, 2, 31, 64, 127, 256, 512, 1024].map(|n| ((n, n, n), false));
    let others = [
        ((64, 784, 512), true),
        ((64, 512, 512), true),
        ((64, 512, 10), true),
        ((32, 4096, 4096), true),
        ((1, 4096, 4096), true),
        ((4, 4096, 4096), true),
        ((8, 1021, 1031), true),
        ((7, 1021, 1031), false),
        ((512, 64, 784), false),
        ((16, 64, 1024), false),
        ((509, 1, 521), false),
        ((1, 5000, 1), false),
    ];
    square.into_iter().chain(others).map(|((m, k, n), transposed)| {
        ((m, k, n), transposed, format!("product {m}x{k}x{n}{}", if transposed { " t" } else { "" }))
    })
}
