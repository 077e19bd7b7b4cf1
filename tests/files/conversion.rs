//! Weights from other tools: the information in their names, and the output of a conversion. Rounding is compared with
//! the crate `half`, the files with the crate `safetensors`.

use std::{collections::BTreeMap, fs, path::Path};

use half::{bf16, f16};
use precast::{
    ErrorKind,
    io::models::Model,
    prelude::*,
    storage::{
        stored::{ConvertOptions, Converted, ConvertedTensor, StoredModel},
        weights,
    },
};
use safetensors::{Dtype, SafeTensors, serialize, tensor::TensorView};

use super::{
    converted_folders::model_folder,
    made::{Made, convert, f32s, file},
    measured::largest_block,
};
use crate::common::folder::Folder;

/// Returns numbers of many magnitudes, some of them beyond 16 bits.
fn numbers(count: usize, seed: u64) -> Vec<f32> {
    let mut rng = Rng::seed(seed);
    let number = |rng: &mut Rng| (rng.bits() as i32 as f32 / 2e9) * 2f32.powi((rng.bits() % 36) as i32 - 26);
    (0..count).map(|_| number(&mut rng)).collect()
}

fn row<'a>(converted: &'a Converted, name: &str) -> &'a ConvertedTensor {
    converted.tensors.iter().find(|tensor| tensor.name == name).unwrap()
}

#[test]
fn converted_tensors_have_the_bits_of_one_rounding() {
    let folder = Folder::new("bits");
    // More than a chunk of 4 MiB, and not a multiple of anything.
    let weight = numbers(1_100_003, 1);
    let bias: Vec<f32> = numbers(17, 2);
    let tensors = vec![
        f32s("big.weight", &[1_100_003, 1], &weight),
        f32s("norm.weight", &[17], &bias),
        f32s("norm.bias", &[17], &bias),
        f32s("empty.weight", &[0, 4], &[]),
        ("half.weight", Dtype::F16, vec![3, 1], [0x3c00u16, 0x0001, 0x7c01].map(u16::to_le_bytes).concat()),
        ("double.weight", Dtype::F64, vec![1, 1], 0.1f64.to_le_bytes().to_vec()),
        ("ids", Dtype::I64, vec![2], [1i64, -1].map(i64::to_le_bytes).concat()),
        ("mask", Dtype::BOOL, vec![3], vec![0, 1, 1]),
        ("eight.weight", Dtype::F8_E4M3, vec![2, 2], vec![1, 2, 3, 255]),
    ];
    fs::write(folder.at("in"), file(&tensors)).unwrap();
    for (policy, low) in [("o2", Dtype::F16), ("o2-bf16", Dtype::BF16)] {
        let to = folder.at(policy);
        let (converted, block) = largest_block(|| convert(&folder.at("in"), &to, policy, ConvertOptions::new()));
        let converted = converted.unwrap();
        assert!(block <= 4 << 20, "a block of {block} bytes");
        let bytes = fs::read(&to).unwrap();
        let read = SafeTensors::deserialize(&bytes).unwrap();
        assert_eq!(read.len(), tensors.len());
        let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
        assert_eq!(header.metadata().as_ref().unwrap()["format"], "pt");
        let rounded = |values: &[f32]| -> Vec<u8> {
            let bits =
                |x: &f32| if low == Dtype::F16 { f16::from_f32(*x).to_bits() } else { bf16::from_f32(*x).to_bits() };
            values.iter().flat_map(|x| bits(x).to_le_bytes()).collect()
        };
        for (name, dtype, shape, data) in &tensors {
            let met = read.tensor(name).unwrap();
            assert_eq!(met.shape(), shape);
            let expected = match *name {
                "big.weight" => rounded(&weight),
                // An f16 with a signalling NaN; in bf16 it has the same three values, rounded.
                "half.weight" if low == Dtype::BF16 => {
                    [1.0, 2f32.powi(-24)].map(|x| bf16::from_f32(x).to_le_bytes()).concat()
                }
                _ => data.clone(),
            };
            let wanted = if ["big.weight", "empty.weight", "half.weight"].contains(name) { low } else { *dtype };
            assert_eq!(met.dtype(), wanted, "{name}");
            assert!(met.data().starts_with(&expected), "{name}");
        }
        // Each is aligned to its element size.
        let starts = read.tensors().into_iter().map(|(name, view)| {
            let start = view.data().as_ptr() as usize - bytes.as_ptr() as usize;
            (name, start % (view.dtype().bitsize() / 8))
        });
        assert!(starts.into_iter().all(|(_, rest)| rest == 0));
        let total: usize = read.tensors().iter().map(|(_, view)| view.data().len()).sum();
        assert_eq!(converted.bytes_after, total as u64);
    }
}

#[test]
fn what_is_lost_is_counted_by_its_definition() {
    let folder = Folder::new("lost");
    let values = numbers(70_001, 3);
    fs::write(folder.at("in"), file(&[f32s("fc.weight", &[70_001, 1], &values)])).unwrap();
    let converted = convert(&folder.at("in"), &folder.at("out"), "o3", ConvertOptions::new()).unwrap();
    let met = row(&converted, "fc.weight");
    let count = |lost: &dyn Fn(f32, f32) -> bool| {
        values.iter().filter(|x| lost(**x, f16::from_f32(**x).to_f32())).count() as u64
    };
    assert_eq!(met.to_infinity, 0);
    assert_eq!(met.to_zero, count(&|x, y| x != 0.0 && y == 0.0));
    assert_eq!(met.to_subnormal, count(&|x, y| y != 0.0 && y.abs() < 2f32.powi(-14) && x != y));
    assert_eq!(met.largest, values.iter().map(|x| x.abs()).reduce(f32::max));
    assert!(met.to_zero > 100 && met.to_subnormal > 1000 && met.relative_error == 1.0, "{met:?}");
    assert_eq!((met.before.as_ref(), met.after.as_ref()), ("f32", "f16"));
}

#[test]
fn values_that_become_infinite_are_refused_unless_allowed() {
    let folder = Folder::new("overflow");
    let large = [1e5f32, -7e4, 1.0, f32::INFINITY];
    let tensors =
        [f32s("a.b.weight", &[4, 1], &large), f32s("c.weight", &[4, 1], &large), f32s("d.weight", &[1, 1], &[1.0])];
    fs::write(folder.at("in"), file(&tensors)).unwrap();
    let error = convert(&folder.at("in"), &folder.at("out"), "o2", ConvertOptions::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Value);
    let message = error.to_string();
    assert!(
        message.contains(
            "would become infinite in f16; a rule keeps a cell in float32, `{ path: \"a.b\", run: float32 }`"
        )
    );
    assert!(
        message.contains("\n- `a.b.weight`: 2 of its values, up to 1e5\n- `c.weight`: 2 of its values"),
        "{message}"
    );
    assert_eq!(folder.names(), ["in"], "nothing is left");
    // The rule named by the message keeps the cell.
    let rules =
        "version: 1\nlevel: O2\ndtype: float16\nrules: [{ path: a.b, run: float32 }, { path: c, run: float32 }]\n";
    let converted = convert(&folder.at("in"), &folder.at("ruled"), rules, ConvertOptions::new()).unwrap();
    let changed: Vec<&str> = converted.tensors.iter().filter(|t| t.changed()).map(|t| t.name.as_str()).collect();
    assert_eq!(changed, ["d.weight"]);
    let allowed = ConvertOptions::new().allow_overflow(true);
    let converted = convert(&folder.at("in"), &folder.at("out"), "o2", allowed).unwrap();
    let met = row(&converted, "c.weight");
    assert_eq!((met.to_infinity, met.not_finite, met.largest), (2, Some(1), Some(1e5)));
    convert(&folder.at("in"), &folder.at("bf16"), "o2-bf16", ConvertOptions::new()).unwrap();
}

#[test]
fn tensors_are_widened_only_when_that_is_asked_for() {
    let folder = Folder::new("widen");
    let values = [1.0f32, 6.0e-8, -65504.0];
    fs::write(folder.at("f32"), file(&[f32s("fc.weight", &[3, 1], &values), f32s("norm.weight", &[3], &values)]))
        .unwrap();
    convert(&folder.at("f32"), &folder.at("f16"), "o3", ConvertOptions::new()).unwrap();
    let dtypes = |to: &str, policy: &str, options: ConvertOptions| -> Vec<String> {
        let converted = convert(&folder.at("f16"), &folder.at(to), policy, options).unwrap();
        ["fc.weight", "norm.weight"].map(|name| row(&converted, name).after.to_string()).to_vec()
    };
    assert_eq!(dtypes("o0", "o0", ConvertOptions::new()), ["f16", "f16"]);
    assert_eq!(dtypes("o2", "o2", ConvertOptions::new()), ["f16", "f16"], "a norm runs in f32, and its tensor stays");
    let widen = ConvertOptions::new().widen(true);
    assert_eq!(dtypes("o2w", "o2", widen), ["f16", "f32"]);
    assert_eq!(dtypes("o0w", "o0", widen), ["f32", "f32"]);
    let bytes = fs::read(folder.at("o0w")).unwrap();
    let read = SafeTensors::deserialize(&bytes).unwrap();
    let expected: Vec<u8> = values.iter().flat_map(|x| f16::from_f32(*x).to_f32().to_le_bytes()).collect();
    assert_eq!(read.tensor("fc.weight").unwrap().data(), expected);
}

#[test]
fn a_plan_of_another_model_and_a_checkpoint_are_refused() {
    let folder = Folder::new("refused");
    fs::write(folder.at("a"), file(&[f32s("a.weight", &[1, 1], &[1.0])])).unwrap();
    fs::write(folder.at("b"), file(&[f32s("b.weight", &[1, 1], &[1.0])])).unwrap();
    let [a, b] = ["a", "b"].map(|name| StoredModel::open(folder.at(name)).unwrap());
    let plan = Policy::named("o2").unwrap().plan_outline(a.outline()).unwrap();
    let error = plan.convert(&b, folder.at("out")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Path);
    let sum = Some([("crc32".to_string(), "00000000".to_string())].into());
    fs::write(folder.at("c"), serialize(Vec::<(&str, TensorView<'_>)>::new(), sum).unwrap()).unwrap();
    let message = convert(&folder.at("c"), &folder.at("out"), "o2", ConvertOptions::new()).unwrap_err().to_string();
    assert!(message.contains("a checkpoint with a checksum"), "{message}");
    let speed = "version: 1\nlevel: O2\ndtype: float16\nprefer: speed\n";
    let message = convert(&folder.at("a"), &folder.at("out"), speed, ConvertOptions::new()).unwrap_err().to_string();
    assert!(message.contains("there is only its outline"), "{message}");
    assert_eq!(folder.names(), ["a", "b", "c"]);
}

#[derive(Cell, Debug)]
struct Named {
    embed: Child<Embedding>,
    encoder: Child<TransformerEncoderLayer>,
    lstm: Child<LSTM>,
    gru: Child<GRU>,
    rms_norm: Child<RmsNorm>,
    group_norm: Child<GroupNorm>,
    layers: Vec<Child>,
    deconv: Child<Conv1dTranspose>,
    head: Child<Dense>,
}

impl Forward for Named {}

/// The weights of a network alone lead to the same decisions as the network itself.
#[test]
fn inferred_cells_are_decided_as_the_cells_themselves() {
    let folder = Folder::new("same");
    let rng = &mut Rng::seed(1);
    let own = Child::of(Named {
        embed: Child::new(Embedding::new(9, 6, rng)),
        encoder: Child::new(TransformerEncoderLayerSpec::new(6, 2).build(rng).unwrap()),
        lstm: Child::new(LSTM::new(6, 5, rng)),
        gru: Child::new(GRU::new(5, 4, rng)),
        rms_norm: Child::new(RmsNorm::new(4)),
        group_norm: Child::new(GroupNorm::new(2, 4)),
        layers: vec![Child::of(Conv1d::new(4, 4, 3, rng)), Child::of(BatchNorm1d::new(4))],
        deconv: Child::new(Conv1dTranspose::new(4, 2, 3, rng)),
        head: Child::new(Dense::new(2, 3, rng)),
    });
    let models = Model::names().map(|name| (name, Model::named(name, 1).unwrap().net));
    let mut compared = 0;
    for (name, net) in models.chain([("own", own)]) {
        weights::save(&net, folder.at(name)).unwrap();
        let outline = StoredModel::open(folder.at(name)).unwrap().outline();
        let has_tensors = |kind: &str| kind != "Container" && kind != "Unknown";
        for policy in ["o1", "o2", "o3-bf16"].map(|policy| Policy::named(policy).unwrap()) {
            let (plan, inferred) = (policy.plan(&net).unwrap(), policy.plan_outline(outline.clone()).unwrap());
            for decision in inferred.decisions.iter().filter(|decision| has_tensors(&decision.kind)) {
                // A cell inside attention in a file may be a parameter here.
                let above = decision.path.match_indices('.').map(|(at, _)| &decision.path[..at]).rev();
                let own = [decision.path.as_str()].into_iter().chain(above).find_map(|path| plan.decision(path).ok());
                let own = own.unwrap();
                assert_eq!(decision.run, own.run, "{name}: {} ({}, {})", own.path, own.kind, decision.kind);
                compared += 1;
            }
        }
    }
    assert!(compared > 60, "{compared} cells were compared");
}

/// The state dicts of torch's own layers, whose kinds are known.
#[test]
fn state_dicts_of_torch_tell_their_layers() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/guide/torch-encoder.safetensors");
    let outline = StoredModel::open(folder).unwrap().outline();
    let kind = |path: &str| outline.cells().iter().find(|cell| cell.path == path).unwrap().kind.to_string();
    assert_eq!(kind("layers.0.self_attn"), "MultiheadAttention");
    assert_eq!(kind("layers.1.linear2"), "Dense");
    assert_eq!(kind("layers.1.norm2"), "LayerNorm");
    assert!(outline.cells().iter().all(|cell| cell.kind != "Unknown"));
}

/// Returns the storage dtype of each tensor of a file under a policy.
fn stored_as(tensors: &[Made], policy: &str) -> (BTreeMap<String, String>, Converted) {
    let folder = Folder::new("stored-as");
    fs::write(folder.at("in"), file(tensors)).unwrap();
    let _ = fs::remove_file(folder.at("out"));
    let converted = convert(&folder.at("in"), &folder.at("out"), policy, ConvertOptions::new()).unwrap();
    let bytes = fs::read(folder.at("out")).unwrap();
    let read = SafeTensors::deserialize(&bytes).unwrap();
    for (name, dtype, _, data) in tensors {
        let met = read.tensor(name).unwrap();
        assert!(met.dtype() != *dtype || met.data() == data, "{name} keeps every bit");
    }
    (converted.tensors.iter().map(|t| (t.name.clone(), t.after.to_string())).collect(), converted)
}

/// Numbers that are not weights keep their digits, even if everything around them runs low.
#[test]
fn weights_are_lowered_and_nothing_else() {
    let inv_freq: Vec<f32> = (0..16).map(|i| 10000f64.powf(-2.0 * f64::from(i) / 32.0) as f32).collect();
    let eight = |name: &'static str| (name, Dtype::F8_E4M3, vec![2, 2], vec![56; 4]);
    let ints = |name: &'static str| (name, Dtype::I32, vec![2, 2], vec![0; 16]);
    let kept = [
        f32s("model.layers.0.self_attn.rotary_emb.inv_freq", &[16], &inv_freq),
        f32s("model.rotary_emb.original_inv_freq", &[16], &inv_freq),
        f32s("fp8.weight_scale_inv", &[1, 1], &[3.7e-6]),
        f32s("fp8.weight_scale", &[2, 1], &[3.7e-6; 2]),
        f32s("fp8.input_scale", &[], &[3.7e-6]),
        f32s("gptq.scales", &[1, 2], &[3.7e-6; 2]),
        f32s("int8.SCB", &[2], &[3.7e-6; 2]),
        f32s("nf4.weight.absmax", &[2], &[3.7e-6; 2]),
        f32s("model_ema.decay", &[], &[0.9999]),
        f32s("model_ema.fcweight", &[2, 2], &[0.1; 4]),
        f32s("ema.fc.weight", &[2, 2], &[0.1; 4]),
        f32s("mixer.A_log", &[2, 2], &[0.1; 4]),
        f32s("mixer.D", &[2], &[0.1; 2]),
        f32s("mixer.dt_bias", &[2], &[0.1; 2]),
        f32s("att.time_decay", &[2], &[0.1; 2]),
        f32s("att.time_first", &[2, 1], &[0.1; 2]),
        f32s("betas", &[2], &[1e-4; 2]),
        f32s("alphas_cumprod", &[2], &[0.9999, 1e-8]),
        f32s("logit_scale", &[], &[4.6052]),
        f32s("bn.running_mean", &[2], &[0.1; 2]),
        f32s("bn.running_var", &[2], &[1e-9; 2]),
        f32s("bn.num_batches_tracked", &[], &[70000.0]),
        f32s("criterion.weight", &[2], &[0.1; 2]),
        f32s("h.attn.bias", &[1, 1, 2, 2], &[1.0; 4]),
        f32s("h.attn.masked_bias", &[], &[-1e9]),
        f32s("pos_encoder.pe", &[1, 2, 2], &[0.1; 4]),
        f32s("router.e_score_correction_bias", &[2], &[0.1; 2]),
    ];
    let lowered = [
        f32s("model.layers.0.self_attn.q_proj.weight", &[2, 2], &[0.1; 4]),
        f32s("fp8.bias", &[2], &[0.1; 2]),
        f32s("gptq.bias", &[2], &[0.1; 2]),
        f32s("mixer.conv1d.weight", &[2, 1, 2], &[0.1; 4]),
        f32s("mixer.conv1d.bias", &[2], &[0.1; 2]),
        f32s("bn.weight", &[2], &[0.1; 2]),
        f32s("bn.bias", &[2], &[0.1; 2]),
        f32s("rnn.weight_ih_l0", &[8, 2], &[0.1; 16]),
        f32s("rnn.weight_hh_l0", &[8, 2], &[0.1; 16]),
        f32s("rnn.bias_hh_l1_reverse", &[8], &[0.1; 8]),
        f32s("router.weight", &[2, 2], &[0.1; 4]),
        f32s("experts.gate_up_proj", &[2, 2, 2], &[0.1; 8]),
    ];
    let same = [eight("fp8.weight"), ints("gptq.qweight"), ints("gptq.g_idx"), ints("int8.weight"), ints("nf4.weight")];
    let all: Vec<Made> = kept.iter().chain(&lowered).chain(&same).cloned().collect();
    for (policy, low) in [("o3", "f16"), ("o3-bf16", "bf16")] {
        let (met, converted) = stored_as(&all, policy);
        let check = |tensors: &[Made], dtype: &str, is_kept: bool| {
            for (name, ..) in tensors {
                let why = row(&converted, name).kept.as_deref();
                assert_eq!((met[*name].as_str(), why.is_some()), (dtype, is_kept), "{name} under {policy}: {why:?}");
            }
        };
        check(&kept, "f32", true);
        check(&lowered, low, false);
        for (name, dtype, ..) in &same {
            assert_eq!(met[*name], if *dtype == Dtype::I32 { "I32" } else { "F8_E4M3" });
        }
        let why = |name: &str| row(&converted, name).kept.clone().unwrap();
        assert_eq!(why("model.layers.0.self_attn.rotary_emb.inv_freq"), "no weight of RotaryEmbedding");
        assert_eq!(
            (why("fp8.weight_scale").as_str(), why("betas").as_str()),
            ("no weight of Dense", "of an Unknown cell")
        );
        assert_eq!(why("ema.fc.weight"), "a moving average");
    }
}

/// A tensor that is already 16-bit is rounded to another dtype only if it is a weight.
#[test]
fn other_tensors_in_16_bits_stay_too() {
    let half = |name: &'static str, shape: &[usize], x: f32| -> Made {
        let data = bf16::from_f32(x).to_le_bytes().repeat(shape.iter().product());
        (name, Dtype::BF16, shape.to_vec(), data)
    };
    let tensors = [half("fc.weight", &[2, 2], 0.5), half("fc.weight_scale", &[1], 1e-30), half("mask", &[2], -3e38)];
    let (met, _) = stored_as(&tensors, "o2");
    assert_eq!([&met["fc.weight"], &met["fc.weight_scale"], &met["mask"]], ["f16", "bf16", "bf16"]);
}

/// A rule whose path matches no cell applies to tensors.
#[test]
fn a_rule_names_a_tensor() {
    let tensors = [
        f32s("rotary_emb.inv_freq", &[2], &[1.0, 0.5]),
        f32s("fc.weight", &[2, 2], &[0.5; 4]),
        f32s("fc.bias", &[2], &[0.5; 2]),
        f32s("fc.table", &[2], &[0.5; 2]),
        f32s("gate.table", &[2], &[0.5; 2]),
    ];
    let under = |rules: &str| format!("version: 1\nlevel: O2\ndtype: float16\nrules: [{rules}]\n");
    let met = |rules: &str| stored_as(&tensors, &under(rules)).0;
    let names = ["rotary_emb.inv_freq", "fc.weight", "fc.bias", "fc.table", "gate.table"];
    let dtypes = |rules: &str| {
        let met = met(rules);
        names.map(|name| met[name].clone())
    };
    assert_eq!(dtypes(""), ["f32", "f16", "f16", "f32", "f32"]);
    assert_eq!(dtypes("{ path: rotary_emb.inv_freq, run: low }"), ["f16", "f16", "f16", "f32", "f32"]);
    assert_eq!(dtypes("{ path: '*.table', run: low, expect: 2 }"), ["f32", "f16", "f16", "f16", "f16"]);
    assert_eq!(dtypes("{ path: fc.bias, run: float32 }"), ["f32", "f16", "f32", "f32", "f32"]);
    // The exact path takes precedence over the pattern.
    let both = "{ path: '*.table', run: low }, { path: gate.table, run: float32 }";
    assert_eq!(dtypes(both), ["f32", "f16", "f16", "f16", "f32"]);
    // A rule that names a cell applies to the cell.
    assert_eq!(dtypes("{ path: rotary_emb, run: low }"), ["f32", "f16", "f16", "f32", "f32"]);

    let folder = Folder::new("named");
    fs::write(folder.at("in"), file(&tensors)).unwrap();
    let outline = StoredModel::open(folder.at("in")).unwrap().outline();
    let plan = |rules: &str| Policy::parse(&under(rules), "p.yaml").unwrap().plan_outline(outline.clone());
    let shown = plan("").unwrap();
    assert_eq!(shown.decision("rotary_emb").unwrap().effect(), "runs f16, keeps inv_freq");
    assert_eq!(shown.decision("fc").unwrap().effect(), "runs f16, keeps table");
    let shown = plan("{ path: rotary_emb.inv_freq, run: low, because: small }").unwrap();
    assert_eq!(shown.decision("rotary_emb").unwrap().effect(), "runs f16");
    let line = "tensor rotary_emb.inv_freq  stored f16  rule path rotary_emb.inv_freq (run: low), p.yaml:4:9: small";
    assert!(shown.to_string().contains(line), "{shown}");
    let read: precast::Plan = serde_json::from_str(&serde_json::to_string(&shown).unwrap()).unwrap();
    assert_eq!(read, shown);
    let message = plan("{ path: rotary_emb.inv_frq, run: low }").unwrap_err().to_string();
    assert!(message.contains("matches no cell (did you mean `rotary_emb.inv_freq`?)"), "{message}");
    let message = plan("{ path: '*.table', run: low, expect: 3 }").unwrap_err().to_string();
    assert!(message.contains("expects 3 cells and matches 2: fc.table, gate.table"), "{message}");
    // At O0 nothing is lowered.
    let o0 = "version: 1\nlevel: O0\ndtype: float16\nrules: [{ path: fc.bias, run: low }]\n";
    assert_eq!(stored_as(&tensors, o0).0["fc.bias"], "f32");
}

/// Every trained parameter of our own layers is a weight, and no buffer is.
#[test]
fn the_weights_of_our_own_layers_are_known() {
    let folder = Folder::new("own-weights");
    let rng = &mut Rng::seed(1);
    let own = Child::of(sequential![
        Embedding::new(9, 6, rng),
        TransformerEncoderLayerSpec::new(6, 2).build(rng).unwrap(),
        TransformerDecoderLayerSpec::new(6, 2).build(rng).unwrap(),
        LSTM::new(6, 5, rng),
        GRUCell::new(5, 4, rng),
        RmsNorm::new(4),
        GroupNorm::new(2, 4),
        InstanceNorm2d::new(4),
        LayerNorm::new(&[4]),
        Conv3d::new(4, 4, 3, rng),
        Conv2dTranspose::new(4, 2, 3, rng),
        BatchNorm3d::new(2),
        PReLU::new(2),
        LoRA::new(Dense::new(2, 3, rng), 2, 4.0, rng),
        RotaryEmbedding::default()
    ]);
    weights::save(&own, folder.at("in")).unwrap();
    let model = StoredModel::open(folder.at("in")).unwrap();
    let plan = Policy::named("o3").unwrap().plan(&own).unwrap();
    let converted = plan.convert(&model, folder.at("out")).unwrap();
    let mut met = 0;
    for (path, param) in own.named_params() {
        let is_base = path.contains(".base.");
        assert_eq!(row(&converted, &path).after == "f16", param.is_trained() || is_base, "{path}");
        met += 1;
    }
    assert!(met > 60, "{met}");
}

#[test]
fn the_advice_of_an_overflow_fits_the_dtype() {
    let folder = Folder::new("advice");
    let met = |policy: &str, largest: &[f32]| {
        let names = ["fc.weight", "head.weight"];
        let tensors: Vec<Made> = names.iter().zip(largest).map(|(name, &x)| f32s(name, &[1, 2], &[x, 1.0])).collect();
        fs::write(folder.at("in"), file(&tensors)).unwrap();
        let options = ConvertOptions::new().replace(true);
        convert(&folder.at("in"), &folder.at("out"), policy, options).map_err(|error| error.to_string())
    };
    let rule = |dtype: &str, more: &str| {
        format!("infinite in {dtype}; a rule keeps a cell in float32, `{{ path: \"fc\", run: float32 }}`{more}:")
    };
    // The largest bfloat16 is 2^127 * (2 - 2^-7); what is nearer to 2^128 than to that becomes infinite.
    let (fits, beyond) = (f32::from_bits(0x7f7f_7fff), f32::from_bits(0x7f7f_8000));
    for numbers in [&[fits][..], &[1e5, fits]] {
        let message = met("o2", numbers).unwrap_err();
        assert!(message.contains(&rule("f16", ", and bfloat16 holds all of them")), "{message}");
        met("o2-bf16", numbers).unwrap();
    }
    for numbers in [&[beyond][..], &[1e5, beyond], &[3.4e38]] {
        let message = met("o2", numbers).unwrap_err();
        assert!(message.contains(&rule("f16", "")), "{message}");
        assert!(met("o2-bf16", numbers).is_err());
    }
    let message = met("o2-bf16", &[beyond]).unwrap_err();
    assert!(message.contains(&rule("bf16", "")), "{message}");
}

#[test]
fn numbers_that_are_not_finite_are_counted() {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    let tensors = [
        f32s("fc.weight", &[1, 5], &[1.0, nan, -inf, inf, -2.0]),
        f32s("fc.bias", &[1], &[nan]),
        f32s("fc.table", &[2], &[inf, 3.0]),
        f32s("head.weight", &[1, 1], &[1.0]),
        ("ids", Dtype::I64, vec![1], vec![0; 8]),
    ];
    let (_, converted) = stored_as(&tensors, "o2");
    let met = |name: &str| (row(&converted, name).not_finite, row(&converted, name).largest);
    assert_eq!(met("fc.weight"), (Some(3), Some(2.0)));
    assert_eq!(met("fc.bias"), (Some(1), Some(0.0)));
    assert_eq!(met("fc.table"), (Some(1), Some(3.0)));
    assert_eq!((met("head.weight"), met("ids")), ((Some(0), Some(1.0)), (None, None)));
}

/// Copies of a network and tables may be called `weight` as well.
#[test]
fn averages_states_and_tables_called_weight_are_kept() {
    let two = |name: &'static str| f32s(name, &[2, 2], &[0.1; 4]);
    let kept = [
        (
            "a moving average",
            vec![
                "swa_model.module.fc.weight",
                "averaged_model.fc.weight",
                "averaged.module.fc.weight",
                "avg_model.x.weight",
                "shadow.x.weight",
                "polyak.x.weight",
                "modelEma.x.weight",
                "EMA.x.weight",
                "teacher_ema.0.weight",
            ],
        ),
        (
            "a state of an optimizer",
            vec![
                "optimizer.0.exp_avg_sq.fc.weight",
                "exp_avg.fc.weight",
                "momentum_buffer.fc.weight",
                "moment1.fc.weight",
            ],
        ),
        ("statistics", vec!["stats.mean.weight"]),
        (
            "constants, by the name",
            vec![
                "rotary.weight",
                "rotary_emb.weight",
                "fourier_features.weight",
                "gaussian_fourier_projection.weight",
                "time_proj.weight",
                "sinusoidal.weight",
                "mask.weight",
                "attn.causal_mask.weight",
                "quantizer.scale.weight",
                "act_quant.scale.weight",
                "criterion.weight",
                "loss_fn.weight",
            ],
        ),
    ];
    // Segment Anything, DETR, Mask2Former, Stable Diffusion, Wan, wav2vec, vector quantization, discriminators of a loss.
    let lowered = [
        "mask_downscaling.0.weight",
        "mask_decoder.iou_head.0.weight",
        "mask_tokens.weight",
        "mask_embed.0.weight",
        "mask_head.lay1.weight",
        "mask_features.weight",
        "mask_predictor.conv5_mask.weight",
        "time_embed.0.weight",
        "time_embedding.linear_1.weight",
        "down.0.time_emb_proj.weight",
        "condition.time_proj.weight",
        "condition.time_proj.bias",
        "quantizer.weight_proj.weight",
        "quantize.embedding.weight",
        "loss.discriminator.main.0.weight",
        "average_pool.proj.weight",
        "moving_head.weight",
        "shadow_head.weight",
        "momentum_head.weight",
        "layers.0.swa.q_proj.weight",
        "teacher.fc.weight",
        "fc_mean.weight",
        "mean.weight",
        "to_scale.weight",
        "multi_scale.0.weight",
        "key.weight",
        "rotary_attn.q_proj.weight",
        "fourier.mlp.0.weight",
    ];
    let made = |name: &'static str| if name.ends_with("bias") { f32s(name, &[2], &[0.1; 2]) } else { two(name) };
    let all: Vec<Made> = kept.iter().flat_map(|(_, names)| names).chain(&lowered).map(|name| made(name)).collect();
    let (met, converted) = stored_as(&all, "o2");
    for (why, names) in &kept {
        for name in names {
            assert_eq!((met[*name].as_str(), row(&converted, name).kept.as_deref()), ("f32", Some(*why)), "{name}");
        }
    }
    for name in lowered {
        assert_eq!((met[name].as_str(), &row(&converted, name).kept), ("f16", &None), "{name}");
    }
    let rule = "version: 1\nlevel: O2\ndtype: float16\nrules: [{ path: rotary.weight, run: low }]\n";
    assert_eq!(stored_as(&all, rule).0["rotary.weight"], "f16");
}

#[test]
fn metadata_is_kept_and_the_format_is_added_where_there_is_none() {
    let folder = Folder::new("metadata");
    let weight = 0.5f32.to_le_bytes().repeat(4);
    let view = || TensorView::new(Dtype::F32, vec![2, 2], &weight).unwrap();
    for (metadata, wanted) in [
        (None, vec![("format", "pt")]),
        (Some(("format", "flax")), vec![("format", "flax")]),
        (Some(("a", "b")), vec![("a", "b"), ("format", "pt")]),
    ] {
        let metadata = metadata.map(|(key, value)| [(key.to_string(), value.to_string())].into());
        fs::write(folder.at("in"), serialize([("fc.weight", view())], metadata).unwrap()).unwrap();
        convert(&folder.at("in"), &folder.at("out"), "o2", ConvertOptions::new().replace(true)).unwrap();
        let bytes = fs::read(folder.at("out")).unwrap();
        let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
        let met: BTreeMap<_, _> = header.metadata().clone().unwrap().into_iter().collect();
        let wanted: BTreeMap<_, _> =
            wanted.into_iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        assert_eq!(met, wanted);
    }
}

#[test]
fn an_entry_that_appears_twice_is_refused() {
    let folder = Folder::new("twice");
    let header = r#"{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#;
    fs::write(folder.at("in"), [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &[0; 4]].concat())
        .unwrap();
    let message = StoredModel::open(folder.at("in")).unwrap_err().to_string();
    assert!(message.contains("its header: two entries have the name `w` at line 1 column"), "{message}");
    let model = folder.at("model");
    model_folder(&model);
    let index = model.join("model.safetensors.index.json");
    let text = fs::read_to_string(&index).unwrap();
    fs::write(&index, text.replace("\"norm.weight\"", "\"embed_tokens.weight\"")).unwrap();
    let message = StoredModel::open(&model).unwrap_err().to_string();
    assert!(message.contains("two entries have the name `embed_tokens.weight`"), "{message}");
    fs::write(&index, text).unwrap();
    fs::write(model.join("config.json"), "{\"dtype\": \"float32\", \"dtype\": \"float16\"}").unwrap();
    assert!(StoredModel::open(&model).unwrap_err().to_string().contains("two entries have the name `dtype`"));
}
