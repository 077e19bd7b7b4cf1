//! Optimizers by name, with their options, as run files have them.

use std::str::FromStr;

use precast_base::names::did_you_mean;

use super::{
    AdafactorOptions, AdagradOptions, AdamOptions, AdamWOptions, LambOptions, LionOptions, MuonOptions, Optimizer,
    RmsPropOptions, SgdOptions, makes::Makes,
};
use crate::{
    Param,
    cell::Params,
    error::{Error, Result},
    options::{OptionInfo, Options, options},
};

/// Defines [`Method`] from the name of each optimizer in files, its options, and its usual learning rate.
macro_rules! methods {
    ($(#[$about:meta])* Method: $($(#[$doc:meta])* $name:literal $variant:ident($options:ident) $lr:literal;)*) => {
        $(#[$about])*
        #[options]
        #[derive(Clone, Debug, PartialEq)]
        #[non_exhaustive]
        pub enum Method {
            $($(#[$doc])* #[option(name = $name)] $variant($options),)*
        }

        impl Method {
            /// Returns every optimizer with its default options.
            pub fn all() -> Vec<Method> {
                vec![$(Method::$variant($options::default())),*]
            }

            /// Returns the usual learning rate.
            pub fn usual_lr(&self) -> f64 {
                match self { $(Method::$variant(_) => $lr,)* }
            }

            /// Describes the options.
            pub fn options(&self) -> Vec<OptionInfo> {
                match self { $(Method::$variant(_) => $options::options(),)* }
            }

            /// Creates the optimizer for some parameters; `is_table` identifies embedding tables.
            pub fn optimizer(
                &self,
                params: Params,
                lr: f64,
                is_table: &dyn Fn(&Param) -> bool,
            ) -> Box<dyn Optimizer> {
                match self { $(Method::$variant(options) => options.optimizer(params, lr, is_table),)* }
            }
        }
    };
}

methods! {
    /// An optimizer with its options. They are named after the builder methods, and default to the usual values.
    ///
    /// ```
    /// use precast::optim::{AdamWOptions, Method};
    /// let method = Method::AdamW(AdamWOptions { betas: (0.9, 0.95), ..AdamWOptions::default() });
    /// assert_eq!((method.name(), method.usual_lr()), ("adamw", 0.001));
    /// method.check()?;
    ///
    /// assert_eq!("lion".parse::<Method>()?.name(), "lion"); // with its usual options
    /// let error = "rmsporp".parse::<Method>().unwrap_err().to_string();
    /// assert!(error.starts_with("unknown optimizer `rmsporp` (did you mean `rmsprop`?)"), "{error}");
    /// # Ok::<(), precast::Error>(())
    /// ```
    Method:

    /// Gradient descent: [`Sgd`](super::Sgd).
    "sgd" Sgd(SgdOptions) 0.03;
    /// [`Adam`](super::Adam).
    "adam" Adam(AdamOptions) 0.001;
    /// [`AdamW`](super::AdamW).
    "adamw" AdamW(AdamWOptions) 0.001;
    /// [`Adagrad`](super::Adagrad).
    "adagrad" Adagrad(AdagradOptions) 0.01;
    /// [`RmsProp`](super::RmsProp).
    "rmsprop" RmsProp(RmsPropOptions) 0.001;
    /// [`Lion`](super::Lion).
    "lion" Lion(LionOptions) 0.0003;
    /// [`Lamb`](super::Lamb).
    "lamb" Lamb(LambOptions) 0.01;
    /// [`Adafactor`](super::Adafactor).
    "adafactor" Adafactor(AdafactorOptions) 0.01;
    /// [`Muon`](super::Muon) for the matrices other than embedding tables and AdamW for the other parameters, with one
    /// learning rate. Updates therefore use [`Muon::match_adam`](super::Muon::match_adam).
    "muon" Muon(MuonOptions) 0.001;
}

impl Method {
    /// Checks the options.
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) for an option outside its range.
    pub fn check(&self) -> Result<()> {
        self.optimizer(Params::default(), 0.0, &|_| false).check()
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

#[cfg(test)]
mod tests {
    use precast_base::document::{Choice, from_str};

    use super::*;
    use crate::{
        DType, Tensor,
        optim::{Adafactor, Adagrad, Adam, AdamW, Lamb, Lion, Muon, RmsProp, Sgd, beside},
    };

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
            beside(Muon::new(matrices, lr).match_adam().into_trained(), AdamW::new(others, lr).into_trained())
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
            let others = AdamW::new(others, lr).betas(0.5, 0.7).eps(0.1).weight_decay(0.2).amsgrad(true);
            beside(muon.weight_decay(0.3).into_trained(), others.into_trained())
        };
        let adam = |adam: Adam| adam.betas(0.5, 0.7).eps(0.1).weight_decay(0.2).amsgrad(true);
        let of_adam = "{betas: [0.5, 0.7], eps: 0.1, weight_decay: 0.2, amsgrad: true}";
        let expected: [(String, Build); 10] = [
            ("sgd: {momentum: 0.5, nesterov: true, weight_decay: 0.2}".into(), &|params| {
                Box::new(Sgd::new(params, lr).momentum(0.5).nesterov(true).weight_decay(0.2))
            }),
            ("sgd: {momentum: 0.5, dampening: 0.5}".into(), &|params| {
                Box::new(Sgd::new(params, lr).momentum(0.5).dampening(0.5))
            }),
            (format!("adam: {of_adam}"), &|params| Box::new(adam(Adam::new(params, lr)))),
            (format!("adamw: {of_adam}"), &|params| {
                Box::new(AdamW::new(params, lr).betas(0.5, 0.7).eps(0.1).weight_decay(0.2).amsgrad(true))
            }),
            ("adagrad: {lr_decay: 0.5, initial_sum: 0.3, eps: 0.1, weight_decay: 0.2}".into(), &|params| {
                Box::new(Adagrad::new(params, lr).lr_decay(0.5).initial_sum(0.3).eps(0.1).weight_decay(0.2))
            }),
            ("rmsprop: {alpha: 0.5, eps: 0.1, momentum: 0.5, centered: true, weight_decay: 0.2}".into(), &|params| {
                Box::new(RmsProp::new(params, lr).alpha(0.5).eps(0.1).momentum(0.5).centered(true).weight_decay(0.2))
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
            let Choice(method) = from_str::<Choice<Method>>(&format!("{{{text}}}")).unwrap();
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
