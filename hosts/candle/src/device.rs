//! The check that a device computes in the dtypes of a plan. candle says so only in the first op without a kernel: on CPUs,
//! products run in bf16 and convolutions do not.

use candle_core::{DType, Device, Result, Var};
use precast_base::{path::named, printable};
use precast_policy::{self as policy, Plan, plan::Decision};

use crate::dtype::to_candle;

/// Ops that a device may lack in a dtype.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Work {
    Product,
    Conv1d,
    Conv2d,
    ConvTranspose1d,
    ConvTranspose2d,
}

impl Work {
    /// Returns the work of a kind of cell.
    fn of(kind: &str) -> Self {
        match kind {
            "Conv1d" => Work::Conv1d,
            "Conv2d" => Work::Conv2d,
            "Conv1dTranspose" => Work::ConvTranspose1d,
            "Conv2dTranspose" => Work::ConvTranspose2d,
            _ => Work::Product,
        }
    }

    /// Runs the op on ones, forward and backward. Returns the largest number of its result, and the exact one.
    fn run(self, dtype: DType, device: &Device) -> Result<(f32, f32)> {
        let ones = |shape: &[usize]| Var::ones(shape, DType::F32, device);
        let (x, w) = match self {
            Work::Product => (ones(&[2, 4])?, ones(&[4, 2])?),
            Work::Conv1d | Work::ConvTranspose1d => (ones(&[1, 4, 8])?, ones(&[4, 4, 3])?),
            Work::Conv2d | Work::ConvTranspose2d => (ones(&[1, 4, 8, 8])?, ones(&[4, 4, 3, 3])?),
        };
        let (low_x, low_w) = (x.to_dtype(dtype)?, w.to_dtype(dtype)?);
        let (y, exact) = match self {
            Work::Product => (low_x.matmul(&low_w)?, 4.0),
            Work::Conv1d => (low_x.conv1d(&low_w, 0, 1, 1, 1)?, 12.0),
            Work::Conv2d => (low_x.conv2d(&low_w, 0, 1, 1, 1)?, 36.0),
            Work::ConvTranspose1d => (low_x.conv_transpose1d(&low_w, 0, 0, 1, 1, 1)?, 12.0),
            Work::ConvTranspose2d => (low_x.conv_transpose2d(&low_w, 0, 0, 1, 1)?, 36.0),
        };
        y.sum_all()?.backward()?;
        let numbers = y.to_dtype(DType::F32)?.flatten_all()?.to_vec1::<f32>()?;
        Ok((numbers.into_iter().fold(f32::MIN, f32::max), exact))
    }
}

/// Refuses a plan with cells whose dtype the device cannot compute in.
pub(crate) fn check(plan: &Plan, device: &Device) -> crate::Result<()> {
    check_by(plan, device, Work::run)
}

fn check_by(
    plan: &Plan,
    device: &Device,
    run: impl Fn(Work, DType, &Device) -> Result<(f32, f32)>,
) -> crate::Result<()> {
    let mut tried = Vec::new();
    for decision in &plan.decisions {
        let Decision { path, kind, .. } = decision;
        let Some(low) = decision.run.dtype().filter(|dtype| dtype.is_low()) else { continue };
        let (work, Some(dtype)) = (Work::of(kind), to_candle(low)) else { continue };
        if tried.contains(&(work, dtype)) {
            continue;
        }
        tried.push((work, dtype));
        let why = match run(work, dtype, device) {
            Ok((met, exact)) if (met - exact).abs() < 0.01 * exact => continue,
            Ok((met, exact)) => format!("{exact} is {met} there"),
            Err(error) => error.to_string().lines().next().unwrap_or_default().to_string(),
        };
        let (place, cell) = (device.location(), named(path));
        let kind = printable(kind);
        let words = format!(
            "{cell} would run in {low}, in which the device {place:?} has no {work:?}: {why}. Choose another dtype, or add the \
             rule `{{ kind: {kind}, run: float32-inside }}`"
        );
        return Err(policy::Error::dtype(words).into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use candle_nn::VarMap;
    use precast_policy::{ErrorKind, Policy};

    use super::*;
    use crate::Network;

    #[test]
    fn a_device_without_a_dtype_is_refused() {
        let net = Network::new(&VarMap::new(), &Device::Cpu, |vb| crate::linear(2, 2, vb.pp("fc"))).unwrap();
        let plan = net.plan(&Policy::named("o1-bf16").unwrap()).unwrap();
        let judge = |result: fn() -> Result<(f32, f32)>| check_by(&plan, &Device::Cpu, |_, _, _| result());
        let missing = || Err(candle_core::Error::UnsupportedDTypeForOp(DType::BF16, "matmul"));
        let error = judge(missing).unwrap_err();
        assert_eq!(error.kind(), Some(ErrorKind::DType));
        let words =
            "`fc` would run in bf16, in which the device Cpu has no Product: unsupported dtype BF16 for op matmul";
        assert!(error.to_string().starts_with(words), "{error}");
        assert!(judge(|| Ok((0.0, 4.0))).is_err(), "a number that is wrong");
        judge(|| Ok((4.0, 4.0))).unwrap();
        check(&plan, &Device::Cpu).unwrap();
    }
}
