//! The guide: one page per task. Every example in it is compiled and run by the package in `docs/tests`.

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
    low_bits "low-bits.md";
    optimizers "optimizers.md";
    own_loop "own-loop.md";
    several_machines "several-machines.md";
    your_own_data "your-own-data.md";
    runs "runs.md";
    loss_scale "loss-scale.md";
    recompute "recompute.md";
    several_inputs "several-inputs.md";
    own_cell "own-cell.md";
    own_op "own-op.md";
    second_derivatives "second-derivatives.md";
    find_the_overflow "find-the-overflow.md";
    tune "tune.md";
    lint "lint.md";
    listen "listen.md";
    from_torch "from-torch.md";
    torch "torch.md";
    load_torch_weights "load-torch-weights.md";
    save_and_load "save-and-load.md";
    files_of_other_tools "files-of-other-tools.md";
    onnx "onnx.md";
    where_16_bit_pays "where-16-bit-pays.md";
    freeze_copy_average "freeze-copy-average.md";
    lora "lora.md";
    model_files "model-files.md";
    the_command "the-command.md";
    building "building.md";
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use crate::{Op, catalogue::System, io::kinds::elsewhere, layers::kinds};
    use precast_tensor::ops::method_of;

    /// Returns the text between two marks of the page.
    fn part<'a>(page: &'a str, mark: &str) -> &'a str {
        let begin = format!("<!-- {mark} -->\n");
        let (_, rest) = page.split_once(&begin).unwrap_or_else(|| panic!("no `{begin}`"));
        rest.split_once("<!-- end -->").expect("an end").0.trim()
    }

    /// Joins names into lines of a readable length.
    fn list(names: &[String]) -> String {
        let mut lines: Vec<String> = Vec::new();
        for (i, name) in names.iter().enumerate() {
            let name = format!("`{name}`{}", if i + 1 < names.len() { "," } else { "" });
            match lines.last_mut() {
                Some(line) if line.len() + name.len() < 119 => *line += &format!(" {name}"),
                _ => lines.push(name),
            }
        }
        lines.join("\n")
    }

    fn table(rows: &[(String, String)]) -> String {
        let rows: Vec<String> = rows.iter().map(|(torch, here)| format!("| `{torch}` | `{here}` |")).collect();
        format!("| torch | here |\n| --- | --- |\n{}", rows.join("\n"))
    }

    /// Splits pairs of names into those that differ and those that are equal.
    fn both(pairs: impl Iterator<Item = (String, String)>) -> [String; 2] {
        let pairs: BTreeSet<(String, String)> = pairs.collect();
        let same: Vec<String> = pairs.iter().filter(|(torch, here)| torch == here).map(|pair| pair.0.clone()).collect();
        let other: Vec<(String, String)> = pairs.into_iter().filter(|(torch, _)| !same.contains(torch)).collect();
        [table(&other), list(&same)]
    }

    #[test]
    fn the_page_from_torch_has_every_name() {
        let page = include_str!("../docs/guide/from-torch.md");
        // A method of torch's name, which runs no op of another name: `select` is torch's `where`.
        let interface = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/public-api/precast.txt");
        // The published package has no list of its interface.
        let Ok(interface) = std::fs::read_to_string(interface) else { return };
        let (_, tensor) = interface.split_once("\nprecast::Tensor\n").expect("the methods of a tensor");
        let methods: BTreeSet<&str> = tensor
            .lines()
            .take_while(|line| line.starts_with(' '))
            .filter_map(|line| line.trim().strip_prefix("pub fn ")?.split(['(', '<']).next())
            .collect();
        let of_ops: BTreeSet<&str> = Op::ALL.iter().map(|op| method_of(*op)).collect();
        // Deprecated methods, which name the present one.
        let old = ["to", "view"];
        let is_same = |torch: &str| methods.contains(torch) && !of_ops.contains(torch) && !old.contains(&torch);
        let modules = kinds().unwrap().into_iter().flat_map(|kind| {
            let names = elsewhere(kind).map_or(&[][..], |names| names.torch);
            names.iter().map(move |torch| (torch.to_string(), kind.to_string()))
        });
        let functions = Op::ALL.iter().filter(|op| op.has_kernel()).flat_map(|op| {
            // Without the names of individual kernels.
            let kernels = ["_", "cudnn", "mkldnn", "native"];
            let names = op.names(System::Torch).filter(move |name| !kernels.iter().any(|of| name.starts_with(of)));
            names.map(|torch| (torch.to_string(), if is_same(torch) { torch } else { method_of(*op) }.to_string()))
        });
        let [modules, same_modules] = both(modules);
        let [functions, same_functions] = both(functions);
        let parts = [
            ("modules", modules),
            ("same modules", same_modules),
            ("functions", functions),
            ("same functions", same_functions),
        ];
        let wrong: Vec<_> = parts.iter().filter(|(mark, wanted)| part(page, mark) != wanted).collect();
        let wanted: String = wrong.iter().map(|(mark, wanted)| format!("<!-- {mark} -->\n{wanted}\n\n")).collect();
        assert!(wrong.is_empty(), "docs/guide/from-torch.md should have:\n\n{wanted}");
    }
}
