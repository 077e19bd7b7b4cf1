//! Planted search problems: the search must find the most cells that can be lowered, in few runs.

use precast::{
    policy::{Rule, RunAs},
    prelude::*,
};
use precast_diagnose::tune::{Metric, Tune, Tuned};
use serde_json::Value;

use super::{
    cases::{Case, number, plain},
    read,
};

fn texts(value: &Value) -> Vec<String> {
    value.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_string()).collect()
}

/// Runs the search of a case. At its level, only cells with a rule are low.
fn found(case: &Case<'_>) -> Result<Tuned> {
    let mut net = case.net();
    let cells = texts(&case.0["search"]["cells"]);
    let mut policy = Policy::new(Level::O1, case.low())?;
    for cell in net.outline().cells() {
        if cells.contains(&plain(&cell.path)) {
            policy = policy.rule(Rule::path(&cell.path, RunAs::Low)?)?;
        }
    }
    let budget = number(&case.0["search"]["tau"]);
    Tune::new(&policy, Metric::Relative, budget).run(&mut net, &[case.input(0)])
}

/// Returns the error of a policy on the batch of a case, computed apart from the search.
fn error_of(case: &Case<'_>, policy: &Policy) -> Result<f64> {
    let mut net = case.net();
    let exact = net.call(&case.input(0))?.to_f64();
    policy.apply(&mut net)?;
    let low = net.call(&case.input(0))?.to_f64();
    let norm = |numbers: &mut dyn Iterator<Item = f64>| numbers.map(|x| x * x).sum::<f64>().sqrt();
    Ok(norm(&mut low.iter().zip(&exact).map(|(low, exact)| low - exact)) / norm(&mut exact.iter().copied()))
}

#[test]
fn planted_fragile_cells_are_found() {
    let (mut optima, mut planted, mut most, mut over) = (0, 0, 0, 0);
    let mut graded = (0, 0);
    let mut late = Vec::new();
    for value in read("search.jsonl") {
        let case = Case(&value);
        let search = &value["search"];
        let tuned = found(&case).unwrap();
        let mut cells: Vec<String> = tuned.cells.iter().map(|cell| plain(&cell.path)).collect();
        let mut wanted = texts(&search["cells"]);
        cells.sort();
        wanted.sort();
        assert_eq!(cells, wanted, "{}: the cells that can be lowered", case.id());
        let error = error_of(&case, &tuned.policy).unwrap();
        let budget = number(&search["tau"]);
        assert!((error - tuned.error).abs() <= 1e-9 + 1e-6 * error, "{}: {error} is not {}", case.id(), tuned.error);
        over += usize::from(error.is_nan() || error > budget);
        let (low, runs) = (tuned.lowered(), tuned.runs.len());
        most = most.max(runs);
        let optimum = search["optimum_size"].as_u64().unwrap() as usize;
        if value["family"] == "graded" {
            graded = (graded.0 + low, graded.1 + optimum);
            println!("{}: {low} of {optimum} in {runs} runs", case.id());
            continue;
        }
        planted += 1;
        let fragile = texts(&search["fragile"]);
        let kept: Vec<String> = tuned.cells.iter().filter(|cell| !cell.low).map(|cell| plain(&cell.path)).collect();
        let exact = kept.len() == fragile.len() && fragile.iter().all(|cell| kept.contains(cell));
        optima += usize::from(exact);
        let log = wanted.len().next_power_of_two().ilog2() as usize;
        let bound = fragile.len() * (log + 1) + 2;
        let bound = if fragile.len() == 1 { bound.min(2 * log + 4) } else { bound };
        if !exact || runs > bound {
            late.push(format!("{}: kept {kept:?} instead of {fragile:?}, {runs} of {bound} runs", case.id()));
        }
        println!("{}: kept {kept:?}, fragile {fragile:?}, {runs} of {bound} runs", case.id());
    }
    println!("trust search: {optima} of {planted} optima, {most} most runs, {over} over budget");
    println!("graded: {} of {} cells lowered", graded.0, graded.1);
    assert!(late.is_empty(), "{late:#?}");
    assert_eq!((optima, over), (planted, 0));
    assert!(graded.0 as f64 >= 0.97 * graded.1 as f64, "{graded:?}");
}

/// A rule for all cells keeps a cell of the full list as well, which the set that was run rounds nowhere.
#[test]
fn a_cell_that_is_named_low_is_low_in_the_policy_as_it_is_read() {
    let rng = &mut Rng::seed(2);
    let mut net = Child::new(sequential![
        Dense::new(6, 16, rng),
        LayerNorm::new(&[16]),
        GELU::default(),
        Dropout::new(0.1, rng),
        Dense::new(16, 16, rng),
        GELU::default(),
        Dense::new(16, 3, rng),
    ]);
    let x = Tensor::randn(&[64, 6], rng).unwrap();
    let policy = Policy::new(Level::O2, DType::Bf16).unwrap();
    let (mut named, mut kept) = (0, 0);
    for budget in [2e-4, 5e-4, 1e-3, 2e-3, 4e-3, 1.0] {
        let Ok(tuned) = Tune::new(&policy, Metric::Relative, budget).run(&mut net, std::slice::from_ref(&x)) else {
            continue;
        };
        let read = Policy::parse(&tuned.to_yaml().unwrap(), "tuned.yaml").unwrap();
        let plan = read.plan(&net).unwrap();
        for cell in &tuned.cells {
            let decision = plan.decision(&cell.path).unwrap();
            let cast = decision.adapter.as_ref().and_then(|adapter| adapter.cast());
            let rounds = decision.run.lowers() || cast.is_some_and(|cast| cast.outward.is_low());
            assert_eq!(
                cell.low,
                rounds,
                "budget {budget}, `{}`: {decision:?}\n{}",
                cell.path,
                tuned.to_yaml().unwrap()
            );
            if cell.low { named += 1 } else { kept += 1 }
        }
    }
    assert!(named > 8 && kept > 8, "{named} low, {kept} kept");
}
