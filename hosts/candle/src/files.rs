//! Weights in files: read into f32 variables, written in f32 or as planned.

use std::{collections::HashMap, fs, path::Path};

use candle_core::{DType, Device, Tensor, safetensors};
use precast_base::{names::did_you_mean, printable};
use precast_policy as policy;

use crate::{Network, Result};

impl<N> Network<N> {
    /// Reads the variables from a safetensors file. Floating-point tensors of any dtype become f32. Returns the names of
    /// tensors in the file that the network does not have.
    ///
    /// # Errors
    /// [`ErrorKind::Weights`](policy::ErrorKind::Weights) with all variables that are missing in the file, have another
    /// shape there or numbers beyond f32; nothing is changed then. [`ErrorKind::Io`](policy::ErrorKind::Io) for a file that cannot be read.
    pub fn load(&mut self, path: impl AsRef<Path>) -> Result<Vec<String>> {
        let (path, shown) = (path.as_ref(), printable(&path.as_ref().display().to_string()).into_owned());
        let bytes = fs::read(path).map_err(|error| policy::Error::io(path, &error))?;
        let wrong = |words: String| policy::Error::new(policy::ErrorKind::Weights, format!("{shown}: {words}"));
        let mut file = safetensors::load_buffer(&bytes, &Device::Cpu).map_err(|error| wrong(error.to_string()))?;
        let (mut found, mut problems) = (Vec::new(), Vec::new());
        for (variable, var) in self.variables() {
            let name = printable(&variable.name);
            match file.remove(&variable.name) {
                None => {
                    let near = did_you_mean(&variable.name, file.keys().map(String::as_str));
                    problems.push(format!("`{name}` is missing{near}"));
                }
                Some(tensor) if tensor.dims() != variable.shape => {
                    let (met, expected) = (tensor.dims(), &variable.shape);
                    problems.push(format!("`{name}` has the shape {met:?}, and the network {expected:?}"));
                }
                Some(tensor) if tensor.dtype().is_float() != variable.dtype.is_float() => {
                    let (met, expected) = (tensor.dtype().as_str(), variable.dtype.as_str());
                    problems.push(format!("`{name}` is {met}, and in the network {expected}"));
                }
                Some(tensor) => match cast(&tensor, variable.dtype)? {
                    Ok(tensor) => found.push((var, tensor.to_device(self.device())?)),
                    Err(words) => problems.push(format!("`{name}` {words}")),
                },
            }
        }
        if !problems.is_empty() {
            return Err(wrong(problems.join("; ")).into());
        }
        self.changed();
        for (var, tensor) in found {
            var.set(&tensor)?;
        }
        self.keep_statistics()?;
        let mut unused: Vec<String> = file.into_keys().collect();
        unused.sort();
        Ok(unused)
    }

    /// Writes the variables to a safetensors file, in f32: for training that continues.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](policy::ErrorKind::Io) for a file that cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let tensors = self.variables().map(|(variable, var)| (variable.name.clone(), var.as_tensor().clone()));
        write(tensors.collect(), path.as_ref())
    }

    /// Writes the variables to a safetensors file, each in its planned dtype: for inference.
    ///
    /// # Errors
    /// [`ErrorKind::Weights`](policy::ErrorKind::Weights) with all variables that have numbers beyond their planned dtype, of
    /// which nothing is written; [`ErrorKind::Io`](policy::ErrorKind::Io) for a file that cannot be written.
    pub fn save_planned(&self, path: impl AsRef<Path>) -> Result<()> {
        let (mut tensors, mut problems) = (HashMap::new(), Vec::new());
        for (variable, var) in self.variables() {
            match cast(&var.as_tensor().detach(), self.planned(variable))? {
                Ok(tensor) => drop(tensors.insert(variable.name.clone(), tensor)),
                Err(words) => problems.push(format!("`{}` {words}", printable(&variable.name))),
            }
        }
        if !problems.is_empty() {
            return Err(policy::Error::new(policy::ErrorKind::Weights, problems.join("; ")).into());
        }
        write(tensors, path.as_ref())
    }
}

/// Casts a tensor, or returns words on a finite number that would become infinite.
fn cast(tensor: &Tensor, dtype: DType) -> candle_core::Result<std::result::Result<Tensor, String>> {
    let cast = tensor.to_dtype(dtype)?;
    if !dtype.is_float() || dtype == tensor.dtype() {
        return Ok(Ok(cast));
    }
    let numbers = |tensor: &Tensor| tensor.flatten_all()?.to_dtype(DType::F64)?.to_vec1::<f64>();
    let (before, after) = (numbers(tensor)?, numbers(&cast)?);
    let lost = before.iter().zip(&after).find(|(before, after)| before.is_finite() && !after.is_finite());
    Ok(match lost {
        Some((number, _)) => Err(format!("has the number {number}, which would be infinite in {}", dtype.as_str())),
        None => Ok(cast),
    })
}

/// Writes a file beside `path` and renames it, so that no half a file is ever there.
fn write(tensors: HashMap<String, Tensor>, path: &Path) -> Result<()> {
    let io = |error: &std::io::Error| policy::Error::io(path, error);
    let mut half = path.as_os_str().to_os_string();
    half.push(".part");
    let written = safetensors::save(&tensors, &half);
    if let Err(error) = written {
        let _ = fs::remove_file(&half);
        return Err(io(&std::io::Error::other(error.to_string())).into());
    }
    fs::rename(&half, path).map_err(|error| io(&error))?;
    Ok(())
}
