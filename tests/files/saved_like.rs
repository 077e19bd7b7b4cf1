//! Weights written back in the form of the file from which they were loaded.

use std::{collections::BTreeMap, fs};

use precast::{
    prelude::*,
    storage::weights::{self, LoadOptions, SaveOptions},
};

use crate::common::folder::Folder;

/// Writes the layout of GPT-2 in f16: `[in, out]` matrices, one product for query, key and value, masks, tied tables.
fn gpt2(file: &std::path::Path) -> Result<BTreeMap<String, Tensor>> {
    let mut rng = Rng::seed(5);
    let mut of = |shape: &[usize]| Ok::<_, Error>(Tensor::randn(shape, &mut rng)?.cast(DType::F16));
    let tensors = [
        ("transformer.h.0.attn.c_attn.weight", of(&[8, 24])?),
        ("transformer.h.0.attn.c_attn.bias", of(&[24])?),
        ("transformer.h.0.attn.c_proj.weight", of(&[8, 8])?),
        ("transformer.h.0.attn.c_proj.bias", of(&[8])?),
        ("transformer.h.0.attn.bias", Tensor::ones(&[1, 1, 4, 4], DType::Bool).tril(0)?),
        ("transformer.ln_f.weight", of(&[8])?),
        ("transformer.ln_f.bias", of(&[8])?),
    ];
    weights::write(file, tensors.iter().map(|(name, tensor)| (*name, tensor)))?;
    weights::read(file)
}

fn options() -> LoadOptions {
    let parts = |name: &str| ["q_proj", "k_proj", "v_proj"].map(|part| format!("0.{part}.{name}"));
    LoadOptions::new()
        .cast(true)
        .ignore("transformer.h.0.attn.bias")
        .rename("transformer.h.0.attn.c_attn.*", "0.qkv.*")
        .rename("transformer.h.0.attn.c_proj.*", "0.out_proj.*")
        .rename("transformer.ln_f.*", "1.*")
        .split("0.qkv.weight", parts("weight"), 1)
        .split("0.qkv.bias", parts("bias"), 0)
        .transpose("0.*.weight")
}

fn net(seed: u64) -> Child {
    Child::of(sequential![MultiheadAttention::new(8, 2, &mut Rng::seed(seed)), LayerNorm::new(&[8])])
}

fn bits(tensor: &Tensor) -> Vec<u64> {
    tensor.to_f64().into_iter().map(f64::to_bits).collect()
}

#[test]
fn a_network_goes_back_into_the_file_it_came_from_byte_for_byte() -> Result<()> {
    let folder = Folder::new("like");
    let [file, back] = ["model.safetensors", "back.safetensors"].map(|name| folder.at(name));
    gpt2(&file)?;
    let net = net(1);
    let loaded = weights::load_with(&net, &file, &options())?;
    weights::save_with(&net, &back, &SaveOptions::like(&loaded).ignored_of(&file))?;
    assert_eq!(fs::read(&file).unwrap(), fs::read(&back).unwrap());

    // Trained weights are found under the same names, and the file is read by the same options.
    let weight = net.named_params().into_iter().find(|(path, _)| path == "0.k_proj.weight").unwrap().1;
    weight.set(&(&weight.value() * 2.0)?)?;
    weights::save_with(&net, &back, &SaveOptions::like(&loaded))?;
    let (before, after) = (weights::read(&file)?, weights::read(&back)?);
    assert!(!after.contains_key("transformer.h.0.attn.bias"));
    let name = "transformer.h.0.attn.c_attn.weight";
    let columns = |all: &BTreeMap<String, Tensor>, range| all[name].slice(1, range).map(|part| bits(&part));
    assert_eq!(columns(&after, 0..8)?, columns(&before, 0..8)?);
    assert_eq!(columns(&after, 16..24)?, columns(&before, 16..24)?);
    let doubled = bits(&(&before[name].slice(1, 8..16)? * 2.0)?);
    assert_eq!(columns(&after, 8..16)?, doubled);
    let other = self::net(2);
    let unread = LoadOptions::new();
    assert!(weights::load_with(&other, &back, &unread).is_err());
    Ok(())
}

#[test]
fn differences_are_listed_and_nothing_is_written() -> Result<()> {
    let folder = Folder::new("unlike");
    let [file, back] = ["model.safetensors", "back.safetensors"].map(|name| folder.at(name));
    gpt2(&file)?;
    let net = net(1);
    let loaded = weights::load_with(&net, &file, &options())?;
    let like = SaveOptions::like(&loaded);

    let rng = &mut Rng::seed(1);
    let with_head =
        Child::of(sequential![MultiheadAttention::new(8, 2, rng), LayerNorm::new(&[8]), Dense::new(8, 2, rng)]);
    let refused = |net: &Child, options: &SaveOptions| weights::save_with(net, &back, options).unwrap_err().to_string();
    assert_eq!(
        refused(&with_head, &like),
        "`2.weight`, `2.bias` came from no tensor of the file; `own` writes parameters under their own paths, `own_as` \
         under other names, `without` leaves them out"
    );
    weights::save_with(&with_head, &back, &like.clone().own("2.weight").without("2.bias"))?;
    let written = weights::read(&back)?;
    assert!(written.contains_key("2.weight") && !written.contains_key("2.bias"));
    weights::save_with(&with_head, &back, &like.clone().own_as("2.*", "score.*"))?;
    let written = weights::read(&back)?;
    let weight = &with_head.named_params().into_iter().find(|(path, _)| path == "2.weight").unwrap().1;
    assert_eq!(written["score.weight"].to_f64(), weight.value().to_f64());
    assert!(written.contains_key("score.bias") && !written.contains_key("2.weight"));
    assert_eq!(
        refused(&with_head, &like.clone().own_as("2.*", "score")),
        "own: `score` has other wildcards than `2.*`; allowed: the same in the same order"
    );
    fs::remove_file(&back).unwrap();

    let smaller = Child::of(sequential![MultiheadAttention::new(8, 2, rng), LayerNorm::new(&[4])]);
    let message = refused(&smaller, &like);
    assert!(
        message.contains("`transformer.ln_f.weight` would have the shape [4]; in the file it had [8]"),
        "{message}"
    );
    let other = Child::of(sequential![MultiheadAttention::new(8, 2, rng), ReLU]);
    let message = refused(&other, &like);
    assert!(
        message.contains("`transformer.ln_f.bias` was loaded into `1.bias`, which is not in the network"),
        "{message}"
    );
    assert_eq!(
        refused(&net, &like.clone().without("**.lora")),
        "without: `**.lora` matches no parameter that came from no tensor of the file"
    );
    let bias = net.named_params().into_iter().find(|(path, _)| path == "1.bias").unwrap().1;
    bias.set(&Tensor::full(&[8], 1e5, DType::F32))?;
    assert_eq!(
        refused(&net, &like),
        "`transformer.ln_f.bias` is float16 in the file, and `1.bias` has 1e5, which that cannot hold"
    );
    assert!(!back.exists());
    Ok(())
}

/// Shards are loaded and saved one by one, and tied names stay tied.
#[test]
fn shards_and_tied_names_are_kept() -> Result<()> {
    let folder = Folder::new("shards");
    let [whole, first, second, back] = ["whole", "1", "2", "back"].map(|name| folder.at(name));
    let table = Dense::new(4, 4, &mut Rng::seed(1));
    let tied = || Child::of(sequential![table.clone(), ReLU, table.clone(), LayerNorm::new(&[4])]);
    let net = tied();
    weights::save(&net, &whole)?;
    let loaded = weights::load(&net, &whole)?;
    weights::save_with(&net, &back, &SaveOptions::like(&loaded))?;
    assert_eq!(fs::read(&whole).unwrap(), fs::read(&back).unwrap());

    let all = weights::read(&whole)?;
    let of = |begin: &'static str| {
        all.iter().filter(move |(name, _)| name.starts_with(begin)).map(|(n, t)| (n.clone(), t.clone()))
    };
    weights::write(&first, of("0."))?;
    weights::write(&second, of("3."))?;
    for (shard, others) in [(&first, "3.*"), (&second, "0.*")] {
        let loaded = weights::load_with(&net, shard, &LoadOptions::new().partial(others))?;
        weights::save_with(&net, &back, &SaveOptions::like(&loaded).without(others))?;
        assert_eq!(fs::read(shard).unwrap(), fs::read(&back).unwrap());
    }
    Ok(())
}
