//! Gradient clipping.

use precast_kernels::alone_mut;

use super::{Factors, Grads, finite, with_float};
use crate::{
    Tensor,
    error::{Error, Result},
};

impl Grads {
    /// Scales all gradients so that their [norm](Grads::norm) is at most `max`, by the factor
    /// `min(1, max / (norm + 1e-6))`, in f32 (f64 for f64). Returns the previous norm. If it is not finite, the
    /// gradients are unchanged. (As `torch.nn.utils.clip_grad_norm_`.)
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) unless `max` is a finite number above 0.
    ///
    /// ```
    /// # use precast_tensor as precast;
    /// use precast::{DType, Param, Tensor};
    /// let weight = Param::new(Tensor::full(&[4], 3.0, DType::F32));
    /// let mut grads = weight.tensor().mul(&weight.tensor())?.sum_all()?.backward()?;
    /// assert_eq!(grads.clip_norm(1.0)?, 12.0); // each of the four elements is 6
    /// assert!((grads.norm() - 1.0).abs() < 1e-6);
    /// # Ok::<(), precast::Error>(())
    /// ```
    #[doc(alias = "clip_grad_norm")]
    #[doc(alias = "clip_grad_norm_")]
    pub fn clip_norm(&mut self, max: f64) -> Result<f64> {
        check_limit(max)?;
        let norm = self.norm();
        let factor = max / (norm + 1e-6);
        if norm.is_finite() && (factor as f32) < 1.0 {
            if self.pending.is_some_and(|pending| pending.clip != 1.0) {
                self.multiply_out();
            }
            let unscale = self.pending.map_or(1.0, |pending| pending.unscale);
            self.pending = Some(Factors { unscale, clip: factor });
        }
        Ok(norm)
    }

    /// Limits every element of every gradient to `-max ..= max`. NaN stays NaN. (As `torch.nn.utils.clip_grad_value_`.)
    ///
    /// # Errors
    /// [`ErrorKind::Value`](crate::ErrorKind::Value) unless `max` is a finite number above 0.
    #[doc(alias = "clip_grad_value")]
    #[doc(alias = "clip_grad_value_")]
    pub fn clip_value(&mut self, max: f64) -> Result<()> {
        check_limit(max)?;
        self.multiply_out();
        self.replace_all(|grad| {
            let mut limited = grad.into_array();
            with_float!(&mut limited, x: T => finite::limit(alone_mut(x).expect("in row-major order"), max), else ());
            Tensor::from_array(limited)
        });
        Ok(())
    }
}

fn check_limit(max: f64) -> Result<()> {
    if max.is_finite() && max > 0.0 {
        return Ok(());
    }
    Err(Error::value(format!("gradients cannot be clipped to {max}; allowed: a finite number above 0")))
}
