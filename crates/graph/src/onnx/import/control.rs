//! Loops: bodies that run several times.

use super::{
    call::axis_of,
    run::{Names, Runner, truth},
    step::Call,
    value::{Item, Value},
};
use crate::onnx::tensor::Elem;
use precast::{
    Tensor,
    error::{Error, Result},
    recording::{self, hidden},
};

/// Rounds of a loop, at most.
const ROUNDS: i64 = 1 << 20;

impl<'a> Runner<'a> {
    /// Runs a branch of an `If`. In a graph whose inputs decide, it runs both and selects among their results.
    pub(super) fn choose(&self, call: &Call<'a>, names: &Names<'_>) -> Result<Vec<Value>> {
        let condition = call.item(0)?;
        if condition.known || !recording::is_on() {
            let taken = if truth(call, 0)? { "then_branch" } else { "else_branch" };
            return self.body(call.step.body(taken)?, vec![], Some(names));
        }
        let refused = |why: String| {
            let name = &call.step.inputs[0];
            call.refuse(&format!(
                "its condition `{name}` depends on the inputs, so that a graph runs both branches and selects, and {why}; fix \
                 the input that decides it"
            ))
        };
        let run = |branch: &str| {
            let body = call.step.body(branch)?;
            self.body(body, vec![], Some(names)).map_err(|e| refused(format!("`{branch}` fails: {e}")))
        };
        let (then, otherwise) = (run("then_branch")?, run("else_branch")?);
        let condition = condition.x.reshape(&[1isize; 0])?;
        let select = |pair: (Value, Value)| match pair {
            (Value::One(a), Value::One(b)) if (a.x.shape(), a.elem) == (b.x.shape(), b.elem) => {
                Ok(Item::computed(condition.select(&a.x, &b.x)?, a.elem).into())
            }
            (Value::One(a), Value::One(b)) => Err(refused(format!(
                "the branches have results of {} {:?} and {} {:?}",
                a.elem,
                a.x.shape(),
                b.elem,
                b.x.shape()
            ))),
            _ => Err(refused("a branch has a result that is not a tensor".into())),
        };
        then.into_iter().zip(otherwise).map(select).collect()
    }

    /// Runs a `Loop`: at most as often as its first input says, as long as its condition holds.
    pub(super) fn repeat(&self, call: &Call<'a>, names: &Names<'_>) -> Result<Vec<Value>> {
        let body = call.step.body("body")?;
        let times = match call.maybe(0)? {
            Some(_) => Some(call.number(0)?),
            None => None,
        };
        let mut holds = match call.maybe(1)? {
            Some(_) => truth(call, 1)?,
            None => true,
        };
        let mut carried: Vec<Value> = call.inputs.iter().skip(2).cloned().collect();
        let count = carried.len();
        if body.outputs.len() < count + 1 {
            return Err(Error::value(format!(
                "its body has {} outputs; expected a condition and {count} values",
                body.outputs.len()
            )));
        }
        let has_condition = call.maybe(1)?.is_some();
        let mut scanned: Vec<Vec<Tensor>> = vec![vec![]; body.outputs.len() - 1 - count];
        let mut elems = vec![Elem::F32; scanned.len()];
        let mut known = true;
        let mut round = 0;
        while holds && times.is_none_or(|times| round < times) {
            if round == ROUNDS {
                return Err(call.refuse(&format!("it runs more than {ROUNDS} times")));
            }
            let mut inputs: Vec<Value> = vec![Item::int(round)?.into(), Item::truth(true)?.into()];
            inputs.append(&mut carried);
            let mut made = self.body(body, inputs, Some(names))?.into_iter();
            let condition = made.next().unwrap_or(Value::Absent);
            if has_condition || times.is_none() {
                let of_body = Call { step: call.step, inputs: vec![condition] };
                holds = truth(&of_body, 0)?;
            }
            carried = made.by_ref().take(count).collect();
            for (index, value) in made.enumerate() {
                let Value::One(item) = value else {
                    return Err(Error::value("a scan output of its body is not a tensor"));
                };
                (known, elems[index]) = (known && item.known, item.elem);
                scanned[index].push(item.x);
            }
            round += 1;
        }
        let scanned = scanned.iter().zip(elems).map(|(parts, elem)| stacked(parts, 0, elem, known));
        carried.into_iter().map(Ok).chain(scanned).collect()
    }

    /// Runs a `Scan`: once for each element of an axis of its last inputs.
    pub(super) fn scan(&self, call: &Call<'a>, names: &Names<'_>) -> Result<Vec<Value>> {
        if call.opset() < 9 {
            return self.scan_8(call, names);
        }
        self.scan_over(call, names, &call.inputs)
    }

    /// Runs the first form of `Scan`, which has a batch axis, one example at a time.
    fn scan_8(&self, call: &Call<'a>, names: &Names<'_>) -> Result<Vec<Value>> {
        if call.maybe(0)?.is_some() {
            return Err(call.refuse("lengths of sequences are not known here"));
        }
        let batch = call.inputs.iter().skip(1).find_map(|value| match value {
            Value::One(item) => item.x.shape().first().copied(),
            _ => None,
        });
        let mut rows: Vec<Vec<Value>> = Vec::new();
        for row in 0..batch.unwrap_or(0) {
            let of_row = |value: &Value| match value {
                Value::One(item) => Ok(Value::One(Item { x: item.x.at(0, row)?, ..item.clone() })),
                _ => Err(Error::value("an input is not a tensor")),
            };
            let inputs = call.inputs.iter().skip(1).map(of_row).collect::<Result<Vec<Value>>>()?;
            rows.push(self.scan_over(call, names, &inputs)?);
        }
        let count = rows.first().map_or(0, Vec::len);
        let joined = |index: usize| {
            let items = rows.iter().filter_map(|row| match &row[index] {
                Value::One(item) => Some(item),
                _ => None,
            });
            let (parts, elem): (Vec<Tensor>, Vec<Elem>) = items.map(|item| (item.x.clone(), item.elem)).unzip();
            stacked(&parts, 0, elem.first().copied().unwrap_or(Elem::F32), false)
        };
        (0..count).map(joined).collect()
    }

    fn scan_over(&self, call: &Call<'a>, names: &Names<'_>, inputs: &[Value]) -> Result<Vec<Value>> {
        let body = call.step.body("body")?;
        let scans = usize::try_from(call.int("num_scan_inputs", 0)?).unwrap_or(0);
        let states = match inputs.len().checked_sub(scans) {
            Some(states) if scans > 0 && body.outputs.len() >= states => states,
            _ => {
                return Err(Error::value(format!(
                    "{scans} of its {} inputs are scanned; expected 1 or more",
                    inputs.len()
                )));
            }
        };
        let outputs = body.outputs.len() - states;
        let settings = |name: &str, old: &str, count: usize| -> Result<Vec<i64>> {
            let given = if call.has(name) { call.ints(name)? } else { call.ints(old)? };
            let given = given.unwrap_or_else(|| vec![0; count]);
            match given.len() == count {
                true => Ok(given),
                false => Err(Error::value(format!("its `{name}` has {} numbers; expected {count}", given.len()))),
            }
        };
        let (axes, backward) =
            (settings("scan_input_axes", "", scans)?, settings("scan_input_directions", "directions", scans)?);
        let (out_axes, out_backward) =
            (settings("scan_output_axes", "", outputs)?, settings("scan_output_directions", "", outputs)?);
        let mut over = Vec::new();
        for (value, axis) in inputs[states..].iter().zip(&axes) {
            let Value::One(item) = value else { return Err(Error::value("a scanned input is not a tensor")) };
            over.push((item, axis_of(*axis, item.x.rank())?));
        }
        let len = over[0].0.x.shape()[over[0].1];
        if let Some((item, _)) = over.iter().find(|(item, axis)| item.x.shape()[*axis] != len) {
            return Err(Error::shape(format!("its scanned inputs have {len} elements and {:?}", item.x.shape())));
        }
        let mut carried = inputs[..states].to_vec();
        let mut scanned: Vec<Vec<Tensor>> = vec![vec![]; outputs];
        let mut elems = vec![Elem::F32; outputs];
        for round in 0..len {
            let mut given = std::mem::take(&mut carried);
            for ((item, axis), backward) in over.iter().zip(&backward) {
                let at = if *backward == 1 { len - 1 - round } else { round };
                given.push(Item { x: item.x.at(*axis as isize, at)?, ..(*item).clone() }.into());
            }
            let mut made = self.body(body, given, Some(names))?.into_iter();
            carried = made.by_ref().take(states).collect();
            for (index, value) in made.enumerate() {
                let Value::One(item) = value else {
                    return Err(Error::value("a scan output of its body is not a tensor"));
                };
                elems[index] = item.elem;
                scanned[index].push(item.x);
            }
        }
        let scanned = scanned.into_iter().enumerate().map(|(index, mut parts)| {
            if out_backward[index] == 1 {
                parts.reverse();
            }
            stacked(&parts, out_axes[index], elems[index], false)
        });
        carried.into_iter().map(Ok).chain(scanned).collect()
    }

    /// Runs a `SequenceMap`: once for each element of its sequences.
    pub(super) fn map(&self, call: &Call<'a>, names: &Names<'_>) -> Result<Vec<Value>> {
        let body = call.step.body("body")?;
        let Some(Value::Many(first)) = call.inputs.first() else {
            return Err(Error::value("input 0 is not a sequence"));
        };
        let mut made = vec![vec![]; body.outputs.len()];
        for index in 0..first.len() {
            let of = |value: &Value| match value {
                Value::Many(values) => {
                    values.get(index).cloned().ok_or_else(|| Error::value("its sequences differ in length"))
                }
                other => Ok(other.clone()),
            };
            let inputs = call.inputs.iter().map(of).collect::<Result<Vec<Value>>>()?;
            for (into, value) in made.iter_mut().zip(self.body(body, inputs, Some(names))?) {
                into.push(value);
            }
        }
        Ok(made.into_iter().map(Value::Many).collect())
    }
}

/// Joins the results of the rounds of a loop along a new axis.
fn stacked(parts: &[Tensor], axis: i64, elem: Elem, known: bool) -> Result<Value> {
    let Some(first) = parts.first() else {
        return Err(Error::unsupported("a loop that runs not once has no shape for its scan outputs"));
    };
    let axis = axis_of(axis, first.rank() + 1)? as isize;
    let parts: Vec<&Tensor> = parts.iter().collect();
    let x = if known { hidden(|| Tensor::stack(&parts, axis))? } else { Tensor::stack(&parts, axis)? };
    Ok(Item { x, elem, known }.into())
}
