//! The kinds that files can name, and that each reads back as it was written.

use precast::{models, prelude::*};

/// One network with a cell of every kind, each with options that differ from the defaults.
const EVERY_KIND: &[&str] = &[
    "{kind: CellList, cells: [{kind: Tanh}]}",
    "{kind: Dense, in_features: 3, out_features: 2, bias: false}",
    "{kind: ReLU}",
    "{kind: Sequential, cells: [{kind: ReLU}, {kind: Sequential, cells: []}]}",
    "{kind: Sigmoid}",
    "{kind: Tanh}",
];

fn read(net: &str) -> Child {
    models::parse(&format!("version: 1\nnet: {net}\n"), "test.yaml", 7).unwrap_or_else(|e| panic!("{net}: {e}"))
}

#[test]
fn every_kind_is_registered_once_and_covered_here() {
    let covered: Vec<&str> = EVERY_KIND.iter().map(|net| read(net).slot().cell.kind()).collect();
    assert_eq!(precast::cells::kinds(), covered);
}

#[test]
fn every_kind_reads_back_as_written() {
    for net in EVERY_KIND {
        let cell = read(net);
        let text = models::to_yaml(&cell).unwrap();
        let again = models::parse(&text, "again.yaml", 7).unwrap_or_else(|e| panic!("{text}\n{e}"));
        assert_eq!(models::to_yaml(&again).unwrap(), text);
        assert_eq!(format!("{again:?}"), format!("{cell:?}"), "{text}");
        // The same seed gives the same weights.
        let values = |net: &Child| net.named_params().iter().map(|(_, p)| p.value().to_f64()).collect::<Vec<_>>();
        assert_eq!(values(&again), values(&cell), "{text}");
    }
}

#[test]
fn every_kind_refuses_a_key_it_does_not_know() {
    for net in EVERY_KIND {
        let wrong = format!("{}, nonsense: 1}}", &net[..net.len() - 1]);
        let error = models::parse(&format!("version: 1\nnet: {wrong}\n"), "test.yaml", 7).unwrap_err().to_string();
        assert!(error.starts_with("test.yaml:2:") && error.contains("`nonsense`"), "{wrong}: {error}");
    }
}
