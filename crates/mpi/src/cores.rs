//! The threads of a rank: its share of the cores of the machine.

use std::{fs, thread};

use crate::launcher;

/// The cores of this process, as the system describes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cores {
    /// Cores of the machine.
    pub machine: usize,
    /// Cores to which the launcher has bound this process; all of them if it has not.
    pub bound: usize,
    /// Cores that this process may use at a time: within `bound` and the quota of its container.
    pub usable: usize,
    /// Ranks on this machine.
    pub ranks: usize,
}

impl Cores {
    /// Reads the cores of this process, and the ranks on this machine from the launcher.
    pub fn here() -> Self {
        let usable = thread::available_parallelism().map_or(1, usize::from);
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        let online = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
        let machine = listed(&online).unwrap_or(usable).max(usable);
        let bound = allowed.and_then(listed).unwrap_or(machine).min(machine);
        Cores { machine, bound, usable, ranks: launcher::local_ranks().unwrap_or(1) }
    }

    /// Returns the threads with which the ranks of this machine use each of its cores once, at least 1.
    pub fn threads(&self) -> usize {
        let share = |cores: usize| cores / self.ranks.max(1);
        let threads = match self.bound < self.machine {
            true => self.bound.min(self.usable).min(share(self.machine)),
            false => share(self.usable),
        };
        threads.max(1)
    }

    /// Returns words for a rank that is bound to fewer cores than its share, as Open MPI does by default with one or two
    /// ranks.
    pub fn advice(&self) -> Option<String> {
        let share = self.machine / self.ranks.max(1);
        (self.bound < share).then(|| {
            format!(
                "the launcher binds this rank to {} of {} cores, and its share is {share}; `--bind-to none` of Open MPI \
                 gives it all of them",
                self.bound, self.machine
            )
        })
    }
}

/// Counts a list of the kernel, such as `0-3,8`.
fn listed(text: &str) -> Option<usize> {
    let ranges = text.trim().split(',').map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.trim().parse::<usize>().ok()?, last.trim().parse::<usize>().ok()?);
        last.checked_sub(first)?.checked_add(1)
    });
    ranges.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_share_the_cores() {
        let cores = |machine, bound, usable, ranks| Cores { machine, bound, usable, ranks };
        assert_eq!(cores(64, 64, 64, 1).threads(), 64);
        assert_eq!(cores(64, 64, 64, 4).threads(), 16, "not bound");
        assert_eq!(cores(64, 1, 1, 2).threads(), 1, "bound to a core");
        assert_eq!(cores(64, 32, 32, 4).threads(), 16, "two ranks on a socket");
        assert_eq!(cores(64, 16, 16, 4).threads(), 16);
        assert_eq!(cores(64, 64, 4, 2).threads(), 2, "a container with 4 of 64 cores");
        assert_eq!(cores(2, 2, 2, 4).threads(), 1, "more ranks than cores");
        assert_eq!(cores(2, 2, 2, 4).advice(), None);
        assert_eq!(cores(64, 16, 16, 4).advice(), None);
        assert!(cores(64, 1, 1, 2).advice().unwrap().contains("binds this rank to 1 of 64 cores"));
    }

    #[test]
    fn lists_are_counted() {
        assert_eq!(listed("0-3,8\n"), Some(5));
        assert_eq!(listed("\t0"), Some(1));
        assert_eq!(listed("3-0"), None);
        assert_eq!(listed(""), None);
        let here = Cores::here();
        assert!(here.usable >= 1 && here.machine >= here.bound && here.threads() >= 1, "{here:?}");
    }
}
