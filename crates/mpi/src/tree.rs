//! The order of sums: a binary tree over shards, which does not depend on the number of ranks.

use std::ops::Range;

use crate::error::{Error, ErrorKind, Result};

/// A node of the tree: the sum of the shards `at * 2^level .. (at + 1) * 2^level`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Node {
    /// Height above the shards, which have level 0.
    pub level: u32,
    /// Position among the nodes of the level.
    pub at: usize,
}

impl Node {
    /// Returns the node of one shard.
    pub fn shard(shard: usize) -> Self {
        Node { level: 0, at: shard }
    }

    /// Returns the parent of this node, the left child, and `right`, if they have the same.
    fn parent_with(self, right: Node) -> Option<Node> {
        let siblings = self.level == right.level && self.at.is_multiple_of(2) && right.at == self.at + 1;
        siblings.then_some(Node { level: self.level + 1, at: self.at / 2 })
    }
}

/// Shards of a batch, divided among ranks as runs of neighbours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shards {
    shards: usize,
    ranks: usize,
}

impl Shards {
    /// Divides shards among ranks. A rank may have none.
    ///
    /// # Errors
    /// [`ErrorKind::Argument`] if there are no shards, no ranks, or more than 2^20 of either.
    pub fn new(shards: usize, ranks: usize) -> Result<Self> {
        let met = [(shards, "shards"), (ranks, "ranks")].into_iter().find(|(n, _)| !(1..=1 << 20).contains(n));
        match met {
            Some((n, name)) => {
                Err(Error::new(ErrorKind::Argument, format!("{n} {name}; expected a number from 1 to {}", 1 << 20)))
            }
            None => Ok(Shards { shards, ranks }),
        }
    }

    /// Returns the number of shards.
    pub fn shards(&self) -> usize {
        self.shards
    }

    /// Returns the number of ranks.
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// Returns the shards of a rank.
    pub fn run(&self, rank: usize) -> Range<usize> {
        rank * self.shards / self.ranks..(rank + 1) * self.shards / self.ranks
    }

    /// Returns the largest nodes within the run of a rank, from left to right: those of which it computes the sums.
    /// There is one if all runs are equal and their length is a power of two.
    pub fn nodes(&self, rank: usize) -> Vec<Node> {
        let mut tree = Tree::default();
        for shard in self.run(rank) {
            tree.push_with(Node::shard(shard), (), |_, ()| ());
        }
        tree.nodes.into_iter().map(|(node, ())| node).collect()
    }
}

/// Sums in the order of the tree. Nodes are pushed from left to right, and siblings are added as soon as both are
/// there.
///
/// ```
/// use precast_mpi::{Node, Tree};
///
/// let mut tree = Tree::default();
/// for shard in 0..5 {
///     tree.push_with(Node::shard(shard), shard.to_string(), |left, right| *left = format!("({left}+{right})"));
/// }
/// let sum = tree.fold_with(|left, right| *left = format!("({left}+{right})"));
/// assert_eq!(sum.as_deref(), Some("(((0+1)+(2+3))+4)"));
/// ```
#[derive(Debug, Clone)]
pub struct Tree<T> {
    nodes: Vec<(Node, T)>,
}

impl<T> Default for Tree<T> {
    fn default() -> Self {
        Tree { nodes: Vec::new() }
    }
}

impl<T> Tree<T> {
    /// Pushes the next node to the right. `add` adds its second argument to its first.
    ///
    /// # Errors
    /// Those of `add`; the tree is then incomplete.
    pub fn push<E>(
        &mut self,
        mut node: Node,
        mut value: T,
        mut add: impl FnMut(&mut T, T) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        while let Some(parent) = self.nodes.last().and_then(|(left, _)| left.parent_with(node))
            && let Some((_, mut left)) = self.nodes.pop()
        {
            add(&mut left, value)?;
            (node, value) = (parent, left);
        }
        self.nodes.push((node, value));
        Ok(())
    }

    /// Pushes the next node to the right, with an addition that cannot fail.
    pub fn push_with(&mut self, node: Node, value: T, mut add: impl FnMut(&mut T, T)) {
        let Ok(()) = self.push(node, value, |left, right| {
            add(left, right);
            Ok::<(), std::convert::Infallible>(())
        });
    }

    /// Returns the nodes that have no sibling yet, from left to right.
    pub fn nodes(&self) -> &[(Node, T)] {
        &self.nodes
    }

    /// Returns the values of the nodes that have no sibling yet, from left to right.
    pub fn into_values(self) -> Vec<T> {
        self.nodes.into_iter().map(|(_, value)| value).collect()
    }

    /// Adds the nodes without siblings from the right, and returns the sum, or `None` of an empty tree.
    ///
    /// # Errors
    /// Those of `add`.
    pub fn fold<E>(
        mut self,
        mut add: impl FnMut(&mut T, T) -> std::result::Result<(), E>,
    ) -> std::result::Result<Option<T>, E> {
        let Some((_, mut sum)) = self.nodes.pop() else { return Ok(None) };
        while let Some((_, mut left)) = self.nodes.pop() {
            add(&mut left, sum)?;
            sum = left;
        }
        Ok(Some(sum))
    }

    /// Adds the nodes without siblings from the right, with an addition that cannot fail.
    pub fn fold_with(self, mut add: impl FnMut(&mut T, T)) -> Option<T> {
        let Ok(sum) = self.fold(|left, right| {
            add(left, right);
            Ok::<(), std::convert::Infallible>(())
        });
        sum
    }
}
