//! The command under failing files, disks and readers: no completed work is lost, and exit statuses are truthful.

use std::{fs, path::Path, process::Stdio};

use serde_json::Value;

use crate::program::{Folder, command, error, messages, precast_in, text};

const SHORT: [&str; 9] = ["train", "mlp", "--epochs", "1", "--examples", "64", "-p", "o0", "--quiet"];

fn metrics(folder: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(folder.join("precast-out/metrics.json")).unwrap()).unwrap()
}

#[test]
fn images_too_large_for_memory_are_refused_before_any_is_made() {
    let folder = Folder::new("large");
    let model = |side: usize| {
        let text = format!("version: 1\ninput: [1, {side}, {side}]\nnet: {{kind: Flatten}}\n");
        folder.write(&format!("{side}.yaml"), &text)
    };
    let message = error(2, precast_in(&folder.0, &["train", &model(4096)]));
    assert!(message.contains("1797 digits of that size would take 112.3 GiB, allowed: 1.0 GiB"), "{message}");
    error(2, precast_in(&folder.0, &["train", &model(1 << 40)]));
    // One pixel more than fits.
    let message = error(2, precast_in(&folder.0, &["train", &model(387)]));
    assert!(message.contains("images of 387 x 387"), "{message}");
}

#[test]
fn weights_too_large_for_memory_are_refused_before_any_is_drawn() {
    let folder = Folder::new("weights");
    let dense = "version: 1\nnet: {kind: Dense, in_features: 100000, out_features: 1000000}\n";
    let message = error(2, precast_in(&folder.0, &["plan", &folder.write("dense.yaml", dense), "-p", "o2"]));
    assert!(
        message.contains("dense.yaml:2:6: a parameter of shape [1000000, 100000] has 100000000000 numbers"),
        "{message}"
    );
    assert!(message.contains("a file may ask for 1073741824 in all"), "{message}");
}

#[test]
fn more_layers_than_memory_has_are_refused_before_any_is_made() {
    let folder = Folder::new("layers");
    for kind in ["RNN", "GRU", "LSTM"] {
        let cell = format!("{{kind: {kind}, input_size: 1, hidden_size: 1, num_layers: 1000000000000}}");
        let model = folder.write("model.yaml", &format!("version: 1\nnet: {cell}\n"));
        let message = error(2, precast_in(&folder.0, &["plan", &model, "-p", "o2"]));
        assert!(message.contains("model.yaml:2:"), "{message}");
        assert!(message.contains("`num_layers` is 1000000000000; allowed: 1 to 4096"), "{message}");
    }
}

#[test]
fn a_folder_that_cannot_be_written_is_refused_before_training() {
    let folder = Folder::new("unwritable");
    fs::create_dir_all(folder.0.join("out/metrics.json")).unwrap();
    let message = error(2, precast_in(&folder.0, &[&SHORT[..], &["--output", "out"]].concat()));
    assert!(message.contains("--output out: cannot write out/metrics.json: "), "{message}");
    fs::create_dir_all(folder.0.join("weights/o0.safetensors")).unwrap();
    let args = [&SHORT[..], &["--save-weights", "--output", "weights"]].concat();
    let message = error(2, precast_in(&folder.0, &args));
    assert!(message.contains("weights/o0.safetensors"), "{message}");
    assert_eq!(fs::read_dir(folder.0.join("weights")).unwrap().count(), 1, "trying leaves nothing");
}

/// A file of metrics longer than a file may be, or than the disk has room for; all others fit.
#[cfg(unix)]
mod writes {
    use std::{
        fs,
        path::Path,
        process::{Command, Output},
    };

    use crate::program::{Folder, messages, precast_in};

    const LONG: [&str; 9] = ["train", "mlp", "--epochs", "4", "--examples", "1200", "-p", "o0", "--quiet"];
    const OLD: &str = r#"{"model":"of yesterday"}"#;

    /// Checks that only the unwritable file is lost, and that its previous contents remain.
    fn check(out: &Path, output: Output, why: &str) {
        let (stdout, stderr) = (String::from_utf8(output.stdout).unwrap(), messages(output.stderr));
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(stdout.contains("| o0 "), "the table is printed: {stdout}");
        assert!(stderr.contains("precast-out/metrics.json: ") && stderr.contains(why), "{stderr}");
        assert!(stdout.contains("written: precast-out/plans.txt"), "what fits is written: {stdout}");
        assert_eq!(fs::read_to_string(out.join("metrics.json")).unwrap(), OLD);
        let names = || fs::read_dir(out).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        assert!(names().all(|name| !name.ends_with(".tmp")), "{:?}", names().collect::<Vec<_>>());
    }

    /// A limit of 4 KiB per file, set by the shell.
    #[test]
    fn failing_writes_cost_the_file_and_nothing_else() {
        let folder = Folder::new("limited");
        let out = folder.0.join("precast-out");
        fs::create_dir(&out).unwrap();
        fs::write(out.join("metrics.json"), OLD).unwrap();
        let limited = "trap '' XFSZ; ulimit -f 8; exec \"$@\"";
        let precast = env!("CARGO_BIN_EXE_precast");
        let run = Command::new("sh").args(["-c", limited, "sh", precast]).args(LONG).current_dir(&folder.0).output();
        check(&out, run.unwrap(), "large");
    }

    /// A disk of 64 KiB, where one can be mounted.
    #[test]
    #[cfg(target_os = "linux")]
    fn full_disks_cost_the_file_and_nothing_else() {
        struct Mounted<'a>(&'a Path);
        impl Drop for Mounted<'_> {
            fn drop(&mut self) {
                let _ = Command::new("umount").arg(self.0).status();
            }
        }

        let folder = Folder::new("full-disk");
        let out = folder.0.join("precast-out");
        fs::create_dir(&out).unwrap();
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"]).arg(&out).output();
        if !mount.is_ok_and(|mount| mount.status.success()) {
            println!("no small disk can be mounted here");
            return;
        }
        let _mounted = Mounted(&out);
        fs::write(out.join("metrics.json"), OLD).unwrap();
        fs::write(out.join("filler"), [0; 48 << 10]).unwrap();
        check(&out, precast_in(&folder.0, &LONG), "space");
    }
}

#[test]
fn a_closed_pipe_changes_neither_the_run_nor_its_status() {
    let run = |name: &str, args: &[&str]| {
        let folder = Folder::new(name);
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = command(&folder.0, args).stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
        let output = output.wait_with_output().unwrap();
        (metrics(&folder.0), output.status.code(), messages(output.stderr))
    };
    for quiet in [&SHORT[..], &SHORT[..8]] {
        let (metrics, status, stderr) = run("unread", quiet);
        assert_eq!((status, stderr.as_str()), (Some(0), ""));
        assert_eq!(metrics["runs"][0]["steps"], 2, "all steps are done");
    }
    let stalls = ["train", "mlp", "--examples", "100", "--batch", "4", "--lr", "1e30", "-p", "o0"];
    let (metrics, status, stderr) = run("unread-stalled", &stalls);
    assert_eq!(status, Some(1));
    assert!(stderr.starts_with("error: o0 stalled at step "), "{stderr}");
    assert!(metrics["runs"][0]["stalled"].is_string());
}

#[test]
#[cfg(target_os = "linux")]
fn closed_output_fails_after_the_files_are_written() {
    let folder = Folder::new("dev-full");
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let output = command(&folder.0, &SHORT).stdout(full).output().unwrap();
    let stderr = messages(output.stderr);
    assert_eq!((output.status.code(), stderr.lines().count()), (Some(1), 1), "{stderr}");
    assert!(stderr.starts_with("error: standard output: "), "{stderr}");
    assert_eq!(metrics(&folder.0)["runs"][0]["steps"], 2);
}

#[test]
#[cfg(target_os = "linux")]
fn every_output_without_space_is_one_line_and_exit_1() {
    let folder = Folder::new("all-full");
    for args in [
        "--help",
        "--version",
        "help plan",
        "plan mlp --policy o2",
        "explain mlp 1 --policy o2",
        "diff mlp --policy o1 --policy o2",
        "lint mlp --policy o2",
        "graph mlp",
        "init mlp",
        "export mlp --policy o2 --to torch",
        "show levels",
        "show ops",
        "show cells",
        "show mlp",
        "show schema",
        "show completions bash",
        "show man plan",
        "graph mlp --svg /dev/full",
        "init mlp --output /dev/full",
        "plan mlp --policy o2 --html /dev/full",
        "export mlp --policy o2 --to torch --output /dev/full",
        "export mlp --to onnx --output /dev/full",
        "show bench --speeds /dev/full",
    ] {
        let mut command = command(&folder.0, &args.split(' ').collect::<Vec<_>>());
        if !args.contains("/dev/full") {
            command.stdout(fs::File::options().write(true).open("/dev/full").unwrap());
        }
        let output = command.output().unwrap();
        let stderr = messages(output.stderr);
        assert_eq!((output.status.code(), stderr.lines().count()), (Some(1), 1), "{args}: {stderr}");
        let file = if args.contains("/dev/full") { "/dev/full" } else { "standard output" };
        assert!(stderr.starts_with(&format!("error: {file}: ")), "{args}: {stderr}");
    }
}

#[test]
fn an_example_that_would_be_left_alone_joins_the_last_batch() {
    let folder = Folder::new("alone");
    let train = |examples: &str, more: &[&str]| {
        precast_in(&folder.0, &[&["train", "mlp", "--epochs", "1", "-p", "o0", "--examples", examples], more].concat())
    };
    let shown = text(train("65", &[]));
    assert_eq!(shown.matches("the last batch has 33, so that no digit is left over").count(), 1, "{shown}");
    assert_eq!(metrics(&folder.0)["runs"][0]["steps"], 2);
    assert!(!text(train("66", &[])).contains("left over"));
    assert_eq!(metrics(&folder.0)["runs"][0]["steps"], 3);
    // With only single-example batches, nothing can be joined: a batch norm reports it before the first step.
    for (examples, more) in [("64", &["--batch", "1"][..]), ("1", &[])] {
        let message = error(2, train(examples, more));
        assert!(message.contains("cannot be trained with a single example: in cell `1`: "), "{message}");
    }
}

#[test]
fn what_a_file_says_drives_no_terminal_and_forges_no_line() {
    let folder = Folder::new("controls");
    let policy = "version: 1\nname: \"evil\\n(root)  Nothing\\e[2J\"\nlevel: O2\ndtype: float16\n\
                  rules: [{path: \"0\", run: float32, because: \"two\\nlines\\e[31m\"}]\n";
    let file = folder.write("p.yaml", policy);
    let plain = folder.write("plain.yaml", &policy.replace("\\n", " ").replace("\\e", " "));
    for args in [
        &["plan", "mlp", "-p"][..],
        &["plan", "mlp", "--format", "table", "-p"],
        &["explain", "mlp", "0", "-p"],
        &["diff", "mlp", "-p", "o3", "-p"],
        &["train", "mlp", "--epochs", "1", "--examples", "64", "-p"],
    ] {
        let shown = |file: &str| text(precast_in(&folder.0, &[args, &[file]].concat()));
        let (met, lines) = (shown(&file), shown(&plain).lines().count());
        assert!(met.chars().all(|c| c == '\n' || !c.is_control()), "{met:?}");
        assert_eq!(met.lines().count(), lines, "{met}");
        assert!(met.contains(r"evil\n(root)  Nothing\u{1b}[2J") || args[0] == "explain", "{met}");
    }
    let plans = fs::read_to_string(folder.0.join("precast-out/plans.txt")).unwrap();
    assert!(plans.chars().all(|c| c == '\n' || !c.is_control()), "{plans:?}");
    let missing = error(2, precast_in(&folder.0, &["plan", "no\u{1b}[2Jfile", "-p", "o2"]));
    assert!(missing.contains(r"no\u{1b}[2Jfile"), "{missing:?}");
}

#[cfg(unix)]
mod paths {
    use std::{
        ffi::{OsStr, OsString},
        os::unix::ffi::OsStrExt,
    };

    use super::*;

    const MODEL: &str = "version: 1\ninput: [64]\nnet: {kind: Dense, in_features: 64, out_features: 10}\n";
    const POLICY: &str = "version: 1\nlevel: O2\ndtype: float16\n";

    #[test]
    fn paths_that_are_not_utf8_are_taken_everywhere() {
        let folder = Folder::new("not-utf8");
        let name = |text: &[u8]| OsStr::from_bytes(text).to_os_string();
        let (model, policy, out) = (name(b"m\xff.yaml"), name(b"p\xff.yaml"), name(b"out\xff"));
        let other = name(b"q\xff.yaml");
        if fs::write(folder.0.join(&model), MODEL).is_err() {
            println!("this file system takes UTF-8 only");
            return;
        }
        for file in [&policy, &other] {
            fs::write(folder.0.join(file), POLICY).unwrap();
        }
        let run = |args: &[&OsStr]| text(command(&folder.0, args).output().unwrap());
        let s = OsStr::new;
        assert!(
            run(&[s("plan"), &model, s("-p"), &policy]).contains("model   m\u{fffd}.yaml\npolicy  p\u{fffd}.yaml\n")
        );
        run(&[s("explain"), &model, s("."), s("-p"), &policy]);
        run(&[s("diff"), &model, s("-p"), &policy, s("-p"), &other]);
        let train = [&model, s("-p"), &policy, s("--output"), &out, s("--save-weights"), s("--epochs"), s("1")];
        run(&[&[s("train"), s("--examples"), s("64")], &train[..]].concat());
        let written: Vec<OsString> =
            fs::read_dir(folder.0.join(&out)).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(written.len(), 4, "{written:?}");
    }

    /// The names of runs come from file names, and appear in the picture.
    #[test]
    fn the_picture_is_a_document_whatever_a_file_is_called() {
        let folder = Folder::new("svg");
        let policy = folder.write("o<2>&\u{1b}\n\u{ffff}.yaml", POLICY);
        text(
            command(&folder.0, &["train", "mlp", "--epochs", "1", "--examples", "64", "-p", &policy]).output().unwrap(),
        );
        let svg = fs::read_to_string(folder.0.join("precast-out/curves.svg")).unwrap();
        assert!(svg.contains(r"o&lt;2&gt;&amp;\u{1b}\n\u{ffff}"), "{svg}");
        let allowed = |c: char| c == '\n' || c == '\t' || !(c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}'));
        assert!(svg.chars().all(allowed));
    }
}

/// Each of these processes would train alone, without a word.
#[test]
fn processes_that_mpi_cannot_join_have_a_note() {
    let folder = Folder::new("apart");
    let run = |variables: &[(&str, &str)]| {
        let output = command(&folder.0, &["train", "none.yaml"]).envs(variables.iter().copied()).output().unwrap();
        String::from_utf8(output.stderr).unwrap()
    };
    let slurm = [("SLURM_PROCID", "1"), ("SLURM_STEP_NUM_TASKS", "4")];
    let words = "note: Slurm has started 4 processes, which MPI cannot join; `srun --mpi=pmix -n 4` starts a job of MPI, and \
                 this process trains alone\n";
    assert!(run(&slurm).contains(words), "{}", run(&slurm));
    assert!(run(&[("WORLD_SIZE", "2"), ("RANK", "0")]).contains("note: torchrun has started 2 processes"));
    let flux = run(&[("FLUX_JOB_SIZE", "4"), ("FLUX_TASK_RANK", "1")]);
    assert!(
        flux.contains("Flux has started 4 processes, which MPI cannot join; `flux run -o pmi=simple -n 4`"),
        "{flux}"
    );
    // One task, and a script that Slurm has started.
    assert!(!run(&[("SLURM_PROCID", "0"), ("SLURM_STEP_NUM_TASKS", "1")]).contains("MPI"));
    assert!(!run(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4")]).contains("MPI"));
    assert!(!run(&[("WORLD_SIZE", "2")]).contains("MPI"));
}

#[test]
fn a_launcher_of_several_processes_is_for_training() {
    let folder = Folder::new("launched");
    let run = |args: &[&str], rank: &str| {
        let mut command = command(&folder.0, args);
        command.env("OMPI_COMM_WORLD_SIZE", "4").env("OMPI_COMM_WORLD_RANK", rank).output().unwrap()
    };
    let words = error(2, run(&["plan", "lenet5", "--policy", "o2"], "0"));
    assert!(words.contains("the launcher has started 4 processes, and `train` alone divides its work"), "{words}");
    // One of them speaks.
    for args in [&["plan", "lenet5", "--policy", "o2"][..], &["train", "--epoch", "3"]] {
        let output = run(args, "1");
        assert_eq!((output.status.code(), output.stdout, output.stderr), (Some(2), vec![], vec![]));
    }
    assert!(error(2, run(&["train", "--epoch", "3"], "0")).contains("--epochs"));
}
