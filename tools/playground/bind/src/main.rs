//! `bind LIBRARY.wasm FOLDER`: writes a library with the JavaScript that loads it.

use wasm_bindgen_cli_support::Bindgen;

fn main() {
    let mut words = std::env::args().skip(1);
    let (Some(library), Some(folder)) = (words.next(), words.next()) else {
        eprintln!("usage: bind LIBRARY.wasm FOLDER");
        std::process::exit(2);
    };
    let mut bind = Bindgen::new();
    bind.input_path(library).typescript(false).remove_name_section(true).remove_producers_section(true);
    let bound = bind.omit_default_module_path(false).web(true).and_then(|bind| bind.generate(folder));
    if let Err(error) = bound {
        eprintln!("{error:?}");
        std::process::exit(1);
    }
}
