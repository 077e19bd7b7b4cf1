//! Headroom of cells: how far their largest numbers are from the limits of their dtypes.

use std::{
    collections::{BTreeMap, HashMap, hash_map::Entry},
    fmt,
};

use precast::{
    DType,
    observe::{Codes, Phase},
};
use serde::{Deserialize, Serialize};

use super::{names::Names, peaks::Peaks};

/// Range of the 16-bit results of one cell in the last steps, in one phase.
///
/// ```
/// use precast::prelude::*;
/// use precast_diagnose::Monitor;
/// let mut net = Child::new(Dense::new(4, 2, &mut Rng::seed(1)));
/// let policy = Policy::named("o3-bf16")?;
/// let plan = policy.plan(&net)?;
/// let _ = policy.apply(&mut net)?;
/// let mut monitor = Monitor::default();
/// let y = monitor.watch(&net, |net| net.call(&Tensor::ones(&[1, 4], DType::F32)))?;
/// let numbers = monitor.headroom(&net).into_iter().filter(|of| of.cell.is_empty());
/// println!("{}", plan.explain("")?.with_numbers(numbers)); // the reason, and the largest number next to it
/// # let _ = y;
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Headroom {
    /// Path of the cell; empty for the root, and outside every cell.
    pub cell: String,
    /// Phase of the results.
    pub phase: Phase,
    /// Dtype of the result that is nearest to its limit.
    pub dtype: DType,
    /// Largest magnitude of that result; `None` if it was not finite.
    pub largest: Option<f32>,
    /// Number of times that this magnitude can be doubled; `None` if it was not finite.
    pub doublings: Option<f64>,
    /// Largest share of zeros in a result of the cell.
    pub zero: f32,
    /// Quantized operands of the products of the cell.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub operands: Vec<OperandCodes>,
}

/// The codes of the quantized operands of a cell, in the last step that counted them, which is every 16th.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct OperandCodes {
    /// The operand: `input`, `weight` or `gradient`.
    pub operand: String,
    /// Format of the codes.
    pub format: String,
    /// Share of the numbers other than 0 that became 0.
    pub zero: f64,
    /// Share of the numbers other than 0 beyond the largest code, which became that one.
    pub saturated: f64,
}

impl fmt::Display for OperandCodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OperandCodes { operand, format, zero, saturated } = self;
        write!(f, "{operand} in {format}: {:.1} % became 0", 100.0 * zero)?;
        if *saturated > 0.0 { write!(f, ", {:.1} % saturated", 100.0 * saturated) } else { Ok(()) }
    }
}

/// Adds the codes of operands to the cells and phases in which they were made: gradients in the backward pass, and inputs and
/// weights, which both passes read, in the forward pass.
pub(super) fn with_codes(mut cells: Vec<Headroom>, codes: &[Codes], names: &Names) -> Vec<Headroom> {
    let mut sums = BTreeMap::<(String, &str, &str), [u64; 3]>::new();
    for Codes { slot, operand, format, numbers, zero, saturated, .. } in codes {
        let sum = sums.entry((names.of(*slot, None).0, operand, format)).or_default();
        sum.iter_mut().zip([numbers, zero, saturated]).for_each(|(sum, count)| *sum += count);
    }
    for ((cell, operand, format), [numbers, zero, saturated]) in sums.into_iter().filter(|(_, sum)| sum[0] > 0) {
        let phase = if operand == "gradient" { Phase::Backward } else { Phase::Forward };
        let Some(of) = cells.iter_mut().find(|of| of.cell == cell && of.phase == phase) else { continue };
        let [zero, saturated] = [zero, saturated].map(|count| count as f64 / numbers as f64);
        let (operand, format) = (operand.into(), format.into());
        of.operands.push(OperandCodes { operand, format, zero, saturated });
    }
    cells
}

impl fmt::Display for Headroom {
    /// Formats it without the cell: `forward pass: at most 1.240e4 in f16, 2.4 doublings from its limit; 12 % zeros`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Headroom { phase, dtype, largest, doublings, zero, .. } = self;
        match (largest, doublings) {
            (Some(largest), Some(doublings)) => {
                write!(f, "{phase}: at most {largest:.3e} in {dtype}, {doublings:.1} doublings from its limit")?;
            }
            _ => write!(f, "{phase}: not finite in {dtype}")?,
        }
        write!(f, "; {:.0} % zeros", 100.0 * zero)?;
        self.operands.iter().try_for_each(|operand| write!(f, "; {operand}"))
    }
}

/// Returns the headroom of each cell and phase, in the order in which they are first met.
pub(super) fn of_cells(results: &[Peaks]) -> Vec<Headroom> {
    let (mut cells, mut places): (Vec<Headroom>, _) = (Vec::new(), HashMap::new());
    for result in results.iter().filter(|result| result.dtype.is_low()) {
        let Some(doublings) = result.headroom() else { continue };
        let largest = result.peaks.iter().copied().fold(0f32, |most, peak| if peak > most { peak } else { most });
        let finite = doublings.is_finite();
        let Peaks { phase, dtype, zero, .. } = *result;
        let (largest, doublings) = (Some(largest).filter(|_| finite), Some(doublings).filter(|_| finite));
        let (cell, operands) = (result.cell.clone(), Vec::new());
        let found = Headroom { cell, phase, dtype, largest, doublings, zero, operands };
        match places.entry((&result.cell, phase)) {
            Entry::Vacant(new) => {
                new.insert(cells.len());
                cells.push(found);
            }
            Entry::Occupied(place) => {
                let known = &mut cells[*place.get()];
                let zero = known.zero.max(zero);
                let nearness = |of: &Headroom| of.doublings.unwrap_or(f64::NEG_INFINITY);
                if nearness(&found) < nearness(known) {
                    *known = found;
                }
                known.zero = zero;
            }
        }
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;
    use precast::{
        Op,
        observe::{EdgeOp, Subject},
    };

    #[test]
    fn a_cell_has_the_headroom_of_its_nearest_result() {
        let result = |cell: &str, peaks: &[f32], zero| Peaks {
            phase: Phase::Forward,
            cell: cell.into(),
            op: EdgeOp::Op(Op::Exp),
            subject: Subject::Output,
            call: 0,
            dtype: DType::F16,
            peaks: peaks.to_vec(),
            zero,
            subnormal: 0.0,
        };
        let results = [
            result("a", &[1.0, 65504.0 / 8.0], 0.0),
            result("b", &[0.0], 1.0),
            result("a", &[4.0], 0.5),
            result("c", &[2.0, f32::NAN], 0.0),
        ];
        let found = of_cells(&results);
        let cells: Vec<&str> = found.iter().map(|of| of.cell.as_str()).collect();
        assert_eq!(cells, ["a", "c"], "all numbers of b are 0");
        assert_eq!((found[0].largest, found[0].doublings, found[0].zero), (Some(8188.0), Some(3.0), 0.5));
        assert_eq!((found[1].largest, found[1].doublings), (None, None));
        let words = "forward pass: at most 8.188e3 in f16, 3.0 doublings from its limit; 50 % zeros";
        assert_eq!(found[0].to_string(), words);
        assert_eq!(found[1].to_string(), "forward pass: not finite in f16; 0 % zeros");
    }
}
