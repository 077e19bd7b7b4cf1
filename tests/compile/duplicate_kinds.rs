//! Two types of the same kind: a file could not distinguish them. This is refused before any file names the kind.

use precast::{ErrorKind, io::models, prelude::*};

mod first {
    use precast::prelude::*;

    #[derive(Cell, Debug, Serialize, Deserialize)]
    #[cell(saved)]
    pub struct Head;
    impl Forward for Head {}
}

mod second {
    use precast::prelude::*;

    #[derive(Cell, Debug, Serialize, Deserialize)]
    #[cell(saved, kind = "Head")]
    pub struct Tail;
    impl Forward for Tail {}
}

#[test]
fn duplicate_kinds_are_refused_with_both_types() {
    let errors = [
        models::to_yaml(&Child::of(ReLU)).unwrap_err(),
        models::parse("version: 1\nnet: {kind: ReLU}\n", "net.yaml", 0).unwrap_err(),
        precast::layers::kinds().unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::Model);
        let (error, file) = (error.to_string(), file!());
        assert!(error.contains("have the kind `Head`"), "{error}");
        assert!(error.contains(&format!("compile::duplicate_kinds::first::Head ({file}:")), "{error}");
        assert!(error.contains(&format!("compile::duplicate_kinds::second::Tail ({file}:")), "{error}");
    }
    // In memory they do no harm.
    let net = Child::of(sequential![first::Head, second::Tail]);
    assert_eq!(net.at("1", |slot| slot.cell.kind()).unwrap(), "Head");
}
