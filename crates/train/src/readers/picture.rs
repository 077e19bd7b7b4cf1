//! Decoding of PNG and JPEG images.

use std::{io::Cursor, path::Path};

use png::{BitDepth, ColorType, Decoder, Limits, Transformations};
use precast::{
    error::{Error, Result},
    options::options,
};
use precast_base::formats::{self, Reader};
use zune_jpeg::{
    JpegDecoder,
    errors::DecodeErrors,
    zune_core::{bytestream::ZCursor, colorspace::ColorSpace, options::DecoderOptions},
};

use crate::data::resize::MOST_PIXELS;

/// Pixel format of an image.
#[options]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum PixelFormat {
    /// One channel, for colours their luma by ITU-R BT.601, 0.299 R + 0.587 G + 0.114 B, as in Pillow:
    /// `[1, height, width]`.
    Grey,
    /// Red, green and blue: `[3, height, width]`.
    #[default]
    Rgb,
}

/// A decoded image.
pub(super) struct Picture {
    /// Height and width.
    pub size: [usize; 2],
    /// Samples of a pixel: grey, or red, green and blue, and then perhaps transparency.
    per_pixel: usize,
    /// From 0 to 1, pixel by pixel.
    samples: Vec<f32>,
}

impl Picture {
    /// Decodes a PNG or JPEG file whose sides are at most [`MOST_PIXELS`].
    pub fn decode(bytes: &[u8], file: &Path) -> Result<Self> {
        if bytes.starts_with(b"\x89PNG\r\n\x1a\n") {
            return Picture::of_png(bytes, file);
        }
        if bytes.starts_with(&[0xff, 0xd8, 0xff]) {
            return Picture::of_jpeg(bytes, file);
        }
        if let Some(other) = formats::other(bytes, Reader::Image) {
            return Err(refused(file, other));
        }
        let what = match bytes {
            [] => "it is empty",
            _ if is_text(&bytes[..bytes.len().min(64)]) => "it is a text",
            _ => "it does not begin as one",
        };
        Err(refused(file, format!("not a PNG or JPEG image: {what}")))
    }

    /// Decodes a JPEG file, of grey or of colours.
    fn of_jpeg(bytes: &[u8], file: &Path) -> Result<Self> {
        let broken = |error: DecodeErrors| refused(file, format!("broken JPEG image: {error}"));
        // The decoder is built without vector instructions, so that the pixels are the same on every machine.
        let options = DecoderOptions::default().set_max_width(MOST_PIXELS).set_max_height(MOST_PIXELS);
        let options = options.set_strict_mode(true).jpeg_set_out_colorspace(ColorSpace::RGB);
        let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options);
        decoder.decode_headers().map_err(broken)?;
        if decoder.input_colorspace() == Some(ColorSpace::Luma) {
            decoder.set_options(options.jpeg_set_out_colorspace(ColorSpace::Luma));
        }
        if !has_end(bytes) {
            return Err(refused(file, "broken JPEG image: the file is cut"));
        }
        let raw = decoder.decode().map_err(broken)?;
        let (w, h) = decoder.dimensions().unwrap_or_default();
        let per_pixel = raw.len() / (w * h).max(1);
        if !matches!(per_pixel, 1 | 3) {
            return Err(refused(file, format!("broken JPEG image: {} bytes for {h} x {w} pixels", raw.len())));
        }
        let samples = raw.into_iter().map(|sample| f32::from(sample) / f32::from(u8::MAX)).collect();
        Ok(Picture { size: [h, w], per_pixel, samples })
    }

    /// Decodes a PNG file.
    fn of_png(bytes: &[u8], file: &Path) -> Result<Self> {
        let broken = |error: png::DecodingError| refused(file, format!("broken PNG image: {error}"));
        let mut decoder = Decoder::new_with_limits(Cursor::new(bytes), Limits { bytes: MOST_IMAGE_BYTES });
        // Palettes become colours, and fewer than eight bits become eight.
        decoder.set_transformations(Transformations::EXPAND);
        let header = decoder.read_header_info().map_err(broken)?;
        let size = [header.height as usize, header.width as usize];
        let [h, w] = size;
        if size.iter().any(|side| *side > MOST_PIXELS) {
            return Err(refused(file, format!("{h} x {w} pixels; allowed: sides of {MOST_PIXELS}")));
        }
        if let Some(length) = broken_palette(bytes) {
            return Err(refused(file, format!("a palette of {length} bytes; allowed: three for each colour")));
        }
        let mut reader = decoder.read_info().map_err(broken)?;
        let length = reader.output_buffer_size().filter(|length| *length <= MOST_IMAGE_BYTES);
        let length = length.ok_or_else(|| refused(file, "more than 256 MiB of pixels"))?;
        let mut raw = vec![0; length];
        let frame = reader.next_frame(&mut raw).map_err(broken)?;
        raw.truncate(frame.buffer_size());
        let samples = match frame.bit_depth {
            BitDepth::Sixteen => {
                let wide = raw.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
                wide.map(|sample| f32::from(sample) / f32::from(u16::MAX)).collect()
            }
            _ => raw.iter().map(|sample| f32::from(*sample) / f32::from(u8::MAX)).collect(),
        };
        let per_pixel = match frame.color_type {
            ColorType::Grayscale => 1,
            ColorType::GrayscaleAlpha => 2,
            ColorType::Rgb => 3,
            ColorType::Rgba => 4,
            ColorType::Indexed => return Err(refused(file, "a palette that was not expanded")),
        };
        Ok(Picture { size, per_pixel, samples })
    }

    fn channel(&self, at: usize) -> Vec<f32> {
        self.samples.iter().skip(at).step_by(self.per_pixel).copied().collect()
    }

    /// Returns the wanted channels, one after another, without transparency.
    pub fn channels(&self, wanted: PixelFormat) -> Vec<Vec<f32>> {
        match (wanted, self.per_pixel >= 3) {
            (PixelFormat::Grey, false) => vec![self.channel(0)],
            (PixelFormat::Grey, true) => {
                vec![self.samples.chunks_exact(self.per_pixel).map(|pixel| luma(&pixel[..3])).collect()]
            }
            (PixelFormat::Rgb, false) => vec![self.channel(0); 3],
            (PixelFormat::Rgb, true) => (0..3).map(|at| self.channel(at)).collect(),
        }
    }
}

/// Computes the luma of red, green and blue. In f64 the weights add up to 1, so grey is unchanged.
fn luma(pixel: &[f32]) -> f32 {
    let terms = pixel.iter().zip([0.299, 0.587, 0.114]);
    terms.map(|(&sample, weight)| weight * f64::from(sample)).sum::<f64>() as f32
}

/// Maximum memory for decoding one image: 256 MiB, as for 4096 x 4096 with four channels of 16 bits.
const MOST_IMAGE_BYTES: usize = 256 << 20;

/// Returns the length of a palette (the chunk `PLTE`) that is not a multiple of three. `png` 0.18.1 panics on it
/// (<https://github.com/image-rs/image-png/issues/694>).
fn broken_palette(bytes: &[u8]) -> Option<u32> {
    // After the signature, each chunk is its length, its kind, as many bytes, and a checksum.
    let mut rest = bytes.get(8..)?;
    while let Some((length, after)) = rest.split_first_chunk() {
        let length = u32::from_be_bytes(*length);
        if after.starts_with(b"PLTE") && length % 3 != 0 {
            return Some(length);
        }
        rest = after.get((length as usize).checked_add(8)?..)?;
    }
    None
}

/// Returns whether a JPEG file has the marker of its end after the coded pixels. In these, 0xff is followed by 0 unless it
/// begins a marker, so the end cannot be part of them. (ITU-T T.81, annex B.)
fn has_end(bytes: &[u8]) -> bool {
    const END: u8 = 0xd9;
    let mut at = 2;
    while let Some(&[first, marker]) = bytes.get(at..at + 2) {
        // Coded pixels, restarts and fill bytes have no length.
        if first != 0xff || matches!(marker, 0 | 0x01 | 0xd0..=0xd8) {
            at += 1 + usize::from(first == 0xff);
        } else if marker == 0xff {
            at += 1;
        } else if marker == END {
            return true;
        } else {
            let Some(&[high, low]) = bytes.get(at + 2..at + 4) else { return false };
            at += 2 + usize::from(u16::from_be_bytes([high, low]));
        }
    }
    false
}

/// Returns whether a camera has noted in a JPEG file that the picture is turned or mirrored against its pixels: an
/// orientation other than 1. (Exif, in the first segment of the kind APP1.)
pub(super) fn is_turned(bytes: &[u8]) -> bool {
    let mut rest = bytes.get(2..).unwrap_or_default();
    while let [0xff, kind @ 0xe0..=0xef, high, low, ..] = *rest {
        let Some((segment, after)) = rest.split_at_checked(2 + usize::from(u16::from_be_bytes([high, low]))) else {
            return false;
        };
        if let (0xe1, Some(tags)) = (kind, segment.get(4..).and_then(|data| data.strip_prefix(b"Exif\0\0"))) {
            return orientation(tags).is_some_and(|met| met != 1);
        }
        rest = after;
    }
    false
}

/// Returns the orientation among the tags of a picture, which are those of a TIFF file.
fn orientation(tags: &[u8]) -> Option<u16> {
    const ORIENTATION: u16 = 0x112;
    let is_little = tags.starts_with(b"II");
    let number = |at: usize| {
        let bytes = tags.get(at..)?.first_chunk()?;
        Some(if is_little { u16::from_le_bytes(*bytes) } else { u16::from_be_bytes(*bytes) })
    };
    // The tags begin within the segment, whose length is a number of 16 bits, and each has 12 bytes.
    let first = usize::from(number(if is_little { 4 } else { 6 })?);
    let at = (0..usize::from(number(first)?)).map(|tag| first + 2 + 12 * tag);
    at.take_while(|at| *at < tags.len()).find(|at| number(*at) == Some(ORIENTATION)).and_then(|at| number(at + 8))
}

/// Returns whether bytes are the beginning of a text.
fn is_text(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).map_or_else(|error| error.error_len().is_none(), |_| true)
}

pub(super) fn refused(path: &Path, words: impl std::fmt::Display) -> Error {
    Error::data(words.to_string()).in_file(path.display())
}
