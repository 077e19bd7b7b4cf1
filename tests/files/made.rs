//! Files of tensors made by the crate `safetensors`, and their conversion.

use std::path::Path;

use precast::{
    prelude::*,
    storage::stored::{ConvertOptions, Converted, StoredModel},
};
use safetensors::{Dtype, serialize, tensor::TensorView};

/// A tensor of a file to be made.
pub(super) type Made = (&'static str, Dtype, Vec<usize>, Vec<u8>);

pub(super) fn f32s(name: &'static str, shape: &[usize], values: &[f32]) -> Made {
    (name, Dtype::F32, shape.to_vec(), values.iter().flat_map(|x| x.to_le_bytes()).collect())
}

pub(super) fn file(tensors: &[Made]) -> Vec<u8> {
    let view = |(name, dtype, shape, data): &'_ Made| {
        let data: &'static [u8] = Box::leak(data.clone().into_boxed_slice());
        (*name, TensorView::new(*dtype, shape.clone(), data).unwrap())
    };
    serialize(tensors.iter().map(view), Some([("format".to_string(), "pt".to_string())].into())).unwrap()
}

pub(super) fn convert(from: &Path, to: &Path, policy: &str, options: ConvertOptions) -> Result<Converted> {
    let model = StoredModel::open(from)?;
    let policy = match Policy::names().any(|name| name == policy) {
        true => Policy::named(policy)?,
        false => Policy::parse(policy, "policy.yaml")?,
    };
    let (mut told, plan) = (0, policy.plan_outline(model.outline())?);
    let converted = plan.convert_with(&model, to, options, &mut |bytes| told += bytes)?;
    assert_eq!(told, model.bytes(), "progress tells of every byte");
    Ok(converted)
}
