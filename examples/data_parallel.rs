// One network trained by several processes, with the same bits for any number of them: compare the last lines of
//
// cargo build --release --example data_parallel
// target/release/examples/data_parallel
// mpirun -n 4 target/release/examples/data_parallel

use precast::prelude::*;
use precast_mpi::{Ranks, Wire};
use precast_train::{DataParallel, data, data::Batch};

const SHARDS: usize = 8; // the most processes that can share a step

fn main() -> Result<()> {
    let ranks = Ranks::of_launcher().map_err(Error::ranks)?;
    ranks.abort_on_panic();
    let trained = train(&ranks);
    // Words and an exit status for the launcher, which ends the other processes.
    ranks.or_abort(trained)?;
    ranks.finish().map_err(Error::ranks)
}

fn train(ranks: &Ranks) -> Result<()> {
    let rng = &mut Rng::seed(1);
    let mut net = Child::new(sequential![
        Conv2d::new(1, 8, 3, rng),
        BatchNorm2d::new(8),
        ReLU,
        Dropout::new(0.1, rng),
        Flatten::default(),
        Dense::new(8 * 36, 10, rng)
    ]);
    let policy = Policy::new(Level::O2, DType::F16)?;
    policy.apply(&mut net)?;
    let (mut optimizer, mut scale) = (Adam::new(net.params(), 2e-3), policy.loss_scale()?);
    let mut parallel = DataParallel::new(ranks, SHARDS, Wire::Float32)?;
    parallel.begin(&mut net, &mut [&mut optimizer], &mut scale)?;

    let loss = |net: &Child<Sequential>, shard: &Batch| net.call(&shard.x)?.cross_entropy(&shard.y);
    for epoch in 0..2 {
        net.set_train(true);
        for batch in data::digits()?.shuffled_batches(128, 1, epoch)? {
            if let Outcome::Skipped { cause } = parallel.step(&net, &mut optimizer, &mut scale, &batch, loss)? {
                println!("rank {} of {} skipped a step: {cause}", ranks.rank(), ranks.size());
            }
        }
        net.set_train(false);
    }
    if ranks.rank() == 0 {
        let accuracy = precast_train::accuracy(&net, &data::digits()?, 256)?;
        let bytes = Checkpoint::of(&net, &[&optimizer], &scale).to_bytes()?;
        let sum = bytes.iter().fold(0u32, |sum, byte| sum.wrapping_mul(31).wrapping_add((*byte).into()));
        println!("accuracy {:.1} %, weights and optimizer {sum:08x}", 100.0 * accuracy);
    }
    Ok(())
}
