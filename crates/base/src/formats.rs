//! Formats of files by their first bytes, for the errors of readers that expect another one.

use crate::files;

/// Number of first bytes by which every format is recognized.
pub const FIRST: usize = 512;

/// Reader of one format.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reader {
    /// Weights: safetensors.
    Weights,
    /// A model: ONNX.
    Onnx,
    /// A table: CSV.
    Table,
    /// A text.
    Text,
    /// An image: PNG or JPEG.
    Image,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Format {
    Array,
    Arrays,
    Arrow,
    Bitmap,
    Bzip2,
    Dicom,
    Gguf,
    Gif,
    Gzip,
    Hdf5,
    Heif,
    Image,
    Json,
    Keras,
    Lite,
    OnnxRuntime,
    Page,
    Parquet,
    Pdf,
    Pickle,
    Safetensors,
    Sqlite,
    Tar,
    Tiff,
    Torch,
    Utf16,
    WebP,
    Workbook,
    Xz,
    Zip,
    Zstd,
}

/// Bytes by which formats are recognized, with their place. They do not begin a table of text, whose columns may be `PAR1`
/// or `FEA1`.
const KNOWN: &[(usize, &[u8], Format)] = &[
    (0, b"GGUF", Format::Gguf),
    (0, b"\x89HDF\r\n\x1a\n", Format::Hdf5),
    (0, b"\x93NUMPY", Format::Array),
    (4, b"TFL3", Format::Lite),
    (4, b"ORTM", Format::OnnxRuntime),
    (0, b"\x1f\x8b", Format::Gzip),
    (4, b"1AY&SY", Format::Bzip2),
    (0, b"\xfd7zXZ\0", Format::Xz),
    (0, b"\x28\xb5\x2f\xfd", Format::Zstd),
    (257, b"ustar", Format::Tar),
    (0, b"SQLite format 3\0", Format::Sqlite),
    (0, b"PAR1\x15", Format::Parquet),
    (0, b"ARROW1\0", Format::Arrow),
    (0, b"FEA1\0", Format::Arrow),
    (0, b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", Format::Workbook),
    (0, b"%PDF-", Format::Pdf),
    (0, b"\x89PNG", Format::Image),
    (0, b"\xff\xd8\xff", Format::Image),
    (0, b"GIF87a", Format::Gif),
    (0, b"GIF89a", Format::Gif),
    (0, b"II*\0", Format::Tiff),
    (0, b"MM\0*", Format::Tiff),
    (4, b"ftypheic", Format::Heif),
    (4, b"ftypheix", Format::Heif),
    (4, b"ftypmif1", Format::Heif),
    (4, b"ftypavif", Format::Heif),
    (128, b"DICM", Format::Dicom),
    (0, b"<!", Format::Page),
    (0, b"<?xml", Format::Page),
    (0, b"<html", Format::Page),
    (0, b"<HTML", Format::Page),
];

/// Words for a file of `torch.save` among weights.
pub const OF_TORCH: &str = "a file of `torch.save`; write the state dict as safetensors, in Python by \
    `safetensors.torch.save_model(model, \"model.safetensors\")`";

/// Words for a table that pandas reads.
pub const OF_PANDAS: &str = "in Python, pandas reads it and `to_csv` writes a CSV";

impl Format {
    /// Returns the format of a file that is not a table of text.
    fn of_table(start: &[u8]) -> Option<Format> {
        match start.trim_ascii_start().split_first() {
            Some((b'{', _)) => Some(Format::Json),
            Some((b'[', rest)) if rest.trim_ascii_start().first().is_some_and(|first| b"[{\"".contains(first)) => {
                Some(Format::Json)
            }
            _ => Format::of(start),
        }
    }

    fn of(start: &[u8]) -> Option<Format> {
        let known =
            || KNOWN.iter().find(|(place, known, _)| start.get(*place..).is_some_and(|at| at.starts_with(known)));
        match start {
            // The length of a header, which may be the first bytes of another format, and its brace.
            [_, _, _, _, 0, 0, 0, 0, b'{', ..] => Some(Format::Safetensors),
            [b'P', b'K', 3, 4, ..] => Some(Format::of_archive(start)),
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some(Format::WebP),
            [b'B', b'M', _, _, _, _, 0, 0, 0, 0, ..] => Some(Format::Bitmap),
            // The number of the protocol, and an opcode.
            [0x80, 2..=5, b'('..=0xff, ..] => Some(Format::Pickle),
            [first, 0, second, 0, ..] | [0, first, 0, second, ..] if first.min(second) >= &b' ' => Some(Format::Utf16),
            _ => known().map(|(.., format)| *format),
        }
    }

    /// Returns the format of a zip archive by the name of its first file, which begins at the 30th byte.
    fn of_archive(start: &[u8]) -> Format {
        let name = start.get(26..28).and_then(|length| {
            let length = usize::from(u16::from_le_bytes([length[0], length[1]]));
            start.get(30..30 + length)
        });
        match name {
            Some(name) if name.ends_with(b".npy") => Format::Arrays,
            Some(name) if name.ends_with(b"/data.pkl") => Format::Torch,
            Some(name) if name.starts_with(b"xl/") || name.starts_with(b"_rels/") => Format::Workbook,
            Some(b"[Content_Types].xml" | b"mimetype") => Format::Workbook,
            Some(b"metadata.json" | b"config.json" | b"model.weights.h5") => Format::Keras,
            _ => Format::Zip,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Format::Array => "an array of NumPy",
            Format::Arrays => "arrays of NumPy (npz)",
            Format::Arrow => "a file of Arrow or Feather",
            Format::Bitmap => "an image in BMP",
            Format::Bzip2 => "a bzip2 archive",
            Format::Dicom => "an image in DICOM",
            Format::Gguf => "a GGUF file",
            Format::Gif => "a GIF",
            Format::Gzip => "a gzip archive",
            Format::Hdf5 => "an HDF5 file",
            Format::Heif => "an image in HEIF or AVIF",
            Format::Image => "an image",
            Format::Json => "JSON",
            Format::Keras => "a file of Keras",
            Format::Lite => "a model of TensorFlow Lite",
            Format::OnnxRuntime => "a model in the format of ONNX Runtime",
            Format::Page => "a page of HTML or XML, as a failed download leaves",
            Format::Parquet => "a Parquet file",
            Format::Pdf => "a PDF",
            Format::Pickle => "a pickle of Python",
            Format::Safetensors => "a safetensors file",
            Format::Sqlite => "a database of SQLite",
            Format::Tar => "a tar archive",
            Format::Tiff => "an image in TIFF",
            Format::Torch => "a file of `torch.save`",
            Format::Utf16 => "a text in UTF-16",
            Format::WebP => "an image in WebP",
            Format::Workbook => "a workbook of a spreadsheet",
            Format::Xz => "an xz archive",
            Format::Zip => "a zip archive",
            Format::Zstd => "a zstd archive",
        }
    }

    /// Returns the remedy for a reader that expects another format.
    fn remedy(self, reader: Reader) -> &'static str {
        match (reader, self) {
            (Reader::Image, _) => "expected PNG or JPEG",
            (_, Format::Bzip2) => "`bunzip2` unpacks it",
            (_, Format::Gzip) => "`gunzip` unpacks it",
            (_, Format::Tar) => "`tar -xf` unpacks it",
            (_, Format::Xz) => "`unxz` unpacks it",
            (_, Format::Zstd) => "`unzstd` unpacks it",
            (Reader::Weights, Format::Array | Format::Arrays) => {
                "in Python, `safetensors.numpy.save_file` writes arrays with their names"
            }
            (Reader::Weights, Format::Keras | Format::Hdf5) => {
                "in Python, `safetensors.numpy.save_file` writes the arrays of the layers"
            }
            (Reader::Weights, Format::Gguf) => {
                "its tensors are quantized for llama.cpp; expected the safetensors file that it was made from"
            }
            (Reader::Weights, _) => "expected a safetensors file",
            (Reader::Onnx, Format::OnnxRuntime) => "expected the ONNX model that it was made from",
            (Reader::Onnx, Format::Torch | Format::Pickle) => "in Python, `torch.onnx.export` writes a model",
            (Reader::Onnx, Format::Safetensors) => "it has weights and no network; expected an ONNX model",
            (Reader::Onnx, Format::Zip) => "the model may be in it",
            (Reader::Onnx, _) => "expected an ONNX model",
            (_, Format::Json) => OF_PANDAS,
            (_, Format::Parquet) => "in Python, `pandas.read_parquet` reads it and `to_csv` writes a CSV",
            (_, Format::Arrow) => "in Python, `pandas.read_feather` reads it and `to_csv` writes a CSV",
            (_, Format::Sqlite) => "`sqlite3 -csv -header` writes the rows of a query as CSV",
            (_, Format::Workbook) => "the program that wrote it saves a sheet as CSV",
            (_, Format::Utf16) => "`iconv -f UTF-16LE -t UTF-8` converts it, or `-f UTF-16BE`",
            (Reader::Table, Format::Array | Format::Arrays) => "`npy` in place of `csv` reads it",
            (Reader::Text, Format::Array | Format::Arrays) => "`npy` in place of `text` reads it",
            (Reader::Table, Format::Image | Format::Gif | Format::WebP) => {
                "`images` in place of `csv` reads a folder of images"
            }
            (Reader::Text, Format::Image | Format::Gif | Format::WebP) => {
                "`images` in place of `text` reads a folder of images"
            }
            (_, Format::Zip) => "the table may be in it",
            (Reader::Table, _) => "expected a CSV",
            (Reader::Text, _) => "expected a text",
        }
    }
}

/// Returns words for a file of another format than the one that a reader expects, by its first bytes, of which
/// [`FIRST`] are enough.
pub fn other(start: &[u8], reader: Reader) -> Option<String> {
    if files::is_pointer(start) {
        return Some(files::POINTER.into());
    }
    let format = if reader == Reader::Table { Format::of_table(start)? } else { Format::of(start)? };
    match (reader, format) {
        // A text may be a page.
        (Reader::Text, Format::Page) => None,
        (Reader::Weights, Format::Safetensors) | (Reader::Weights | Reader::Onnx, Format::Utf16) => None,
        (Reader::Weights, Format::Torch | Format::Pickle) => Some(OF_TORCH.into()),
        // Files of `torch.save` are archives.
        (Reader::Weights, Format::Zip) => Some(format!("{}, perhaps {OF_TORCH}", format.name())),
        _ => Some(format!("{}; {}", format.name(), format.remedy(reader))),
    }
}
