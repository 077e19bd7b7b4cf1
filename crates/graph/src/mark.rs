//! The marks of painting: the vertices that run low, and those that must not.

/// The reason why a vertex runs low, or must not. Other vertices are given by their index in the painting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mark {
    /// Its op is on the allow list.
    Allowed,
    /// Every op that can run low does.
    Forced,
    /// Its op is on the deny list.
    Denied,
    /// It follows a denied vertex.
    AfterDenied(usize),
    /// It is between two vertices on the allow list.
    Between {
        /// The allowed vertex upstream.
        above: usize,
        /// The allowed vertex downstream.
        below: usize,
    },
    /// It is on the infer list, and reads a vertex that runs low.
    After(usize),
    /// It is on the clear list, and this neighbour runs low.
    NextTo(usize),
    /// It reads or writes the same tensor list as this vertex.
    SameTensorList(usize),
    /// Its tensor list comes from or goes to code that cannot be changed.
    EscapingTensorList,
    /// A loop carries it from one iteration to the next, and everything that it feeds there runs low.
    SameLoop,
    /// It is a cast to f32 whose consumers all run low.
    CastForLow,
}

/// The vertices painted in one of the two colours, with their reasons.
pub(super) type Marks = Vec<Option<Mark>>;
