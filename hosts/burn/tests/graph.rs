//! Ops of networks of burn, before a run, by op lists.

mod networks;

use burn::tensor::{Device, Tensor, activation::softmax};
use networks::Mlp;
use precast_burn::{DType, Forward, Policy, graph::Graph};

fn graph() -> Graph {
    Graph::record(&Mlp::new(&Device::default()), |net, device| {
        softmax(net.forward(Tensor::<2>::zeros([4, 8], device)), 1)
    })
    .unwrap()
}

/// torch 2.15, autocast on CUDA: products are low, softmax is f32, everything between takes what comes. A linear layer
/// of burn is a product and a sum of f32 bias: the sum widens.
#[test]
fn lists_of_torch_paint_a_network() {
    let text = "version: 1\nlevel: auto\ndtype: bfloat16\npack: torch-2.15-cuda\n";
    let painted = graph().painted(&Policy::parse(text, "torch.yaml").unwrap()).unwrap();
    let of = |name: &str| painted.ops.iter().filter(|op| op.name == name).collect::<Vec<_>>();
    for product in of("Matmul").iter().chain(&of("Linear")) {
        assert!(product.to.iter().all(|dtype| *dtype == DType::Bf16), "{painted}");
        assert_eq!(product.output, Some(DType::Bf16), "{painted}");
    }
    assert_eq!(of("Matmul").len() + of("Linear").len(), 2, "{painted}");
    let softmax = of("Softmax");
    assert_eq!(softmax.len(), 1, "{painted}");
    assert_eq!(softmax[0].to, [DType::F32]);
    assert_eq!(softmax[0].because, "full list, torch-2.15-cuda");
}

/// Ops with a parameter have the path of its module, with and without a plan; all others have none.
#[test]
fn ops_have_the_paths_of_the_modules_whose_parameters_they_take() {
    use precast_burn::Amp;
    let expected = [
        "conv",
        "norm",
        "blocks.0.norm",
        "blocks.0.up",
        "blocks.0.down",
        "blocks.1.norm",
        "blocks.1.up",
        "blocks.1.down",
        "head",
    ];
    for policy in [None, Some("o2-bf16")] {
        let mut net = Amp::new(networks::Tower::new(&Device::default()));
        let _applied = policy.map(|name| Policy::named(name).unwrap().apply(&mut net).unwrap());
        let forward =
            |net: Amp<networks::Tower>, device: &Device| net.forward(Tensor::<4>::zeros([2, 1, 4, 4], device));
        let painted = Graph::record(&net, forward).unwrap().painted(&Policy::named("o0").unwrap()).unwrap();
        let mut paths: Vec<&str> = painted.ops.iter().filter_map(|op| op.module.as_deref()).collect();
        paths.dedup();
        assert_eq!(paths, expected, "{painted}");
        let without = |name: &str| painted.ops.iter().filter(|op| op.name == name).all(|op| op.module.is_none());
        assert!(without("Relu") && without("Gelu"), "{painted}");
        assert!(painted.ops.iter().all(|op| op.name != "Flip"), "{painted}");
    }
}

#[test]
fn levels_of_one_dtype_paint_everything() {
    let painted = graph().painted(&Policy::named("o3-bf16").unwrap()).unwrap();
    assert!(painted.ops.iter().flat_map(|op| &op.to).all(|dtype| *dtype == DType::Bf16), "{painted}");
    let plain = graph().painted(&Policy::named("o0").unwrap()).unwrap();
    assert!(plain.ops.iter().all(|op| op.from == op.to), "{plain}");
    assert!(plain.to_string().contains("ops, 0 with casts"), "{plain}");
    for level in ["o1", "o2"] {
        let text = graph().painted(&Policy::named(level).unwrap()).unwrap_err().to_string();
        assert!(text.contains("decides module by module: print `policy.plan(&net)`"), "{text}");
    }
}

#[test]
fn code_that_reads_a_result_is_refused() {
    let read = Graph::record(&Mlp::new(&Device::default()), |net, device| {
        net.forward(Tensor::<2>::zeros([4, 8], device)).sum().into_scalar::<f32>()
    });
    let text = read.unwrap_err().to_string();
    assert!(text.contains("reads the result of an op"), "{text}");
    assert!(!graph().is_empty(), "the device records again");
}

/// A layer that returns f32 in a network of f16: the layer behind it would multiply f32 and f16.
#[test]
fn a_missing_cast_is_found_before_the_run() {
    use precast_burn::Amp;
    let check = |rule: &str| {
        let mut net = Amp::new(networks::Tower::new(&Device::default()));
        let text = format!("version: 1\nlevel: O2\ndtype: float16\nrules: [{rule}]\n");
        let _applied = Policy::parse(&text, "rules.yaml").unwrap().apply(&mut net).unwrap();
        Graph::record(&net, |net, device| net.forward(Tensor::<4>::zeros([2, 1, 4, 4], device)))?.check()
    };
    check("").unwrap();
    check("{ path: norm, run: float32-inside }").unwrap();
    let error = check("{ path: 'blocks.1.norm', run: float32 }").unwrap_err();
    assert_eq!(error.kind(), precast_burn::ErrorKind::DType);
    let text = error.to_string();
    assert!(text.contains("different dtypes. The weight read last is `blocks.1.up.bias`"), "{text}");
}

/// burn records a product of two dtypes, which is garbage on some devices.
#[test]
fn a_product_of_two_dtypes_is_found() {
    use burn::tensor::FloatDType;
    let product = Graph::record(&Mlp::new(&Device::default()), |_, device| {
        let x = Tensor::<2>::ones([2, 2], device);
        x.clone().matmul(x.cast(FloatDType::F16))
    });
    let text = product.unwrap().check().unwrap_err().to_string();
    assert!(text.contains("`Matmul`, takes f32 and f16, behind Ones, Cast"), "{text}");
}

/// An entry of a policy's own has its place in the file as the reason.
#[test]
fn an_op_that_a_file_lists_has_its_place_as_the_reason() {
    let text = "version: 1\nlevel: auto\ndtype: bfloat16\nops: { full: { add: ['burn::Add'] } }\n";
    let painted = graph().painted(&Policy::parse(text, "mine.yaml").unwrap()).unwrap();
    let sum = painted.ops.iter().find(|op| op.name == "Add").unwrap();
    assert!(sum.because.starts_with("full list, mine.yaml:4:"), "{}", sum.because);
}
