//! Sums of products in Einstein notation.

use crate::{
    Op, Tensor,
    error::{Error, Result},
    ops::{
        call, composed::composed, elementwise::pairwise::broadcast_shape, one_float_dtype,
        spatial::windows::checked_shape,
    },
};

/// Label of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Label {
    /// An axis of the ellipsis, counted from its last. Axes further left come first.
    Ellipsis(std::cmp::Reverse<usize>),
    Letter(char),
}

/// Labels of one operand's axes as written: letters, and the position of `...` among them.
#[derive(Default)]
struct Subscript {
    letters: Vec<char>,
    ellipsis: Option<usize>,
}

impl Subscript {
    /// Returns the labels of the axes if the ellipsis covers `hidden` axes.
    fn labels(&self, hidden: usize) -> Vec<Label> {
        let mut labels: Vec<Label> = self.letters.iter().copied().map(Label::Letter).collect();
        if let Some(at) = self.ellipsis {
            let axes = (0..hidden).rev().map(|i| Label::Ellipsis(std::cmp::Reverse(i)));
            labels.splice(at..at, axes);
        }
        labels
    }
}

/// An equation, axis by axis.
struct Plan {
    operands: Vec<Vec<Label>>,
    output: Vec<Label>,
}

/// Parses an equation into its operands and the output after the arrow, if there is one.
fn parse(equation: &str) -> Result<(Vec<Subscript>, Option<Subscript>)> {
    let wrong = |at: usize, what: &str| {
        Error::value(format!(
            "{what} at position {at} of `{equation}`; an equation is like `bij,bjk->bik` or `...ij->...ji`"
        ))
    };
    let mut operands = vec![Subscript::default()];
    let mut output: Option<Subscript> = None;
    let mut rest = equation.chars().enumerate().filter(|(_, c)| !c.is_whitespace()).peekable();
    while let Some((at, c)) = rest.next() {
        let last = operands.last_mut().expect("there is one from the start");
        let part = output.as_mut().unwrap_or(last);
        let mut follows = |wanted: char| rest.next_if(|&(_, c)| c == wanted).is_some();
        match c {
            'a'..='z' | 'A'..='Z' => part.letters.push(c),
            '.' if part.ellipsis.is_some() => return Err(wrong(at, "a second `...` of one operand")),
            '.' if follows('.') && follows('.') => part.ellipsis = Some(part.letters.len()),
            '-' if output.is_none() && follows('>') => output = Some(Subscript::default()),
            ',' if output.is_none() => operands.push(Subscript::default()),
            c => return Err(wrong(at, &format!("`{c}` is out of place"))),
        }
    }
    if let Some(output) = &output {
        for (i, c) in output.letters.iter().enumerate() {
            if output.letters[..i].contains(c) {
                return Err(Error::value(format!("`{c}` appears twice in the output of `{equation}`")));
            }
            if !operands.iter().any(|operand| operand.letters.contains(c)) {
                return Err(Error::value(format!("`{c}` of the output of `{equation}` is in no operand")));
            }
        }
    }
    Ok((operands, output))
}

impl Plan {
    fn new(equation: &str, shapes: &[&[usize]]) -> Result<Plan> {
        let (operands, output) = parse(equation)?;
        if operands.len() != shapes.len() {
            let (named, given) = (operands.len(), shapes.len());
            return Err(Error::value(format!("`{equation}` names {named} operands, {given} are given")));
        }
        let mut labelled = Vec::new();
        for (operand, shape) in operands.iter().zip(shapes) {
            let letters = operand.letters.len();
            let fits = if operand.ellipsis.is_some() { letters <= shape.len() } else { letters == shape.len() };
            if !fits {
                let message = format!("`{equation}` names {letters} axes of an operand of the shape {shape:?}");
                return Err(Error::shape(message));
            }
            labelled.push(operand.labels(shape.len() - letters));
        }
        let hidden = operands.iter().zip(shapes).filter(|(operand, _)| operand.ellipsis.is_some());
        let hidden = hidden.map(|(operand, shape)| shape.len() - operand.letters.len()).max().unwrap_or(0);
        let output = match output {
            Some(output) if output.ellipsis.is_none() && hidden > 0 => {
                let message = format!("the `...` of `{equation}` represents {hidden} axes; the output needs it, too");
                return Err(Error::value(message));
            }
            Some(output) => output.labels(hidden),
            // The ellipsis, followed by the letters that occur once, sorted.
            None => {
                let all = || operands.iter().flat_map(|operand| operand.letters.iter().copied());
                let mut once: Vec<char> = all().filter(|&c| all().filter(|&other| other == c).count() == 1).collect();
                once.sort_unstable();
                Subscript { letters: once, ellipsis: Some(0) }.labels(hidden)
            }
        };
        let plan = Plan { operands: labelled, output };
        plan.check_lengths(equation, shapes)?;
        Ok(plan)
    }

    /// Checks that axes with the same letter have equal lengths. Those of the ellipsis broadcast.
    fn check_lengths(&self, equation: &str, shapes: &[&[usize]]) -> Result<()> {
        let mut met: Vec<(Label, usize)> = Vec::new();
        for (&label, &len) in self.operands.iter().flatten().zip(shapes.iter().copied().flatten()) {
            match (met.iter_mut().find(|(other, _)| *other == label), label) {
                (None, _) => met.push((label, len)),
                (Some((_, other)), Label::Ellipsis(_)) if len == 1 || *other == 1 => *other *= len,
                (Some((_, other)), _) if *other == len => {}
                (Some((_, other)), Label::Letter(c)) => {
                    return Err(Error::shape(format!("`{c}` of `{equation}` is {other} long and {len} long")));
                }
                (Some((_, other)), Label::Ellipsis(_)) => {
                    let message = format!("axes of the `...` of `{equation}` are {other} and {len} long");
                    return Err(Error::shape(message));
                }
            }
        }
        Ok(())
    }

    fn run(&self, inputs: &[Tensor]) -> Result<Tensor> {
        let operands = inputs.iter().zip(&self.operands).map(|(x, labels)| Operand::new(x, labels));
        let operands: Vec<Operand> = operands.collect::<Result<_>>()?;
        let mut product: Option<Operand> = None;
        for (i, operand) in operands.into_iter().enumerate() {
            let later = &self.operands[i + 1..];
            let kept = |label: &Label| self.output.contains(label) || later.iter().any(|labels| labels.contains(label));
            product = Some(match product {
                None => operand.summed_unless(|label| kept(label)),
                Some(product) => product.times(operand, kept),
            }?);
        }
        let product = product.ok_or_else(|| Error::value("there are no operands"))?;
        product.as_order(&self.output)
    }
}

/// A tensor whose axes have distinct labels.
struct Operand {
    x: Tensor,
    labels: Vec<Label>,
}

impl Operand {
    /// Creates an operand, taking the diagonal of axes with the same label.
    fn new(x: &Tensor, labels: &[Label]) -> Result<Operand> {
        let (mut x, mut labels) = (x.clone(), labels.to_vec());
        while let Some((first, second)) = twice(&labels) {
            let others = (0..labels.len()).filter(|&i| i != first && i != second);
            let order: Vec<usize> = [first, second].into_iter().chain(others).collect();
            x = x.permute(&order)?;
            let (len, rest) = (x.shape()[0], x.shape()[2..].to_vec());
            let diagonal: Vec<i64> = (0..len).map(|i| (i * (len + 1)) as i64).collect();
            x = reshaped(&x, &[&[len * len], &rest[..]].concat())?;
            x = x.index_select(0, &Tensor::from_vec(diagonal, &[len])?)?;
            labels = order.iter().map(|&i| labels[i]).collect();
            labels.remove(1);
        }
        Ok(Operand { x, labels })
    }

    /// Sums over the axes that are not kept.
    fn summed_unless(self, kept: impl Fn(&Label) -> bool) -> Result<Operand> {
        let gone: Vec<isize> = (0..self.labels.len()).filter(|&i| !kept(&self.labels[i])).map(|i| i as isize).collect();
        if gone.is_empty() {
            return Ok(self);
        }
        Ok(Operand { x: self.x.sum(&gone, false)?, labels: self.labels.into_iter().filter(kept).collect() })
    }

    /// Arranges the axes in this order, which contains every label of the operand once.
    fn as_order(&self, order: &[Label]) -> Result<Tensor> {
        let place = |label| self.labels.iter().position(|other| other == label);
        self.x.permute(&order.iter().filter_map(place).collect::<Vec<_>>())
    }

    /// Returns the lengths of the axes with these labels.
    fn lengths(&self, labels: &[Label]) -> Vec<usize> {
        let axes = self.labels.iter().zip(self.x.shape());
        labels
            .iter()
            .flat_map(|label| axes.clone().filter(move |(other, _)| *other == label))
            .map(|(_, &len)| len)
            .collect()
    }

    /// Multiplies two operands, summing over the labels that are not kept.
    fn times(self, other: Operand, kept: impl Fn(&Label) -> bool) -> Result<Operand> {
        let a = self.summed_unless(|label| kept(label) || other.labels.contains(label))?;
        let b = other.summed_unless(|label| kept(label) || a.labels.contains(label))?;
        let of = |x: &Operand, wanted: &dyn Fn(&Label) -> bool| -> Vec<Label> {
            x.labels.iter().copied().filter(wanted).collect()
        };
        let shared = |label: &Label| b.labels.contains(label);
        let batch = of(&a, &|label| shared(label) && kept(label));
        let inner = of(&a, &|label| shared(label) && !kept(label));
        let rows = of(&a, &|label| !shared(label));
        let columns = of(&b, &|label| !a.labels.contains(label));

        let [m, n] = [a.lengths(&rows), b.lengths(&columns)];
        let k: usize = a.lengths(&inner).iter().product();
        let count = |lengths: &[usize]| lengths.iter().product::<usize>();
        let stretched = broadcast_shape(&a.lengths(&batch), &b.lengths(&batch))?;
        let shape = checked_shape([&stretched[..], &m, &n].concat())?;
        let left = a.as_order(&[&batch[..], &rows, &inner].concat())?;
        let right = b.as_order(&[&batch[..], &inner, &columns].concat())?;
        let left = reshaped(&left, &[&a.lengths(&batch)[..], &[count(&m), k]].concat())?;
        let right = reshaped(&right, &[&b.lengths(&batch)[..], &[k, count(&n)]].concat())?;
        // Without a sum it is not a matrix product, but a column times a row, element by element.
        let product = if inner.is_empty() { left.mul(&right)? } else { left.matmul_ext(&right)? };
        Ok(Operand { x: reshaped(&product, &shape)?, labels: [batch, rows, columns].concat() })
    }
}

/// Returns two positions with the same label.
fn twice(labels: &[Label]) -> Option<(usize, usize)> {
    (0..labels.len()).find_map(|i| Some((labels[..i].iter().position(|label| *label == labels[i])?, i)))
}

fn reshaped(x: &Tensor, shape: &[usize]) -> Result<Tensor> {
    x.reshape(shape)
}

impl Tensor {
    /// Computes products of tensors in Einstein notation: `einsum("bij,bjk->bik", &[&a, &b])` multiplies batches of
    /// matrices.
    ///
    /// Letters label the axes of each operand. Axes with the same letter are iterated together, and letters missing
    /// from the output are summed over. A letter repeated within an operand takes its diagonal. `...` covers the
    /// unlabeled axes, which broadcast. Without `->` the output is the ellipsis followed by the letters that occur
    /// once, sorted.
    ///
    /// Everything is computed in f32, from left to right, and rounded once.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) when the equation is invalid,
    /// [`ErrorKind::Shape`](crate::ErrorKind::Shape) when the operands do not match it,
    /// [`ErrorKind::DType`](crate::ErrorKind::DType) when dtypes differ and no policy casts them.
    ///
    /// ```
    /// # use precast_tensor as precast;
    /// # use precast::Tensor;
    /// let x = Tensor::from_vec(vec![1f32, 2., 3., 4.], &[2, 2])?;
    /// assert_eq!(Tensor::einsum("ii", &[&x])?.item()?, 5.0);
    /// assert_eq!(Tensor::einsum("ij,j->i", &[&x, &x.at(0, 0)?])?.to_f64(), [5., 11.]);
    /// # Ok::<(), precast::Error>(())
    /// ```
    pub fn einsum(equation: &str, operands: &[&Tensor]) -> Result<Tensor> {
        composed(call!(Op::Einsum, operands; equation), |inputs| {
            if inputs.is_empty() {
                return Err(Error::shape("needs at least one tensor"));
            }
            one_float_dtype(inputs)?;
            let shapes: Vec<&[usize]> = inputs.iter().map(Tensor::shape).collect();
            let plan = Plan::new(equation, &shapes)?;
            Ok(move |inputs: &[Tensor]| plan.run(inputs))
        })
    }
}
