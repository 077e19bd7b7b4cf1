//! `cargo xtask packs`: the op lists of `torch.autocast` in the wheels of torch on PyPI, compared with the changes that pins know.

use crate::shell::{self, Result, check_words, python};

/// One-line description.
pub const ABOUT: &str = "the op lists of torch.autocast in the wheels of six versions, and the changes that pins know";

pub fn run(words: &[String]) -> Result {
    check_words(words, &[])?;
    shell::run(&python(), &["tools/peers/torch_lists.py"], &[])
}
