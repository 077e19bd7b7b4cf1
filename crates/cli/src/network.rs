//! The subject of a plan: a network, or stored weights from which the cells are inferred.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use precast::{Plan, Policy, io::models::Model, policy::Prefer, storage::stored::StoredModel};
use precast_explorer::Inferred;
use precast_train::RunFile;

use super::{
    Cli, Failure, Result,
    inputs::{self, Predicting, Read},
    run::{is_run_file, model},
};

/// A network, or the weights of one.
pub(super) enum Network {
    /// A network that can be called.
    Built(Read<Model>),
    /// Weights whose cells are inferred from the names and the shapes of tensors.
    Stored(Read<StoredModel>),
}

impl Network {
    /// Reads the model of a run, a safetensors file, or a folder with such files that does not have the name of a model; otherwise a model.
    pub fn read(cli: &Cli, argument: &Path) -> Result<Self> {
        Network::of(cli, argument, run_file(argument)?.as_ref())
    }

    /// Reads a network as [`read`](Network::read) does; `run` is the [run](run_file) of the argument.
    pub fn of(cli: &Cli, argument: &Path, run: Option<&RunFile>) -> Result<Self> {
        if let Some(run) = run {
            return Ok(Network::Built(Read::of_file(model(cli, run)?, argument)));
        }
        let folder = argument.is_dir() && !argument.to_str().is_some_and(|name| cli.model_names().contains(&name));
        match folder || argument.extension().is_some_and(|end| end == "safetensors") {
            true => Ok(Network::Stored(inputs::stored(argument)?)),
            false => {
                // In training mode, since predictions are of training steps. The weights do not matter.
                let mut model = inputs::model(cli, argument, 0)?;
                model.value.net.set_train(true);
                Ok(Network::Built(model))
            }
        }
    }

    /// Returns the plan of a policy, with a prediction if `predict` is set or the policy prefers speed.
    pub fn plan(&self, predicting: &Predicting, policy: &Policy, predict: bool) -> Result<Plan> {
        match self {
            Network::Built(model) => predicting.plan(model, policy, predict),
            Network::Stored(model) if predict || policy.prefer == Prefer::Speed => {
                Err(uncallable(model, "a prediction is of a call"))
            }
            Network::Stored(model) => Ok(policy.plan_outline(model.value.outline())?),
        }
    }

    /// Describes the rules for a part of a run that can have no effect.
    pub fn idle_rules(&self, policy: &Policy) -> Result<Vec<String>> {
        Ok(match self {
            Network::Built(model) => policy.idle_rules(&model.value.net, None)?,
            Network::Stored(model) => policy.idle_rules(&model.value.outline(), None)?,
        })
    }

    /// Returns the network, for a policy for graphs.
    pub fn callable(&mut self) -> Result<&mut Read<Model>> {
        self.callable_for("a policy for graphs rewrites the graph of a call")
    }

    /// Returns the network; otherwise an error that says why it must be one.
    pub fn callable_for(&mut self, why: &str) -> Result<&mut Read<Model>> {
        match self {
            Network::Built(model) => Ok(model),
            Network::Stored(model) => Err(uncallable(model, why)),
        }
    }

    /// Returns the facts about inferred cells in this plan.
    pub fn inferred(&self, plan: &Plan) -> Option<Inferred> {
        match self {
            Network::Built(_) => None,
            Network::Stored(model) => Some(Inferred::of(&model.value, plan)),
        }
    }

    /// Returns a line for the network, one for each policy and, for inferred cells, those that could not be inferred.
    pub fn header<P>(&self, policies: &[&Read<P>], plan: &Plan) -> String {
        match self {
            Network::Built(model) => inputs::header(model, policies),
            Network::Stored(model) => {
                let head = inputs::header(model, policies);
                format!("{head}cells   {}\n", Inferred::of(&model.value, plan))
            }
        }
    }
}

impl fmt::Display for Network {
    /// Writes the argument, as [`Read`] does.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Network::Built(model) => model.fmt(f),
            Network::Stored(model) => model.fmt(f),
        }
    }
}

/// Returns the run of a run file or of the folder of a run, with its policy as it is now.
pub(super) fn run_file(argument: &Path) -> Result<Option<RunFile>> {
    Ok(match argument.is_dir() {
        true if argument.join("run.yaml").is_file() => Some(RunFile::of_folder(argument)?.as_now()?),
        false if argument.is_file() && is_run_file(argument) => Some(RunFile::load(argument)?),
        _ => None,
    })
}

/// Returns the policy that is given, otherwise that of the run.
pub(super) fn policy_of(given: Option<&Path>, run: Option<&RunFile>) -> Result<PathBuf> {
    match (given, run) {
        (Some(policy), _) => Ok(policy.to_path_buf()),
        (None, Some(run)) => Ok(run.policy_path()),
        (None, None) => Err(Failure::Usage("--policy is missing: name a file or a built-in policy, such as `--policy o2`; only a run has one of its own".into())),
    }
}

fn uncallable(model: &Read<StoredModel>, why: &str) -> Failure {
    Failure::Usage(format!("{why}, and {model} is weights without code"))
}
