//! The words of messages about run files: keys of other systems, hints and examples.

use precast::error::ErrorKind;
use precast_policy::document::Document;
use serde_yaml::Spanned as At;

use super::run_file::RunV1;

impl Document for RunV1 {
    const WHAT: &'static str = "run";
    const KIND: ErrorKind = ErrorKind::Run;
    /// Large enough for the file in a run's folder, which has the names of all columns and classes of its data.
    const MAX_BYTES: usize = 64 << 20;
    const MAX_NODES: usize = 1 << 22;
    const REQUIRED: &'static [&'static str] = &["version", "model", "data"];

    fn version(&self) -> &At<u32> {
        &self.version
    }

    fn elsewhere(key: &str) -> Option<&'static str> {
        Some(match key {
            "learning_rate" => "lr",
            "batch_size" => "batch",
            "random_state" => "seed",
            "net" | "network" => "model",
            "dataset" => "data",
            "scheduler" | "lr_scheduler" => "schedule",
            "val" | "val_split" | "validation_split" | "validation_data" => "validation",
            "early_stopping" => "patience",
            "criterion" | "loss_fn" => "loss",
            "warmup" | "warmup_steps" => "warm_up",
            "learning_rate_decay" => "lr_decay",
            "epsilon" => "eps",
            "l2" | "wd" => "weight_decay",
            "ns_steps" => "rounds",
            "initial_accumulator_value" => "initial_sum",
            "rho" => "alpha",
            "pretrained" | "init_from" | "load" => "weights",
            "frozen" => "freeze",
            "ema" | "ema_decay" => "average",
            "grad_clip" | "max_grad_norm" | "clip_norm" | "gradient_clip_val" => "clip",
            "accumulate_grad_batches" | "gradient_accumulation_steps" | "accumulation" => "accumulate",
            "augmentation" | "augmentations" | "transforms" => "augment",
            "horizontal_flip" | "hflip" | "random_flip" => "flip",
            "random_crop" | "padding" => "crop",
            "mixup_alpha" => "mixup",
            "memory_limit" | "max_memory" | "cache" => "memory",
            "param_groups" => "groups",
            _ => return None,
        })
    }

    fn place(key: &str) -> &'static str {
        match key {
            "lr" | "learning_rate" => "`lr` is a key next to `optimizer`",
            "lr_factor" => "it is an option of each of `groups`",
            "seed" => "it is the `seed` of the run",
            _ => "",
        }
    }

    fn allowed(key: &str) -> &'static str {
        match key {
            "model" => "an architecture file, the name of a built-in model, such as lenet5, or `{onnx: model.onnx}`",
            "policy" => "a policy file, or the name of a built-in policy, such as o2-bf16",
            "data" => "digits, csv, images, npy, text, addition",
            "file" => "a path",
            "memory" => "256 MiB, or another number of bytes",
            "every" => "a number of steps",
            "factor" => "a number, such as 0.1",
            "path" => "a pattern of paths, such as encoder.**",
            _ => "",
        }
    }

    fn example(key: &str) -> &'static str {
        match key {
            "onnx" => "`{onnx: model.onnx, fix: {sr: 16000}, axes: {sequence: 128}}`",
            "csv" => "`csv: {file: iris.csv, target: species}`",
            "weights" => "`{file: base.safetensors, partial: ['head.**']}`",
            "groups" => "`[{path: 'encoder.**', lr_factor: 0.1}]`",
            "augment" => "`{flip: true, crop: 4}`",
            "checkpoint" => "`{every: 100, keep: 2}`",
            "adam" | "adamw" | "lion" | "lamb" => "`{betas: [0.9, 0.95], weight_decay: 0.1}`",
            "sgd" | "rmsprop" | "muon" => "`{momentum: 0.9}`",
            "masters" | "low" | "stochastic_rounding" | "kahan" => "`{exclude: [head]}`",
            _ => "",
        }
    }
}
