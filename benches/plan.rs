//! Time of plan and apply on trees of thousands of cells: `cargo bench --bench plan`.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use precast::{policy::Rule, policy::RunAs, prelude::*};

/// Builds `cells` cells below a root: blocks of a container with three leaves, one of them on the full list.
fn net(cells: usize) -> Child {
    let mut rng = Rng::seed(1);
    let block = |rng: &mut Rng| -> Child {
        Sequential::new(vec![Dense::new(2, 2, rng).into(), LayerNorm::new(&[2]).into(), ReLU.into()]).into()
    };
    Sequential::new((0..cells / 4).map(|_| block(&mut rng)).collect()).into()
}

fn plan_and_apply(c: &mut Criterion) {
    for cells in [5_000, 10_000] {
        let plain = Policy::new(Level::O2, DType::F16).unwrap();
        let with_rules = plain
            .clone()
            .rule(Rule::path("**.1", RunAs::Inherit).unwrap())
            .and_then(|policy| policy.rule(Rule::kind("Dense", RunAs::Full)))
            .unwrap();
        let mut tree = net(cells);
        for (name, policy) in [("O2", &plain), ("O2 and two rules", &with_rules)] {
            c.bench_function(&format!("plan and apply, {cells} cells, {name}"), |b| {
                b.iter(|| black_box(policy.apply(&mut tree).unwrap().changed));
            });
        }
    }
}

criterion_group!(benches, plan_and_apply);
criterion_main!(benches);
