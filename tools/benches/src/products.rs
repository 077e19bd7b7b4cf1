//! Matrix products compared with matrixmultiply, gemm and candle.

use gemm::Parallelism;
use half::f16;
use precast::DType;

use crate::{
    Options, Run,
    noise::{DTYPES, candle, f16s, numbers, ours, read_candle, read_ours},
    sizes::products,
    try_run,
};

/// Sizes m, k and n: rows of the left operand, terms of a sum, columns of the right operand.
type Sizes = (usize, usize, usize);

pub fn rows(options: &Options) {
    options.head("t: the right operand lies transposed", &["matrixmultiply", "gemm", "candle"]);
    for (sizes, transposed, name) in products() {
        for (dtype, tolerance) in DTYPES {
            let (m, k, n) = sizes;
            let name = format!("{name} {dtype}");
            if !options.wants(&name) {
                continue;
            }
            let right = if transposed { [n, k] } else { [k, n] };
            let (a, b) = (ours(&[m, k], dtype), ours(&right, dtype));
            let precast = move || if transposed { a.linear(&b, None) } else { a.matmul(&b) };
            let (a, b) = (candle(&[m, k], dtype), candle(&right, dtype));
            let candle = try_run(move || if transposed { a.matmul(&b.t()?) } else { a.matmul(&b) }, read_candle);
            let peers =
                vec![by_matrixmultiply(dtype, sizes, transposed), by_gemm(dtype, sizes, transposed), Some(candle)];
            options.row(&name, tolerance, try_run(precast, |y| Ok(read_ours(y))), peers);
        }
    }
}

/// Returns the row and column strides of the right operand.
fn steps((_, k, n): Sizes, transposed: bool) -> (isize, isize) {
    if transposed { (1, k as isize) } else { (n as isize, 1) }
}

fn by_matrixmultiply(dtype: DType, sizes @ (m, k, n): Sizes, transposed: bool) -> Option<Run> {
    let (a, b, mut c) = (numbers(m * k), numbers(k * n), vec![0f32; m * n]);
    let (rows, columns) = steps(sizes, transposed);
    let run: Run = Box::new(move |tell| {
        // SAFETY: all matrices are contiguous and fill their vectors.
        unsafe {
            let (a, b, c) = (a.as_ptr(), b.as_ptr(), c.as_mut_ptr());
            matrixmultiply::sgemm(m, k, n, 1.0, a, k as isize, 1, b, rows, columns, 0.0, c, n as isize, 1);
        }
        Ok(tell.then(|| c.clone()))
    });
    (dtype == DType::F32).then_some(run)
}

fn by_gemm(dtype: DType, sizes: Sizes, transposed: bool) -> Option<Run> {
    let (m, k, n) = sizes;
    match dtype {
        DType::F32 => Some(gemm_of(numbers(m * k), numbers(k * n), (0.0, 1.0), f32::from, sizes, transposed)),
        DType::F16 => Some(gemm_of(f16s(m * k), f16s(k * n), (f16::ZERO, f16::ONE), f16::to_f32, sizes, transposed)),
        _ => None,
    }
}

fn gemm_of<T: Copy + 'static>(
    a: Vec<T>,
    b: Vec<T>,
    (zero, one): (T, T),
    wide: fn(T) -> f32,
    sizes @ (m, k, n): Sizes,
    transposed: bool,
) -> Run {
    let mut c = vec![zero; m * n];
    let (rows, columns) = steps(sizes, transposed);
    let (a_row, c_row) = (k as isize, n as isize);
    Box::new(move |tell| {
        let (a, b, out) = (a.as_ptr(), b.as_ptr(), c.as_mut_ptr());
        // SAFETY: all matrices are contiguous and fill their vectors.
        unsafe {
            gemm::gemm(
                m,
                n,
                k,
                out,
                1,
                c_row,
                false,
                a,
                1,
                a_row,
                b,
                columns,
                rows,
                zero,
                one,
                false,
                false,
                false,
                Parallelism::None,
            );
        }
        Ok(tell.then(|| c.iter().map(|&x| wide(x)).collect()))
    })
}
