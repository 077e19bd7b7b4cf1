//! The words of messages about run files: keys of other systems, hints and examples.

use precast::{error::ErrorKind, options::Options};
use precast_base::{document::Document, formats::OF_PANDAS};

use super::run_file::{RunFile, RunV1};

/// Formats of tables that no reader reads, as the endings of files have them.
const OTHERS: [&str; 13] =
    ["parquet", "feather", "arrow", "orc", "json", "jsonl", "ndjson", "xls", "xlsx", "excel", "hdf5", "h5", "sqlite"];

impl Document for RunV1 {
    const WHAT: &'static str = "run";
    const KIND: ErrorKind = ErrorKind::Run;
    /// Large enough for the file in a run's folder, which has the names of all columns and classes of its data.
    const MAX_BYTES: usize = 64 << 20;
    const MAX_NODES: usize = 1 << 22;
    const REQUIRED: &'static [&'static str] = &["version", "model", "data"];

    fn elsewhere(key: &str) -> &'static [&'static str] {
        match key {
            "learning_rate" | "eta" => &["lr"],
            "batch_size" | "batchsize" | "bs" => &["batch"],
            "num_epochs" | "n_epochs" | "max_epochs" | "nb_epoch" | "num_train_epochs" => &["epochs"],
            "random_state" | "random_seed" | "manual_seed" => &["seed"],
            "net" | "network" | "arch" | "architecture" => &["model"],
            "dataset" | "train" | "train_data" | "training_data" => &["data"],
            "scheduler" | "lr_scheduler" | "lr_schedule" => &["schedule"],
            "test_size" | "test_split" | "test_data" | "eval" | "holdout" => &["test"],
            "val" | "valid" | "dev" | "val_split" | "validation_split" | "validation_data" => &["validation"],
            "early_stopping" | "early_stop" => &["patience"],
            "criterion" | "loss_fn" | "loss_function" | "objective" => &["loss"],
            "warmup" | "warmup_steps" => &["warm_up"],
            "run_name" | "project" | "experiment" => &["name"],
            "precision" | "mixed_precision" | "amp" | "amp_level" | "fp16" | "bf16" | "level" | "dtype" => &["policy"],
            "normalize" | "normalise" | "standardise" | "scaler" | "scale" => &["standardize"],
            "normalize_targets" | "scale_targets" => &["standardize_targets"],
            "checkpoint_every" | "save_every" | "save_interval" | "checkpoints" => &["checkpoint"],
            "lr_decay" | "decay" => &["schedule"],
            "learning_rate_decay" => &["lr_decay"],
            "gamma" => &["factor"],
            "step_size" => &["every"],
            "epsilon" => &["eps"],
            "l2" | "wd" => &["weight_decay"],
            "ns_steps" => &["rounds"],
            "initial_accumulator_value" => &["initial_sum"],
            "rho" => &["alpha"],
            "pretrained" | "init_from" | "load" | "init" | "weights_file" | "ckpt" => &["weights"],
            "frozen" => &["freeze"],
            "ema" | "ema_decay" => &["average"],
            "grad_clip" | "gradient_clip" | "clip_grad" | "clip_grad_norm" | "max_grad_norm" | "clip_norm"
            | "gradient_clip_val" => &["clip"],
            "accumulate_grad_batches" | "gradient_accumulation_steps" | "accumulation" => &["accumulate"],
            "augmentation" | "augmentations" | "transforms" => &["augment"],
            "horizontal_flip" | "hflip" | "random_flip" => &["flip"],
            "random_crop" | "padding" => &["crop"],
            "mixup_alpha" => &["mixup"],
            "zero" | "zero_stage" | "zero_optimization" | "fsdp" | "sharding" => &["shard_optimizer"],
            "reduce_dtype" | "comm_dtype" | "communication_data_type" | "gradient_compression" => &["wire"],
            "memory_limit" | "max_memory" | "cache" => &["memory"],
            "param_groups" => &["groups"],
            "path" | "filename" | "filepath" | "dir" | "directory" | "root" => &["file", "folder"],
            "categorical"
            | "categories"
            | "cat_features"
            | "categorical_columns"
            | "categorical_features"
            | "onehot"
            | "dummies"
            | "get_dummies" => &["one_hot"],
            "embedding" | "embeddings" | "embed" | "ordinal" | "label_encode" => &["indices"],
            "impute" | "imputer" | "fillna" | "fill" | "fill_missing" => &["empty"],
            "na_values" | "na" | "nan" | "null_values" | "missing_values" => &["missing"],
            "drop" | "drop_columns" | "exclude" | "skip" | "ignore_columns" | "index_col" | "id" => &["ignore"],
            "features" | "inputs" | "usecols" | "input_columns" | "feature_columns" | "x" => &["columns", "inputs"],
            "labels" | "label" | "target" | "targets" | "target_column" | "label_column" | "y" | "output" => {
                &["target", "targets"]
            }
            "sep" | "separator" => &["delimiter"],
            "decimal_separator" | "decimal_point" => &["decimal"],
            "task" | "target_type" | "type" => &["as"],
            "classes" | "labels_order" => &["class_names"],
            "has_header" => &["header"],
            "size" | "image_size" | "img_size" => &["resize"],
            "color_mode" | "mode" | "channels" | "grayscale" | "gray" | "grey" => &["pixels"],
            "seq_len" | "sequence_length" | "context" | "block_size" | "max_length" => &["length"],
            "tokenizer" => &["tokens"],
            "table" => &["csv"],
            "image_folder" | "imagefolder" | "pictures" => &["images"],
            "numpy" | "npz" => &["npy"],
            _ => &[],
        }
    }

    fn place(key: &str, allowed: &[&str]) -> String {
        let keys = <RunV1 as Options>::options();
        let has = |name: &str| allowed.contains(&name);
        let words = match key {
            // Next to `version`.
            "device" | "gpu" | "cuda" | "accelerator" => "runs are on the CPU, so there is no device to choose",
            "shuffle" => "the training examples are shuffled anew in each epoch, by the `seed` of the run",
            "num_workers" | "workers" | "threads" => {
                "the environment variable PRECAST_THREADS has the number of threads"
            }
            "metrics" => "all scores are written to `scores.json` in the folder of the run",
            "verbose" | "log_level" => "`precast train --quiet` leaves out the lines of epochs",
            "output" | "output_dir" | "out" | "save_dir" | "logdir" | "log_dir" if has("version") => {
                "`precast train --output FOLDER` names the folder of a run"
            }
            "resume" => "`precast train --resume FOLDER` continues a run",
            "steps" | "max_steps" | "iterations" if has("version") => "the length of a run is a number of `epochs`",
            "momentum" | "betas" | "eps" | "weight_decay" | "nesterov" | "amsgrad" if has("version") => {
                "it is an option of the optimizer, as in `optimizer: {adamw: {weight_decay: 0.1}}`"
            }
            "rules" | "loss_scale" | "low" | "full" | "cells" if has("version") => {
                "it belongs to a policy, which is a file of its own: `policy: mine.yaml`"
            }
            "csv" | "images" | "npy" | "text" | "file" | "target" | "features" | "columns" | "inputs" | "targets"
                if has("version") =>
            {
                "it belongs to the data, as in `data: {csv: {file: iris.csv, target: species}}`"
            }
            "dropout" | "layers" if has("version") => {
                "it belongs to the model, which is a file of its own: `model: net.yaml`"
            }
            "kind" | "cells" | "layers" | "input" if has("onnx") => {
                "a network is a file of its own: `model: net.yaml`; `precast show cells` shows the kinds"
            }
            "dtype" if has("delimiter") => "`as: classes` or `as: numbers` is the kind of targets",
            "file" | "target" if has("csv") => {
                "the kind of the data comes first: `csv: {file: iris.csv, target: species}`"
            }
            name if has("csv") && OTHERS.contains(&name.rsplit('.').next().unwrap_or(name)) => OF_PANDAS,
            name if has("csv") && name.contains(['.', '/']) => {
                "a file is named with its kind: `csv: {file: iris.csv, target: species}`"
            }
            "name" | "type" | "kind" if has("adam") => {
                "the name of an optimizer is the key of its options: `adam: {eps: 1e-6}`"
            }
            "name" | "type" | "kind" if has("cosine") => {
                "the name of a schedule is the key of its options: `step: {every: 100}`"
            }
            name if has("adam") && name.contains('(') => {
                "options are a map: `{adam: {eps: 1e-6}}`, and `lr` is a key next to it"
            }
            "weights" if has("ignore_index") => "the weights of the classes are `weight`",
            "lr_factor" => "it is an option of each of `groups`",
            _ => "",
        };
        if !words.is_empty() || has("version") {
            return words.into();
        }
        // A key of the run, perhaps under another name.
        let of_run = |ours: &&str| keys.iter().any(|option| option.name == **ours) && !(key == "zero" && has("median"));
        match [key].iter().chain(RunV1::elsewhere(key)).find(|ours| of_run(ours)) {
            Some(ours) => format!("`{ours}` is a key of the run, next to `model` and `data`"),
            None => String::new(),
        }
    }

    fn allowed(key: &str) -> &'static str {
        match key {
            "model" => "an architecture file, the name of a built-in model, such as lenet5, or `{onnx: model.onnx}`",
            "policy" => "a policy file, such as mine.yaml, or the name of a built-in policy, such as o2-bf16",
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

impl RunFile {
    /// Returns the key of run files that has this name, or this name in another tool.
    ///
    /// ```
    /// use precast_train::RunFile;
    /// assert_eq!(RunFile::key_like("max_grad_norm").as_deref(), Some("clip"));
    /// assert_eq!(RunFile::key_like("colour"), None);
    /// ```
    pub fn key_like(word: &str) -> Option<String> {
        let keys = RunV1::options();
        let named = |name: &&str| keys.iter().any(|option| option.name == **name);
        [word].iter().chain(RunV1::elsewhere(word)).find(|name| named(name)).map(|name| name.to_string())
    }
}
