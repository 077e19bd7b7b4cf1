//! Results that no machine has the memory for: errors that name the op, before anything is computed.

use precast::{
    ConvOptions, ConvTransposeOptions, GridPadding, Interpolation, Padding, PoolOptions, Resize, prelude::*,
};

fn ones(shape: &[usize]) -> Tensor {
    Tensor::ones(shape, DType::F32)
}

fn index(i: i64) -> Tensor {
    Tensor::from_vec(vec![i], &[1]).unwrap()
}

/// A call by its name.
type Call = (&'static str, fn(usize) -> Result<Tensor>);

/// Calls with a length in an argument or among the numbers.
fn of_lengths() -> Vec<Call> {
    vec![
        ("bincount", |n| index(n as i64 - 1).bincount(0)),
        ("bincount", |n| index(1).bincount(n)),
        ("histc", |n| ones(&[3]).histc(n, 0.0, 1.0)),
        ("one_hot", |n| index(1).one_hot(n)),
        ("multinomial", |n| ones(&[3]).multinomial(n, true, &mut Rng::seed(1))),
        ("multinomial", |n| ones(&[2, 3]).multinomial(n, true, &mut Rng::seed(1))),
        ("tile", |n| ones(&[3]).tile(&[n])),
        ("tile", |n| ones(&[3]).tile(&[n / 1024, 1024])),
        ("repeat_interleave", |n| ones(&[3]).repeat_interleave(n, 0)),
        ("pad", |n| ones(&[3]).pad(&[(n, 0)], 0.0)),
        ("replication_pad", |n| ones(&[3]).replication_pad(&[(1, n)])),
        ("broadcast_to", |n| ones(&[1]).broadcast_to(&[n])?.square()),
        ("interpolate", |n| ones(&[1, 1, 2]).interpolate(&Resize::To(vec![n]), Interpolation::Linear, false)),
        ("interpolate", |n| ones(&[1, 1, 2]).interpolate(&Resize::By(vec![n as f64]), Interpolation::Nearest, false)),
        ("adaptive_avg_pool1d", |n| ones(&[1, 1, 2]).adaptive_avg_pool1d(&[n])),
        ("adaptive_max_pool2d", |n| ones(&[1, 1, 2, 2]).adaptive_max_pool2d(&[1, n])),
        ("avg_pool1d", |n| {
            let options = PoolOptions::new(n + 1, 1).padding(Padding::Explicit(vec![(n, n)]));
            ones(&[1, 1, 2]).avg_pool1d_with(&options)
        }),
        ("conv1d", |n| {
            let options = ConvOptions::default().padding(Padding::Explicit(vec![(n, n)]));
            ones(&[1, 1, 2]).conv1d(&ones(&[1, 1, 1]), None, &options)
        }),
        ("conv_transpose1d", |n| {
            let options = ConvTransposeOptions::default().stride(vec![n]);
            ones(&[1, 1, 2]).conv_transpose1d(&ones(&[1, 1, 1]), None, &options)
        }),
        ("unfold", |n| ones(&[1, 1, 1, 2]).unfold(&[1], &[1], &[0, n], &[1])),
        ("affine_grid", |n| ones(&[1, 2, 3]).affine_grid(&[1, 1, 2, n], false)),
        ("linspace", |n| Tensor::linspace(0.0, 1.0, n)),
        ("eye", |n| Tensor::eye(n)),
        ("randn", |n| Tensor::randn(&[n], &mut Rng::seed(1))),
        ("rand", |n| Tensor::rand(&[n, 2], &mut Rng::seed(1))),
        ("randint", |n| Tensor::randint(0, 2, &[n], &mut Rng::seed(1))),
        ("randperm", |n| Tensor::randperm(n, &mut Rng::seed(1))),
        ("try_full", |n| Tensor::try_full(&[n], 0.0, DType::F16)),
    ]
}

/// Calls whose result has a length times another.
fn of_products() -> Vec<Call> {
    vec![
        ("matmul", |n| ones(&[n, 1]).matmul(&ones(&[1, n]))),
        ("outer", |n| ones(&[n]).outer(&ones(&[n]))),
        ("kron", |n| ones(&[n]).kron(&ones(&[n]))),
        ("tensordot", |n| ones(&[n]).tensordot(&ones(&[n]), &[], &[])),
        ("einsum", |n| Tensor::einsum("i,j->ij", &[&ones(&[n]), &ones(&[n])])),
        ("cdist", |n| ones(&[n, 2]).cdist(&ones(&[n, 2]), 2.0)),
        ("pdist", |n| ones(&[n, 2]).pdist(2.0)),
        ("diag_embed", |n| ones(&[n]).diag_embed()),
        ("meshgrid", |n| Tensor::meshgrid(&[&ones(&[n]), &ones(&[n])])?.swap_remove(0).exp()),
        ("add", |n| ones(&[n, 1]).add(&ones(&[n]))),
        ("lt", |n| ones(&[n, 1]).lt(&ones(&[n]))),
        ("select", |n| ones(&[n, 1]).gt(&ones(&[1]))?.select(&ones(&[n]), &ones(&[n, 1]))),
        ("mse_loss", |n| {
            let many = |shape: &[usize]| ones(shape).broadcast_to(&[n, n]);
            many(&[n, 1])?.mse_loss(&many(&[n])?, Reduction::None)
        }),
        ("one_hot", |n| Tensor::zeros(&[n], DType::I64).one_hot(n)),
        ("stack", |n| {
            let x = ones(&[n, 1]).broadcast_to(&[n, n])?;
            Tensor::stack(&[&x, &x], 0)
        }),
        ("grid_sample", |n| {
            let grid = ones(&[1, 1, n, 2]).broadcast_to(&[1, n, n, 2])?;
            ones(&[1, 1, 2, 2]).grid_sample(&grid, Interpolation::Linear, GridPadding::Zeros, false)
        }),
        ("gradients", |n| {
            let many = ones(&[n, 1]).broadcast_to(&[n, n])?.requires_grad();
            Ok(many.slice(0, 0..1)?.slice(1, 0..1)?.sum_all()?.backward()?.of(&many).unwrap())
        }),
    ]
}

fn refused(name: &str, n: usize, result: Result<Tensor>) {
    let Err(error) = result else { panic!("{name} of {n} has a result") };
    let message = error.to_string();
    // Axes of pools and convolutions have fewer than 2^31 elements.
    let words = ["does not fit into memory", "more than memory can address", "is out of range"];
    assert!(words.iter().any(|words| message.contains(words)), "{name} of {n}: {message}");
    println!("{name} of {n}: {message}");
}

#[test]
fn a_result_beyond_the_memory_is_an_error() {
    for n in [1 << 42, 1 << 50, (1 << 62) + 1] {
        for (name, call) in of_lengths() {
            refused(name, n, call(n));
        }
    }
    for (name, call) in of_products() {
        refused(name, 1 << 21, call(1 << 21));
    }
}
