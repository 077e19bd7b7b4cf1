//! Optimizers in run files: name and options.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{
    Param,
    cell::Params,
    error::{Error, Result, did_you_mean},
    optim::{Adafactor, Adagrad, Adam, AdamW, Lamb, Lion, Muon, Optimizer, RmsProp, Sgd, beside},
};

/// An optimizer with its options. They are named after the builder methods, and default to the usual values.
///
/// ```
/// use precast::train::{AdamWOptions, Method};
/// let method = Method::AdamW(AdamWOptions { betas: (0.9, 0.95), ..AdamWOptions::default() });
/// assert_eq!((method.name(), method.usual_lr()), ("adamw", 0.001));
/// method.check()?;
///
/// assert_eq!("lion".parse::<Method>()?.name(), "lion"); // with its usual options
/// let error = "rmsporp".parse::<Method>().unwrap_err().to_string();
/// assert!(error.starts_with("unknown optimizer `rmsporp` (did you mean `rmsprop`?)"), "{error}");
/// # Ok::<(), precast::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
#[non_exhaustive]
pub enum Method {
    /// Gradient descent: [`Sgd`].
    Sgd(SgdOptions),
    /// [`Adam`].
    Adam(AdamOptions),
    /// [`AdamW::new`].
    AdamW(AdamWOptions),
    /// [`Adagrad`].
    Adagrad(AdagradOptions),
    /// [`RmsProp`].
    RmsProp(RmsPropOptions),
    /// [`Lion`].
    Lion(LionOptions),
    /// [`Lamb`].
    Lamb(LambOptions),
    /// [`Adafactor`].
    Adafactor(AdafactorOptions),
    /// [`Muon`] for the matrices other than embedding tables and AdamW for the other parameters, with one learning
    /// rate. Updates therefore use [`Muon::match_adam`].
    Muon(MuonOptions),
}

/// Defines the options of an optimizer with their default values.
macro_rules! options {
    ($(#[$doc:meta])* $name:ident { $($(#[$of:meta])* $field:ident: $ty:ty = $usual:expr,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct $name {
            $($(#[$of])* pub $field: $ty,)*
        }

        impl Default for $name {
            fn default() -> Self {
                $name { $($field: $usual,)* }
            }
        }
    };
}

options! {
    /// Options of [`Method::Sgd`].
    SgdOptions {
        /// Momentum factor; see [`Sgd::momentum`]. Default: 0.9.
        momentum: f64 = 0.9,
        /// Dampening of the momentum; see [`Sgd::dampening`]. Default: 0.
        dampening: f64 = 0.0,
        /// `true` for Nesterov momentum; see [`Sgd::nesterov`]. Default: false.
        nesterov: bool = false,
        /// Weight decay; see [`Sgd::weight_decay`]. Default: 0.
        weight_decay: f64 = 0.0,
    }
}

options! {
    /// Options of [`Method::Adam`].
    AdamOptions {
        /// Decay rates of the running averages; see [`Adam::betas`]. Default: 0.9 and 0.999.
        betas: (f64, f64) = (0.9, 0.999),
        /// Term added to the denominator; see [`Adam::eps`]. Default: 1e-8.
        eps: f64 = 1e-8,
        /// Weight decay added to the gradient; see [`Adam::weight_decay`]. Default: 0.
        weight_decay: f64 = 0.0,
        /// `true` for AMSGrad; see [`Adam::amsgrad`]. Default: false.
        amsgrad: bool = false,
        /// `true` for 8-bit state; see [`Adam::state_8bit`]. Default: false.
        state_8bit: bool = false,
    }
}

options! {
    /// Options of [`Method::AdamW`].
    AdamWOptions {
        /// Decay rates of the running averages; see [`Adam::betas`]. Default: 0.9 and 0.999.
        betas: (f64, f64) = (0.9, 0.999),
        /// Term added to the denominator; see [`Adam::eps`]. Default: 1e-8.
        eps: f64 = 1e-8,
        /// Decoupled weight decay; see [`Adam::weight_decay`]. Default: 0.01.
        weight_decay: f64 = 0.01,
        /// `true` for AMSGrad; see [`Adam::amsgrad`]. Default: false.
        amsgrad: bool = false,
        /// `true` for 8-bit state; see [`Adam::state_8bit`]. Default: false.
        state_8bit: bool = false,
    }
}

options! {
    /// Options of [`Method::Adagrad`].
    AdagradOptions {
        /// Decay of the learning rate; see [`Adagrad::lr_decay`]. Default: 0.
        lr_decay: f64 = 0.0,
        /// Initial sum of squares; see [`Adagrad::initial_sum`]. Default: 0.
        initial_sum: f64 = 0.0,
        /// Term added to the denominator; see [`Adagrad::eps`]. Default: 1e-10.
        eps: f64 = 1e-10,
        /// Weight decay; see [`Adagrad::weight_decay`]. Default: 0.
        weight_decay: f64 = 0.0,
    }
}

options! {
    /// Options of [`Method::RmsProp`].
    RmsPropOptions {
        /// Decay rate of the mean square; see [`RmsProp::alpha`]. Default: 0.99.
        alpha: f64 = 0.99,
        /// Term added to the denominator; see [`RmsProp::eps`]. Default: 1e-8.
        eps: f64 = 1e-8,
        /// Momentum factor; see [`RmsProp::momentum`]. Default: 0.
        momentum: f64 = 0.0,
        /// `true` for the centered variant; see [`RmsProp::centered`]. Default: false.
        centered: bool = false,
        /// Weight decay; see [`RmsProp::weight_decay`]. Default: 0.
        weight_decay: f64 = 0.0,
    }
}

options! {
    /// Options of [`Method::Lion`].
    LionOptions {
        /// Decay rates; see [`Lion::betas`]. Default: 0.9 and 0.99.
        betas: (f64, f64) = (0.9, 0.99),
        /// Weight decay; see [`Lion::weight_decay`]. Default: 0.
        weight_decay: f64 = 0.0,
        /// `true` for 8-bit state; see [`Lion::state_8bit`]. Default: false.
        state_8bit: bool = false,
    }
}

options! {
    /// Options of [`Method::Lamb`].
    LambOptions {
        /// Decay rates of the running averages; see [`Lamb::betas`]. Default: 0.9 and 0.999.
        betas: (f64, f64) = (0.9, 0.999),
        /// Term added to the denominator; see [`Lamb::eps`]. Default: 1e-6.
        eps: f64 = 1e-6,
        /// Weight decay; see [`Lamb::weight_decay`]. Default: 0.
        weight_decay: f64 = 0.0,
    }
}

options! {
    /// Options of [`Method::Adafactor`].
    AdafactorOptions {
        /// Exponent of the decay rate; see [`Adafactor::beta2_decay`]. Default: -0.8.
        beta2_decay: f64 = -0.8,
        /// Regularization terms; see [`Adafactor::eps`]. Default: the epsilon of f32 and 1e-3.
        eps: (f64, f64) = (f32::EPSILON as f64, 1e-3),
        /// Clipping threshold; see [`Adafactor::threshold`]. Default: 1.
        threshold: f64 = 1.0,
        /// Weight decay; see [`Adafactor::weight_decay`]. Default: 0.
        weight_decay: f64 = 0.0,
    }
}

options! {
    /// Options of [`Method::Muon`].
    MuonOptions {
        /// Momentum factor; see [`Muon::momentum`]. Default: 0.95.
        momentum: f64 = 0.95,
        /// `true` for Nesterov momentum; see [`Muon::nesterov`]. Default: true.
        nesterov: bool = true,
        /// Number of Newton-Schulz iterations; see [`Muon::rounds`]. Default: 5.
        rounds: usize = 5,
        /// Lower bound of the norm; see [`Muon::eps`]. Default: 1e-7.
        eps: f64 = 1e-7,
        /// Weight decay; see [`Muon::weight_decay`]. Default: 0.1.
        weight_decay: f64 = 0.1,
        /// Options of AdamW for the other parameters.
        others: AdamWOptions = AdamWOptions::default(),
    }
}

impl AdamWOptions {
    fn optimizer(&self, params: Params, lr: f64) -> AdamW {
        let AdamWOptions { betas, eps, weight_decay, amsgrad, state_8bit } = *self;
        let adam = AdamW::new(params, lr).betas(betas.0, betas.1).eps(eps).weight_decay(weight_decay);
        let adam = if amsgrad { adam.amsgrad() } else { adam };
        if state_8bit { adam.state_8bit() } else { adam }
    }
}

impl Default for Method {
    /// Returns gradient descent with momentum.
    fn default() -> Self {
        Method::Sgd(SgdOptions::default())
    }
}

impl FromStr for Method {
    type Err = Error;

    /// Parses the name of an optimizer, with default options.
    fn from_str(name: &str) -> Result<Self> {
        let all = Method::all();
        let names = || all.iter().map(Method::name);
        all.iter().find(|method| method.name() == name).cloned().ok_or_else(|| {
            let allowed = names().collect::<Vec<_>>().join(", ");
            Error::value(format!("unknown optimizer `{name}`{}; allowed: {allowed}", did_you_mean(name, names())))
        })
    }
}

impl Method {
    /// Returns every optimizer with its default options.
    pub fn all() -> [Method; 9] {
        [
            Method::default(),
            Method::Adam(AdamOptions::default()),
            Method::AdamW(AdamWOptions::default()),
            Method::Adagrad(AdagradOptions::default()),
            Method::RmsProp(RmsPropOptions::default()),
            Method::Lion(LionOptions::default()),
            Method::Lamb(LambOptions::default()),
            Method::Adafactor(AdafactorOptions::default()),
            Method::Muon(MuonOptions::default()),
        ]
    }

    /// Returns the name in files.
    pub fn name(&self) -> &'static str {
        match self {
            Method::Sgd(_) => "sgd",
            Method::Adam(_) => "adam",
            Method::AdamW(_) => "adamw",
            Method::Adagrad(_) => "adagrad",
            Method::RmsProp(_) => "rmsprop",
            Method::Lion(_) => "lion",
            Method::Lamb(_) => "lamb",
            Method::Adafactor(_) => "adafactor",
            Method::Muon(_) => "muon",
        }
    }

    /// Returns the usual learning rate.
    pub fn usual_lr(&self) -> f64 {
        match self {
            Method::Sgd(_) => 0.03,
            Method::Adam(_) | Method::AdamW(_) | Method::RmsProp(_) | Method::Muon(_) => 0.001,
            Method::Adagrad(_) | Method::Lamb(_) | Method::Adafactor(_) => 0.01,
            Method::Lion(_) => 0.0003,
        }
    }

    /// Checks the options.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for an option outside its range.
    pub fn check(&self) -> Result<()> {
        self.optimizer(Params::default(), 0.0, &|_| false).check()
    }

    /// Creates the optimizer for some parameters; `is_table` identifies embedding tables.
    pub(super) fn optimizer(&self, params: Params, lr: f64, is_table: &dyn Fn(&Param) -> bool) -> Box<dyn Optimizer> {
        match self {
            Method::Sgd(SgdOptions { momentum, dampening, nesterov, weight_decay }) => {
                let sgd = Sgd::new(params, lr).momentum(*momentum).dampening(*dampening).weight_decay(*weight_decay);
                Box::new(if *nesterov { sgd.nesterov() } else { sgd })
            }
            Method::Adam(AdamOptions { betas, eps, weight_decay, amsgrad, state_8bit }) => {
                let adam = Adam::new(params, lr).betas(betas.0, betas.1).eps(*eps).weight_decay(*weight_decay);
                let adam = if *amsgrad { adam.amsgrad() } else { adam };
                Box::new(if *state_8bit { adam.state_8bit() } else { adam })
            }
            Method::AdamW(options) => Box::new(options.optimizer(params, lr)),
            Method::Adagrad(AdagradOptions { lr_decay, initial_sum, eps, weight_decay }) => Box::new(
                Adagrad::new(params, lr)
                    .lr_decay(*lr_decay)
                    .initial_sum(*initial_sum)
                    .eps(*eps)
                    .weight_decay(*weight_decay),
            ),
            Method::RmsProp(RmsPropOptions { alpha, eps, momentum, centered, weight_decay }) => {
                let rms_prop =
                    RmsProp::new(params, lr).alpha(*alpha).eps(*eps).momentum(*momentum).weight_decay(*weight_decay);
                Box::new(if *centered { rms_prop.centered() } else { rms_prop })
            }
            Method::Lion(LionOptions { betas, weight_decay, state_8bit }) => {
                let lion = Lion::new(params, lr).betas(betas.0, betas.1).weight_decay(*weight_decay);
                Box::new(if *state_8bit { lion.state_8bit() } else { lion })
            }
            Method::Lamb(LambOptions { betas, eps, weight_decay }) => {
                Box::new(Lamb::new(params, lr).betas(betas.0, betas.1).eps(*eps).weight_decay(*weight_decay))
            }
            Method::Adafactor(AdafactorOptions { beta2_decay, eps, threshold, weight_decay }) => Box::new(
                Adafactor::new(params, lr)
                    .beta2_decay(*beta2_decay)
                    .eps(eps.0, eps.1)
                    .threshold(*threshold)
                    .weight_decay(*weight_decay),
            ),
            Method::Muon(MuonOptions { momentum, nesterov, rounds, eps, weight_decay, others }) => {
                let is_matrix = |param: &Param| param.shape().len() == 2 && !is_table(param);
                let muon = Muon::new(params.clone().filter(|_, param| is_matrix(param)), lr).match_adam();
                let muon = muon.momentum(*momentum).nesterov(*nesterov).rounds(*rounds).eps(*eps);
                let others = others.optimizer(params.filter(|_, param| !is_matrix(param)), lr);
                beside(muon.weight_decay(*weight_decay), others)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, Tensor};

    type Build<'a> = &'a dyn Fn(Params) -> Box<dyn Optimizer>;

    /// Trains some parameters for twenty steps of an optimizer: after fewer, `amsgrad` changes nothing.
    fn trained(make: Build) -> Vec<Vec<f64>> {
        let of = |shape: &[usize]| {
            let n = shape.iter().product::<usize>();
            let values = (0..n).map(|i| (i as f32 * 0.7).sin()).collect::<Vec<_>>();
            Param::new(Tensor::from_vec(values, shape).unwrap())
        };
        let params = [of(&[3, 4]), of(&[4])];
        let mut optimizer = make(params.iter().cloned().collect());
        for _ in 0..20 {
            let square = |param: &Param| {
                let value = param.tensor();
                value.mul(&value)?.mul(&value)?.sum_all()
            };
            let loss = square(&params[0]).unwrap().add(&square(&params[1]).unwrap()).unwrap();
            optimizer.update(&loss.backward().unwrap()).unwrap();
        }
        params.iter().map(|param| param.value().cast(DType::F64).to_f64()).collect()
    }

    #[test]
    fn usual_options_are_those_of_the_optimizers() {
        let lr = 0.01;
        let muon = |params: Params| {
            let matrices = params.clone().filter(|_, param| param.shape().len() == 2);
            let others = params.filter(|_, param| param.shape().len() != 2);
            beside(Muon::new(matrices, lr).match_adam(), AdamW::new(others, lr))
        };
        let expected: [Build; 9] = [
            &|params| Box::new(Sgd::new(params, lr).momentum(0.9)),
            &|params| Box::new(Adam::new(params, lr)),
            &|params| Box::new(AdamW::new(params, lr)),
            &|params| Box::new(Adagrad::new(params, lr)),
            &|params| Box::new(RmsProp::new(params, lr)),
            &|params| Box::new(Lion::new(params, lr)),
            &|params| Box::new(Lamb::new(params, lr)),
            &|params| Box::new(Adafactor::new(params, lr)),
            &muon,
        ];
        for (method, expected) in Method::all().iter().zip(expected) {
            let met = trained(&|params| method.optimizer(params, lr, &|_| false));
            assert_eq!(met, trained(expected), "{}", method.name());
            method.check().unwrap();
        }
    }

    /// Each with every option non-default, as a run file sets it, and as code does.
    #[test]
    fn options_reach_the_optimizer() {
        let lr = 0.01;
        let muon = |params: Params| {
            let matrices = params.clone().filter(|_, param| param.shape().len() == 2);
            let others = params.filter(|_, param| param.shape().len() != 2);
            let muon = Muon::new(matrices, lr).match_adam().momentum(0.5).nesterov(false).rounds(2).eps(0.1);
            let others = AdamW::new(others, lr).betas(0.5, 0.7).eps(0.1).weight_decay(0.2).amsgrad();
            beside(muon.weight_decay(0.3), others)
        };
        let adam = |adam: Adam| adam.betas(0.5, 0.7).eps(0.1).weight_decay(0.2).amsgrad();
        let of_adam = "{betas: [0.5, 0.7], eps: 0.1, weight_decay: 0.2, amsgrad: true}";
        let expected: [(String, Build); 10] = [
            ("sgd: {momentum: 0.5, nesterov: true, weight_decay: 0.2}".into(), &|params| {
                Box::new(Sgd::new(params, lr).momentum(0.5).nesterov().weight_decay(0.2))
            }),
            ("sgd: {momentum: 0.5, dampening: 0.5}".into(), &|params| {
                Box::new(Sgd::new(params, lr).momentum(0.5).dampening(0.5))
            }),
            (format!("adam: {of_adam}"), &|params| Box::new(adam(Adam::new(params, lr)))),
            (format!("adamw: {of_adam}"), &|params| {
                Box::new(AdamW::new(params, lr).betas(0.5, 0.7).eps(0.1).weight_decay(0.2).amsgrad())
            }),
            ("adagrad: {lr_decay: 0.5, initial_sum: 0.3, eps: 0.1, weight_decay: 0.2}".into(), &|params| {
                Box::new(Adagrad::new(params, lr).lr_decay(0.5).initial_sum(0.3).eps(0.1).weight_decay(0.2))
            }),
            ("rmsprop: {alpha: 0.5, eps: 0.1, momentum: 0.5, centered: true, weight_decay: 0.2}".into(), &|params| {
                Box::new(RmsProp::new(params, lr).alpha(0.5).eps(0.1).momentum(0.5).centered().weight_decay(0.2))
            }),
            ("lion: {betas: [0.5, 0.7], weight_decay: 0.2}".into(), &|params| {
                Box::new(Lion::new(params, lr).betas(0.5, 0.7).weight_decay(0.2))
            }),
            ("lamb: {betas: [0.5, 0.7], eps: 0.1, weight_decay: 0.2}".into(), &|params| {
                Box::new(Lamb::new(params, lr).betas(0.5, 0.7).eps(0.1).weight_decay(0.2))
            }),
            ("adafactor: {beta2_decay: -0.5, eps: [0.1, 0.2], threshold: 1.5, weight_decay: 0.2}".into(), &|params| {
                Box::new(Adafactor::new(params, lr).beta2_decay(-0.5).eps(0.1, 0.2).threshold(1.5).weight_decay(0.2))
            }),
            (
                format!(
                    "muon: {{momentum: 0.5, nesterov: false, rounds: 2, eps: 0.1, weight_decay: 0.3, others: {of_adam}}}"
                ),
                &muon,
            ),
        ];
        for (text, expected) in expected {
            let in_file = format!("version: 1\nmodel: lenet5\npolicy: o0\ndata: digits\noptimizer: {{{text}}}\n");
            let method = crate::train::RunFile::parse(&in_file, "run.yaml").unwrap().options.method;
            let met = trained(&|params| method.optimizer(params, lr, &|_| false));
            assert_eq!(met, trained(expected), "{text}");
            let usual: Method = method.name().parse().unwrap();
            assert_ne!(met, trained(&|params| usual.optimizer(params, lr, &|_| false)), "{text}");
        }
    }

    #[test]
    fn muon_leaves_tables_and_what_is_no_matrix_to_adamw() {
        let method = Method::Muon(MuonOptions::default());
        let lr = 0.01;
        let all_others = trained(&|params| method.optimizer(params, lr, &|_| true));
        assert_eq!(all_others, trained(&|params| Box::new(AdamW::new(params, lr))));
        let mixed = trained(&|params| method.optimizer(params, lr, &|_| false));
        assert_eq!(mixed[1], all_others[1]);
        assert_ne!(mixed[0], all_others[0]);
    }

    #[test]
    fn the_state_of_two_optimizers_is_one_and_does_not_fit_another() {
        let param = |shape: &[usize]| Param::new(Tensor::ones(shape, DType::F32));
        let params: Params = [param(&[2, 2]), param(&[2])].into_iter().collect();
        let make = || Method::Muon(MuonOptions::default()).optimizer(params.clone(), 0.1, &|_| false);
        let mut optimizer = make();
        let loss = params.iter().map(|(_, param)| param.tensor().sum_all().unwrap());
        let loss = loss.reduce(|a, b| a.add(&b).unwrap()).unwrap();
        optimizer.update(&loss.backward().unwrap()).unwrap();
        let state = optimizer.state();
        let names: Vec<&str> = state.tensors.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!((state.optimizer.as_str(), names), ("muon+adam", vec!["0/momentum", "1/mean", "1/square"]));
        let mut other = make();
        other.restore(state.clone()).unwrap();
        assert_eq!(other.state().steps, state.steps);
        let error = Adam::new(params.clone(), 0.1).restore(state).unwrap_err().to_string();
        assert_eq!(error, "the state is one of the optimizer `muon+adam`; this is `adam`");
        let error = make().restore(Adam::new(params, 0.1).state()).unwrap_err().to_string();
        assert_eq!(error, "the state is one of the optimizer `adam`; this is `muon+adam`");
    }
}
