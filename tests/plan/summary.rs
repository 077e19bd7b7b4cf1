//! The sizes of cells: parameters, bytes, shapes and multiply-adds by closed forms.

use precast::{plan::CellSummary, prelude::*, sequential};

fn cell<'a>(cells: &'a [CellSummary], path: &str) -> &'a CellSummary {
    cells.iter().find(|cell| cell.path == path).unwrap()
}

#[test]
fn sizes_are_those_of_the_closed_forms() -> Result<()> {
    let rng = &mut Rng::seed(1);
    let net = Child::of(sequential![
        Conv2d::new(3, 8, 3, rng),
        BatchNorm2d::new(8),
        ReLU,
        Flatten::default(),
        Dense::new(8 * 4 * 4, 5, rng),
    ]);
    let x = Tensor::ones(&[2, 3, 6, 6], DType::F32);
    let (called, trace) = net.trace(|net| net.call(&x));
    let out = called?.shape().to_vec();
    let plan = Policy::new("O2", DType::F16)?.plan(&net)?;
    let summary = net.summary(&plan, Some(&trace))?;
    assert_eq!(summary.cells.iter().map(|cell| cell.path.as_str()).collect::<Vec<_>>(), ["", "0", "1", "2", "3", "4"]);
    let of = |path| cell(&summary.cells, path);
    assert_eq!((of("").outputs.as_slice(), of("").parameters), (&[out][..], 0));
    let side = of("0").outputs[0][2];
    assert_eq!(of("0").parameters, 8 * 3 * 9 + 8);
    assert_eq!(of("0").multiply_adds, Some((2 * 8 * side * side * 3 * 9) as u64));
    // A batch norm stays f32 at O2, its running statistics are not trained.
    assert_eq!((of("1").parameters, of("1").bytes, of("1").dtype), (16, 64, DType::F32));
    assert_eq!((of("2").parameters, of("2").multiply_adds, of("2").calls), (0, Some(0), 1));
    let dense = (8 * 16 * 5 + 5) as u64;
    assert_eq!((of("4").parameters, of("4").bytes, of("4").dtype), (dense, 2 * dense, DType::F16));
    assert_eq!(of("4").multiply_adds, Some(2 * 8 * 16 * 5));
    let trained: usize =
        net.named_params().iter().filter(|(_, param)| param.is_trained()).map(|(_, p)| p.value().len()).sum();
    assert_eq!(summary.parameters as usize, trained);
    assert_eq!(summary.bytes, summary.cells.iter().map(|cell| cell.bytes).sum::<u64>());
    assert_eq!(summary.multiply_adds, Some(of("0").multiply_adds.unwrap() + 2 * 8 * 16 * 5));
    let shown = summary.to_string();
    assert!(shown.contains("| output ") && shown.lines().last().unwrap().starts_with("| total "), "{shown}");
    Ok(())
}

#[test]
fn shared_parameters_and_repeated_calls_are_counted_as_such() -> Result<()> {
    #[derive(Cell, Debug)]
    struct Twice {
        first: Child<Dense>,
        second: Child<Dense>,
    }
    impl Forward for Twice {
        fn forward(&self, x: &Tensor) -> Result<Tensor> {
            self.second.call(&self.first.call(&self.first.call(x)?)?)
        }
    }
    let first = Dense::new(4, 4, &mut Rng::seed(1));
    let second = first.clone();
    let net = Child::new(Twice { first: first.into(), second: second.into() });
    let x = Tensor::ones(&[3, 4], DType::F32);
    let (called, trace) = net.trace(|net| net.call(&x));
    called?;
    let plan = Policy::new("O0", DType::F16)?.plan(&net)?;
    let summary = net.summary(&plan, Some(&trace))?;
    let [first, second] = ["first", "second"].map(|path| cell(&summary.cells, path));
    assert_eq!((first.parameters, second.parameters), (20, 0));
    assert_eq!((first.calls, second.calls), (2, 1));
    assert_eq!((first.multiply_adds, second.multiply_adds), (Some(2 * 3 * 16), Some(3 * 16)));
    assert!(summary.to_string().contains("2 × [3, 4]"), "{summary}");
    // Without a call neither shapes nor multiply-adds are known, and their columns are missing.
    let without = net.summary(&plan, None)?;
    assert_eq!((without.multiply_adds, without.parameters), (None, summary.parameters));
    assert!(!without.to_string().contains("multiply-adds") && !without.to_string().contains("output"), "{without}");
    Ok(())
}

#[test]
fn frozen_parameters_are_counted_apart() -> Result<()> {
    let rng = &mut Rng::seed(1);
    let net = Child::of(sequential![Dense::new(4, 8, rng), Dense::new(8, 2, rng), BatchNorm1d::new(2)]);
    let plan = Policy::new("O2", DType::F16)?.plan(&net)?;
    let all = net.summary(&plan, None)?;
    net.freeze("0")?;
    net.freeze("1.weight")?;
    let summary = net.summary(&plan, None)?;
    // 4 * 8 + 8 and 8 * 2 frozen; 2 and 2 * 2 trained.
    assert_eq!((summary.parameters, summary.trained), (40 + 18 + 4, 2 + 4));
    assert_eq!((all.parameters, all.trained, all.bytes), (summary.parameters, 62, summary.bytes));
    let shown = summary.to_string();
    for words in [" 40, frozen |", "18, 2 trained |", "62, 6 trained |"] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    assert!(!all.to_string().contains("trained"), "{all}");
    Ok(())
}

#[test]
fn plans_and_traces_of_other_networks_are_refused() -> Result<()> {
    let rng = &mut Rng::seed(1);
    let (small, large) = (Child::of(sequential![ReLU]), Child::of(sequential![ReLU, Dense::new(4, 2, rng)]));
    let plan = |net: &Child| Policy::new("O2", DType::F16).and_then(|policy| policy.plan(net));
    let error = large.summary(&plan(&small)?, None).unwrap_err().to_string();
    assert!(error.starts_with("the plan is of another network: "), "{error}");
    let (called, trace) = large.trace(|net| net.call(&Tensor::ones(&[1, 4], DType::F32)));
    called?;
    let error = small.summary(&plan(&small)?, Some(&trace)).unwrap_err().to_string();
    assert!(error.starts_with("the trace is of another network: "), "{error}");
    let error = small.summary(&plan(&small)?, Some(&Default::default())).unwrap_err().to_string();
    assert!(error.starts_with("the trace has no call of a cell"), "{error}");
    Ok(())
}
