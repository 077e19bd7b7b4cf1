//! Resizing of images.

use precast::error::{Error, Result};

use super::{Dataset, Inputs};

/// Maximum side of a resized image, in pixels.
pub const MOST_PIXELS: usize = 4096;

impl Dataset {
    /// Resizes images `[..., height, width]` bilinearly: pixels are weighted by a triangle around the centre of the new
    /// one. Centres are at half-integer positions (`align_corners = false`).
    ///
    /// The triangle extends one pixel of the smaller image to each side. Upscaling therefore interpolates between the
    /// four nearest pixels and extends the edge; downscaling filters: every pixel counts, as in Pillow and in torch
    /// with `antialias=True`.
    ///
    /// ```
    /// # use precast_train::data::Dataset;
    /// // A white line in every fourth column, made a quarter as large: of the grey of its mean.
    /// let lines = (0..16 * 16).map(|i| if i % 4 == 2 { 1.0 } else { 0.0 }).collect();
    /// let small = Dataset::new(lines, &[1, 16, 16], vec![0])?.resize(4, 4)?;
    /// assert_eq!(small.batches(1)?.next().unwrap().x.at(3, 1)?.to_f64()[1], 0.25);
    /// # Ok::<(), precast::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Shape`](precast::ErrorKind::Shape) unless the examples have two axes of at least one pixel, as must
    /// the new size.
    pub fn resize(self, height: usize, width: usize) -> Result<Self> {
        if let Inputs::Stored(_) = self.inputs() {
            return self.later(move |part| part.resize(height, width));
        }
        let [outer @ .., h, w] = self.shape() else {
            let words = format!("examples of shape {:?} are not images [..., height, width]", self.shape());
            return Err(Error::shape(words));
        };
        if [height, width, *h, *w].contains(&0) || height.max(width) > MOST_PIXELS {
            return Err(Error::shape(format!(
                "images of {h} x {w} cannot be resized to {height} x {width}; allowed: 1 to {MOST_PIXELS} pixels"
            )));
        }
        let Inputs::Numbers(pixels) = self.inputs() else {
            return Err(Error::shape("indices are not pixels, and cannot be resized"));
        };
        let len = (height * width).checked_mul(pixels.len() / (h * w));
        let mut values = Vec::new();
        if len.is_none_or(|len| values.try_reserve_exact(len).is_err()) {
            let images = pixels.len() / (h * w);
            return Err(Error::shape(format!("{images} images of {height} x {width} do not fit into memory")));
        }
        resize(pixels, (*h, *w), (height, width), &mut values);
        let shape = [outer, &[height, width]].concat();
        Ok(self.with_images(values, shape))
    }
}

/// Appends resized images, with sizes `(height, width)`; see [`Dataset::resize`].
pub fn resize(images: &[f32], from: (usize, usize), to: (usize, usize), out: &mut Vec<f32>) {
    if to.0 >= from.0 && to.1 >= from.1 { interpolate(images, from, to, out) } else { filter(images, from, to, out) }
}

/// Downscales images along at least one axis.
fn filter(images: &[f32], (h, w): (usize, usize), (height, width): (usize, usize), out: &mut Vec<f32>) {
    let (rows, columns) = (triangles(h, height), triangles(w, width));
    // Weights add up to 1 within f64 rounding, so white stays 1 in f32.
    let mut narrow = vec![0f64; h * width];
    for image in images.chunks_exact(h * w) {
        for (row, to) in image.chunks_exact(w).zip(narrow.chunks_exact_mut(width)) {
            for (to, (first, weights)) in to.iter_mut().zip(&columns) {
                *to = weights.iter().zip(&row[*first..]).map(|(weight, &x)| weight * f64::from(x)).sum();
            }
        }
        for (first, weights) in &rows {
            let terms = |x: usize| weights.iter().zip(*first..).map(move |(weight, y)| (weight, y * width + x));
            out.extend((0..width).map(|x| terms(x).map(|(weight, at)| weight * narrow[at]).sum::<f64>() as f32));
        }
    }
}

/// Returns for each of `to` pixels along an axis of `from` the first contributing pixel, and the weights of it and its
/// successors, which add up to 1.
fn triangles(from: usize, to: usize) -> Vec<(usize, Vec<f64>)> {
    let scale = from as f64 / to as f64;
    let reach = scale.max(1.0);
    let triangle = |i: usize| {
        let centre = (i as f64 + 0.5) * scale;
        let first = (centre - reach + 0.5).max(0.0) as usize;
        let end = ((centre + reach + 0.5) as usize).clamp(first + 1, from);
        let weight = |at: usize| (1.0 - ((at as f64 + 0.5 - centre) / reach).abs()).max(0.0);
        let sum: f64 = (first..end).map(weight).sum();
        (first, (first..end).map(|at| weight(at) / sum).collect())
    };
    (0..to).map(triangle).collect()
}

/// Upscales images by interpolating between the four nearest pixels.
fn interpolate(images: &[f32], (h, w): (usize, usize), (height, width): (usize, usize), out: &mut Vec<f32>) {
    let (rows, columns) = (neighbours(h, height), neighbours(w, width));
    // Two products and a sum could exceed the larger pixel by a rounding, and so exceed white, which is 1.
    let between = |start: f32, end: f32, at: f32| start + (end - start) * at;
    for image in images.chunks_exact(h * w) {
        for &(top, bottom, down) in &rows {
            for &(left, right, across) in &columns {
                let row = |y: usize| between(image[y * w + left], image[y * w + right], across);
                out.push(between(row(top), row(bottom), down));
            }
        }
    }
}

/// Returns for each of `to` pixels along an axis of `from` its two neighbours and the fraction towards the second.
fn neighbours(from: usize, to: usize) -> Vec<(usize, usize, f32)> {
    let last = from - 1;
    let place = |i: usize| {
        let position = ((i as f32 + 0.5) * from as f32 / to as f32 - 0.5).clamp(0.0, last as f32);
        let first = (position.floor() as usize).min(last);
        (first, (first + 1).min(last), position - first as f32)
    };
    (0..to).map(place).collect()
}
