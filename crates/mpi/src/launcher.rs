//! The environment variables by which a launcher describes a job.

use std::env;

/// Size, rank and ranks of this machine, as the launchers of Open MPI, of MVAPICH (`mpirun_rsh`), and of MPICH, Intel MPI
/// and Slurm with PMI-2 name them.
const JOINED: [[&str; 3]; 3] = [
    ["OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"],
    ["MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_LOCAL_SIZE"],
    ["PMI_SIZE", "PMI_RANK", "MPI_LOCALNRANKS"],
];

/// Launchers whose processes MPI cannot join: a name, the size of a job, a variable that is set with it, and a launcher
/// to use instead.
const APART: [[&str; 4]; 5] = [
    ["Slurm", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "srun --mpi=pmix"],
    ["Flux", "FLUX_JOB_SIZE", "FLUX_TASK_RANK", "flux run -o pmi=simple"],
    ["Horovod", "HOROVOD_SIZE", "HOROVOD_RANK", "mpirun"],
    ["jsrun", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_RANK", "mpirun"],
    ["torchrun", "WORLD_SIZE", "RANK", "mpirun"],
];

fn number(name: &str) -> Option<usize> {
    env::var(name).ok()?.trim().parse().ok()
}

/// Returns the first number that a launcher gives under the names of a column of [`JOINED`].
fn joined(column: usize) -> Option<usize> {
    JOINED.iter().find_map(|names| number(names[column]))
}

/// Returns the variable that gives the number of processes of a job, if there is one.
#[cfg(unix)]
pub(crate) fn variable() -> Option<&'static str> {
    JOINED.iter().map(|names| names[0]).find(|name| number(name).is_some())
}

/// Returns the number of processes that a launcher has started together with this one, or `None` without a launcher.
///
/// They are read from `OMPI_COMM_WORLD_SIZE` (Open MPI), `MV2_COMM_WORLD_SIZE` (MVAPICH), `PMI_SIZE` (MPICH, Intel, Slurm
/// with PMI-2), or, in a step of Slurm with PMIx, `SLURM_STEP_NUM_TASKS`.
pub fn launched() -> Option<usize> {
    let of_slurm = || number("PMIX_RANK").and_then(|_| number("SLURM_STEP_NUM_TASKS"));
    joined(0).or_else(of_slurm).filter(|size| *size > 0)
}

/// Returns the number of this process among those that a launcher has started, or `None` without a launcher.
///
/// It is read from `OMPI_COMM_WORLD_RANK` (Open MPI), `MV2_COMM_WORLD_RANK` (MVAPICH), `PMI_RANK` (MPICH, Intel, Slurm
/// with PMI-2), or, in a step of Slurm with PMIx, `PMIX_RANK`.
pub fn launched_as() -> Option<usize> {
    launched()?;
    joined(1).or_else(|| number("PMIX_RANK"))
}

/// Returns a sentence about several processes that a launcher has started, if MPI cannot join them: those of `srun`
/// without PMIx or PMI-2, of Flux without PMI, of torchrun, Horovod or jsrun.
pub fn launched_apart() -> Option<String> {
    if launched().is_some() {
        return None;
    }
    APART.iter().find_map(|[name, size, with, instead]| {
        let size = number(size).filter(|size| *size > 1 && env::var_os(with).is_some())?;
        Some(format!(
            "{name} has started {size} processes, which MPI cannot join; `{instead} -n {size}` starts a job of MPI"
        ))
    })
}

/// Returns the number of ranks on this machine, or `None` if the launcher does not say it.
///
/// They are read from `OMPI_COMM_WORLD_LOCAL_SIZE` (Open MPI), `MV2_COMM_WORLD_LOCAL_SIZE` (MVAPICH), `MPI_LOCALNRANKS`
/// (MPICH, Intel), or, in a step of Slurm, `SLURM_STEP_TASKS_PER_NODE`, of which the largest number counts.
pub fn local_ranks() -> Option<usize> {
    let of_slurm = || most_per_node(&env::var("SLURM_STEP_TASKS_PER_NODE").ok()?);
    joined(2).or_else(of_slurm).filter(|ranks| *ranks > 0)
}

/// Reads Slurm's tasks of each node, such as `4(x2),3`: two nodes with 4 and one with 3.
fn most_per_node(text: &str) -> Option<usize> {
    text.split(',').filter_map(|node| node.split('(').next()?.trim().parse().ok()).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_of_slurm_are_read() {
        assert_eq!(most_per_node("2"), Some(2));
        assert_eq!(most_per_node("3,4(x2)"), Some(4));
        assert_eq!(most_per_node("many"), None);
    }
}
