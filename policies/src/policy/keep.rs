//! Numbers that keep nodes of an ONNX model in f32.

/// Limits beyond which nodes of an ONNX model stay f32. `None` is the default of the low dtype.
///
/// In a policy file for graphs:
///
/// ```
/// use precast_policy::policy::GraphPolicy;
/// let text = "
/// version: 1
/// dtype: float16
/// pack: onnx-1
/// graph: {}
/// keep:
///   initialisers: { beyond: 60000, below: 1e-6 }
///   values: { beyond: 2048 }
///   reduce_over: 4096
/// ";
/// let policy = GraphPolicy::parse(text, "onnx.yaml")?;
/// assert_eq!(policy.keep.values_beyond, Some(2048.0));
/// # Ok::<(), precast_policy::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Keep {
    /// Largest magnitude of an initialiser or constant. Default: the largest number of the low dtype.
    pub initialisers_beyond: Option<f64>,
    /// Magnitude of an initialiser or constant below which a number counts as lost; a sixteenth of the numbers may be.
    /// Default: where rounding leaves four bits.
    pub initialisers_below: Option<f64>,
    /// Largest magnitude of what a node reads and gives, where it was measured. Default: two thirds of the largest
    /// number of the low dtype, since other inputs may give larger values.
    pub values_beyond: Option<f64>,
    /// Largest number of products or terms that a node may add, where shapes say it. Default: any.
    pub reduce_over: Option<usize>,
}
