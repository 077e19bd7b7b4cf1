//! A slot does not deref to its cell, so that its adapter is not bypassed.

use precast::prelude::*;

fn main() {
    let fc = Child::new(Dense::new(2, 2, &mut Rng::seed(1)));
    let x = Tensor::ones(&[1, 2], DType::F32);
    let _ = fc.forward(&x);
    let _ = fc.cell().forward(&x);
    let _ = fc.erase().slot().cell.forward_many(&[x]);
}
