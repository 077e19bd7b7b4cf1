//! Counts of what was right, wrong, and without an end.

use std::{collections::BTreeMap, time::Duration};

use super::job::Ended;
use crate::shell::Result;

#[derive(Default)]
struct Count {
    right: usize,
    wrong: usize,
    hung: usize,
    /// The longest wait for the end of a job.
    longest: Duration,
}

/// The counts of a part, by family.
pub struct Tally {
    part: &'static str,
    families: BTreeMap<String, Count>,
}

impl Tally {
    pub fn new(part: &'static str) -> Self {
        Tally { part, families: BTreeMap::new() }
    }

    /// Counts the verdict on a job, and prints it if it is not right.
    pub fn count(&mut self, family: &str, what: &str, ended: &Ended, verdict: Result) {
        let count = self.families.entry(family.into()).or_default();
        count.longest = count.longest.max(ended.waited);
        match verdict {
            _ if ended.is_hung => count.hung += 1,
            Ok(()) => return count.right += 1,
            Err(_) => count.wrong += 1,
        }
        let words = verdict.err().unwrap_or_default();
        println!("{} {family}, {what}: {}", self.part, ended.shown(&words));
    }

    /// Prints a line for each family and one for all, and returns the number of those that are not right.
    pub fn print(&self) -> usize {
        let line = |family: &str, Count { right, wrong, hung, longest }: &Count| {
            let longest = longest.as_secs_f64();
            println!("mpi {}, {family}: {right} right, {wrong} wrong, {hung} hung; {longest:.1} s at most", self.part);
        };
        self.families.iter().for_each(|(family, count)| line(family, count));
        let sum = |of: fn(&Count) -> usize| self.families.values().map(of).sum::<usize>();
        let (right, wrong, hung) = (sum(|count| count.right), sum(|count| count.wrong), sum(|count| count.hung));
        println!("mpi {}: {right} right, {wrong} wrong, {hung} hung", self.part);
        wrong + hung
    }
}
