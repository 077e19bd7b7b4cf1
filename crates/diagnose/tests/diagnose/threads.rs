//! Ops on threads of a network's own, as a [`Monitor`] of the step sees them.

use std::thread;

use precast::{Cell, Forward, precision, prelude::*};
use precast_diagnose::Monitor;

/// Runs a cell on another thread, with the precision of this one or without it.
#[derive(Cell, Debug)]
struct Elsewhere {
    inner: Child,
    carries: bool,
}

impl Forward for Elsewhere {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let carried = self.carries.then(precision::carry);
        thread::scope(|threads| {
            let run = || match &carried {
                Some(carried) => carried.run(|| self.inner.call(x)?.tanh()),
                None => self.inner.call(x)?.tanh(),
            };
            threads.spawn(run).join().expect("does not panic")
        })
    }
}

/// Watches steps with inputs whose sums in the first layer are beyond the dtype in the third step.
fn watched(carries: bool) -> (Monitor, Child) {
    let rng = &mut Rng::seed(1);
    let inner: Child = Dense::new(4, 64, rng).into();
    let large = if carries { 65000.0 } else { 3.4e38 };
    let sums = inner.call(&Tensor::full(&[1, 4], large, DType::F32)).unwrap().to_f64();
    assert!(sums.iter().any(|x| x.abs() > if carries { 65504.0 } else { 3.41e38 }));
    let mut net: Child = sequential![Elsewhere { inner, carries }, Dense::new(64, 1, rng)].into();
    if carries {
        auto_mixed_precision(&mut net, Level::O3, DType::F16).unwrap();
    }
    let mut monitor = Monitor::default();
    for size in [1.0, 1.0, large] {
        let x = Tensor::full(&[1, 4], size, DType::F32);
        monitor.watch(&net, |net| net.call(&x)).unwrap();
    }
    (monitor, net)
}

#[test]
fn a_monitor_sees_threads_into_which_the_precision_is_carried() {
    let (monitor, net) = watched(true);
    // `tanh` makes finite numbers of it, so nothing on this thread is infinite.
    let fault = monitor.fault().expect("an infinity on the other thread");
    assert_eq!((fault.edge.cell.as_str(), fault.edge.good_inputs), ("0.inner", true), "{fault}");
    // The ring has the results of this thread alone, whose order is the same in each step; the first one also casts
    // parameters.
    let peaks = monitor.peaks(&net);
    assert!(peaks.iter().all(|peaks| peaks.peaks.len() == 2 && peaks.cell != "0.inner"), "{peaks:?}");
}

#[test]
fn a_monitor_sees_nothing_of_other_threads() {
    assert!(watched(false).0.fault().is_none());
}
