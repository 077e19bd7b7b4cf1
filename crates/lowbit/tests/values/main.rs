//! Codes, scales and products, compared with recordings of other systems and with closed forms.

mod conversions;
mod data;
mod delayed;
mod errors;
mod laws;
mod products;
mod scales;
