//! A guide: one page for each task. Every example in it is compiled and run by the tests.

macro_rules! pages {
    ($($page:ident $file:literal;)*) => { $(
        #[doc = include_str!(concat!("../docs/guide/", $file))]
        pub mod $page {}
    )* };
}

pages! {
    wrap_a_struct "wrap-a-struct.md";
    choose_a_level "choose-a-level.md";
    write_a_policy "write-a-policy.md";
    regions "regions.md";
    graph "graph.md";
    low_weights "low-weights.md";
    optimizers "optimizers.md";
    own_loop "own-loop.md";
    loss_scale "loss-scale.md";
    recompute "recompute.md";
    several_inputs "several-inputs.md";
    own_cell "own-cell.md";
    own_op "own-op.md";
    second_derivatives "second-derivatives.md";
    find_the_overflow "find-the-overflow.md";
    load_torch_weights "load-torch-weights.md";
    files_of_other_tools "files-of-other-tools.md";
    where_16_bit_pays "where-16-bit-pays.md";
    lora "lora.md";
    model_files "model-files.md";
    the_command "the-command.md";
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
