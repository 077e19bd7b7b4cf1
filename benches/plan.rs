//! Time of plan and apply on trees of thousands of cells: `cargo bench --bench plan`.

use std::{hint::black_box, time::Instant};

use precast::{policy::Rule, policy::RunAs, prelude::*};

/// Builds `cells` cells below a root: blocks of a container with three leaves, one of them on the full list.
fn net(cells: usize) -> Child {
    let mut rng = Rng::seed(1);
    let block = |rng: &mut Rng| -> Child {
        Sequential::new(vec![Dense::new(2, 2, rng).into(), LayerNorm::new(&[2]).into(), ReLU.into()]).into()
    };
    Sequential::new((0..cells / 4).map(|_| block(&mut rng)).collect()).into()
}

fn main() -> Result<()> {
    let plain = Policy::new(Level::O2, DType::F16)?;
    let with_rules = plain.clone().rule(Rule::path("**.1", RunAs::Inherit)?)?.rule(Rule::kind("Dense", RunAs::Full))?;
    for cells in [5_000, 10_000] {
        let mut tree = net(cells);
        for (name, policy) in [("O2", &plain), ("O2 and two rules", &with_rules)] {
            let mut times = Vec::new();
            for _ in 0..101 {
                let start = Instant::now();
                black_box(policy.apply(&mut tree)?.changed);
                times.push(start.elapsed());
            }
            times.sort();
            println!("plan and apply, {cells} cells, {name}: {:.2?}", times[times.len() / 2]);
        }
    }
    Ok(())
}
