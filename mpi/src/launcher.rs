//! The environment variables by which a launcher describes a job.

use std::env;

fn number(name: &str) -> Option<usize> {
    env::var(name).ok()?.trim().parse().ok()
}

/// Returns the number of processes that a launcher has started together with this one, or `None` without a launcher.
///
/// They are read from `OMPI_COMM_WORLD_SIZE` (Open MPI), `PMI_SIZE` (MPICH, Intel, Slurm with PMI-2), or, in a step of
/// Slurm with PMIx, `SLURM_STEP_NUM_TASKS`.
pub fn launched() -> Option<usize> {
    let of_slurm = || number("PMIX_RANK").and_then(|_| number("SLURM_STEP_NUM_TASKS"));
    number("OMPI_COMM_WORLD_SIZE").or_else(|| number("PMI_SIZE")).or_else(of_slurm).filter(|size| *size > 0)
}

/// Returns the number of this process among those that a launcher has started, or `None` without a launcher.
///
/// It is read from `OMPI_COMM_WORLD_RANK` (Open MPI), `PMI_RANK` (MPICH, Intel, Slurm with PMI-2), or, in a step of Slurm
/// with PMIx, `PMIX_RANK`.
pub fn launched_as() -> Option<usize> {
    launched()?;
    number("OMPI_COMM_WORLD_RANK").or_else(|| number("PMI_RANK")).or_else(|| number("PMIX_RANK"))
}

/// Returns the number of ranks on this machine, or `None` if the launcher does not say it.
///
/// They are read from `OMPI_COMM_WORLD_LOCAL_SIZE` (Open MPI), `MPI_LOCALNRANKS` (MPICH, Intel), or, in a step of
/// Slurm, `SLURM_STEP_TASKS_PER_NODE`, of which the largest number counts.
pub fn local_ranks() -> Option<usize> {
    let of_slurm = || most_per_node(&env::var("SLURM_STEP_TASKS_PER_NODE").ok()?);
    number("OMPI_COMM_WORLD_LOCAL_SIZE")
        .or_else(|| number("MPI_LOCALNRANKS"))
        .or_else(of_slurm)
        .filter(|ranks| *ranks > 0)
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
