//! The trained parameters of a network by name, as passed to optimizers.

use std::{collections::HashSet, ops::Range};

use crate::{
    Param,
    error::{Error, Result},
};

/// Trained parameters with their paths. Each occurs once; a tied parameter is listed under its first path, and groups of
/// optimizers find it under each.
///
/// Returned by [`Child::params`](crate::Child::params), or collected from any parameters, with or without names:
///
/// ```
/// use precast::{DType, Param, Tensor, cell::Params};
/// let weight = Param::new(Tensor::zeros(&[2, 3], DType::F32));
/// let params: Params = [("fc.weight".to_string(), weight.clone()), ("head.weight".to_string(), weight)].into_iter().collect();
/// assert_eq!(params.iter().map(|(path, _)| path).collect::<Vec<_>>(), ["fc.weight"]);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Params {
    all: Vec<(String, Param)>,
    /// The further paths of tied parameters.
    tied: Vec<(String, Param)>,
}

impl Params {
    /// Iterates over the paths and parameters, in the order of the network.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Param)> {
        self.all.iter().map(|(path, param)| (path.as_str(), param))
    }

    /// Iterates as [`iter`](Params::iter) does, over those at some places.
    pub(crate) fn range(&self, range: Range<usize>) -> impl Iterator<Item = (&str, &Param)> + Clone {
        self.all[range].iter().map(|(path, param)| (path.as_str(), param))
    }

    /// Iterates over all paths of the parameters, those of a tied one included.
    pub(crate) fn paths(&self) -> impl Iterator<Item = (&str, &Param)> {
        self.all.iter().chain(&self.tied).map(|(path, param)| (path.as_str(), param))
    }

    /// Returns the number of parameters.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns the first path.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) when there are no parameters, as an optimizer would train nothing.
    pub(crate) fn first(&self) -> Result<&str> {
        let first = self.iter().next().map(|(path, _)| path);
        first.ok_or_else(|| {
            Error::value(
                "the optimizer has no parameters, so it would train nothing: none were given, or all are frozen; \
                 `net.params()` has those of a network that are trained",
            )
        })
    }

    /// Adds parameters that are not among these.
    pub(crate) fn and(mut self, others: Params) -> Params {
        self.all.extend(others.all);
        self.tied.extend(others.tied);
        self
    }

    /// Keeps the parameters for which `keep` returns `true`: to train a part of a network, or parts at different rates.
    pub fn filter(self, mut keep: impl FnMut(&str, &Param) -> bool) -> Params {
        Params { all: self.all.into_iter().filter(|(path, param)| keep(path, param)).collect(), ..self }
    }
}

impl FromIterator<(String, Param)> for Params {
    /// Omits buffers and repeated parameters.
    fn from_iter<I: IntoIterator<Item = (String, Param)>>(params: I) -> Self {
        let mut seen = HashSet::new();
        let trained = params.into_iter().filter(|(_, param)| param.is_trained());
        let (all, tied) = trained.partition(|(_, param)| seen.insert(param.id()));
        Params { all, tied }
    }
}

impl FromIterator<Param> for Params {
    /// Names parameters by their position.
    fn from_iter<I: IntoIterator<Item = Param>>(params: I) -> Self {
        params.into_iter().enumerate().map(|(i, param)| (i.to_string(), param)).collect()
    }
}

impl IntoIterator for Params {
    type Item = (String, Param);
    type IntoIter = std::vec::IntoIter<(String, Param)>;
    fn into_iter(self) -> Self::IntoIter {
        self.all.into_iter()
    }
}
