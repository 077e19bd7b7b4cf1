//! Counts of op calls by dtype.

use std::{collections::BTreeMap, fmt};

use precast_base::table::table;
use serde::{Deserialize, Serialize};

use super::{Event, watch};
use crate::{DType, Op, error::Result};

/// Calls of one op, by dtype.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Calls {
    /// Calls in f16.
    pub f16: usize,
    /// Calls in bf16.
    pub bf16: usize,
    /// Calls in f32.
    pub f32: usize,
    /// Calls in f64, or on integers and booleans only.
    pub other: usize,
}

impl Calls {
    /// Returns the number of calls in all dtypes.
    pub fn total(&self) -> usize {
        self.f16 + self.bf16 + self.f32 + self.other
    }

    fn of(&mut self, dtype: Option<DType>) -> &mut usize {
        match dtype {
            Some(DType::F16) => &mut self.f16,
            Some(DType::Bf16) => &mut self.bf16,
            Some(DType::F32) => &mut self.f32,
            _ => &mut self.other,
        }
    }
}

/// Calls of every op that ran, by dtype, displayed as a table. As Paddle's `collect_operator_stats`.
///
/// An op counts for the dtype of its first floating input as the kernel received it. A cast that was performed counts
/// for the dtype it produced.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OpStats {
    by_op: BTreeMap<Op, Calls>,
}

impl OpStats {
    /// Returns the calls of one op; all zero if it did not run.
    pub fn calls(&self, op: Op) -> Calls {
        self.by_op.get(&op).copied().unwrap_or_default()
    }

    /// Iterates over every op that ran, in catalogue order.
    pub fn iter(&self) -> impl Iterator<Item = (Op, Calls)> {
        self.by_op.iter().map(|(op, calls)| (*op, *calls))
    }
}

impl<'a> FromIterator<&'a Event> for OpStats {
    /// Counts all given events.
    fn from_iter<I: IntoIterator<Item = &'a Event>>(events: I) -> Self {
        let mut stats = OpStats::default();
        for event in events {
            let ran_in = match event.op {
                Op::Cast => Some(event.output),
                _ => event.inputs.iter().copied().find(|dtype| dtype.is_float()),
            };
            *stats.by_op.entry(event.op).or_default().of(ran_in) += 1;
        }
        stats
    }
}

impl fmt::Display for OpStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = |name: &str, calls: Calls| {
            [name.into(), calls.f16.to_string(), calls.bf16.to_string(), calls.f32.to_string(), calls.other.to_string()]
        };
        let rows = self.iter().map(|(op, calls)| row(op.name(), calls));
        let table = table(&["op", "f16", "bf16", "f32", "other"], rows, |column| column > 0);
        let total: usize = self.by_op.values().map(Calls::total).sum();
        write!(f, "{table}\n{total} calls of {} ops", self.by_op.len())
    }
}

/// Runs `f` and counts the ops that it calls on this thread, by dtype. As in Paddle, backward passes inside `f` are
/// left out. [`watch`] also returns the casts and gradient ops of a backward pass, whose events can be counted:
/// `events.iter().collect::<OpStats>()`.
///
/// Counting ends with `f`, however it ends.
///
/// # Errors
/// Those of `f`.
///
/// ```
/// # use precast_tensor as precast;
/// use precast::{DType, Op, Tensor, observe::collect_op_stats};
/// let x = Tensor::ones(&[2, 2], DType::F32);
/// let low = x.cast(DType::Bf16);
/// let (_, stats) = collect_op_stats(|| low.matmul(&low)?.relu()?.add(&x))?;
/// assert_eq!(stats.calls(Op::MatMul).bf16, 1);
/// assert_eq!(stats.calls(Op::Add).f32, 1); // bf16 + f32, which promotes
/// println!("{stats}");
/// # Ok::<(), precast::Error>(())
/// ```
pub fn collect_op_stats<R>(f: impl FnOnce() -> Result<R>) -> Result<(R, OpStats)> {
    let (result, events) = watch(f);
    Ok((result?, events.iter().filter(|event| !event.backward).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::Sizes;

    fn event(op: Op, inputs: &[DType], output: DType) -> Event {
        Event {
            slot: None,
            op,
            inputs: inputs.into(),
            output,
            backward: false,
            in_code: false,
            sizes: Sizes::default(),
        }
    }

    #[test]
    fn calls_are_counted_by_the_dtype_of_the_kernel() {
        use DType::*;
        let events = [
            event(Op::MatMul, &[Bf16, Bf16], Bf16),
            event(Op::MatMul, &[F16, F16], F16),
            event(Op::BatchNorm, &[F16, F32, F32], F16),
            event(Op::Where, &[Bool, F32, F32], F32),
            event(Op::Equal, &[I64, I64], Bool),
            event(Op::Add, &[F64, F64], F64),
            event(Op::Cast, &[F32], F16),
        ];
        let stats: OpStats = events.iter().collect();
        assert_eq!(stats.calls(Op::MatMul), Calls { f16: 1, bf16: 1, ..Calls::default() });
        assert_eq!(stats.calls(Op::BatchNorm), Calls { f16: 1, ..Calls::default() });
        assert_eq!(stats.calls(Op::Where), Calls { f32: 1, ..Calls::default() });
        assert_eq!(stats.calls(Op::Equal).other + stats.calls(Op::Add).other, 2);
        assert_eq!(stats.calls(Op::Cast), Calls { f16: 1, ..Calls::default() });
        assert_eq!(stats.calls(Op::Relu), Calls::default());
        let json = serde_json::to_string(&stats).unwrap();
        assert_eq!(serde_json::from_str::<OpStats>(&json).unwrap(), stats);
    }

    #[test]
    fn the_table_is_aligned_and_ends_with_the_total() {
        let events = [event(Op::MatMul, &[DType::Bf16; 2], DType::Bf16), event(Op::Cast, &[DType::F32], DType::Bf16)];
        let lines: Vec<String> = events.iter().collect::<OpStats>().to_string().lines().map(String::from).collect();
        assert_eq!(
            lines,
            [
                "| op     | f16 | bf16 | f32 | other |",
                "|--------|-----|------|-----|-------|",
                "| Cast   |   0 |    1 |   0 |     0 |",
                "| MatMul |   0 |    1 |   0 |     0 |",
                "2 calls of 2 ops",
            ]
        );
    }
}
