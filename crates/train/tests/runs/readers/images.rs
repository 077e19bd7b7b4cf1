//! Images. The seeds of the fuzz targets are not part of the package, so these files are written here, byte by byte.

use std::io::Write;

use precast_train::data::{Images, Targets};

use crate::readers::{Folder, inputs};

/// Returns an 8-bit image as PNG: rows of samples, by the colour type of the standard (0 grey, 2 rgb, 6 rgb and alpha).
pub fn png(width: usize, height: usize, color: u8, samples: &[u8]) -> Vec<u8> {
    png_of_bits(8, width, height, color, samples)
}

fn png_of_bits(bits: u8, width: usize, height: usize, color: u8, samples: &[u8]) -> Vec<u8> {
    file(bits, width, height, color, &[], samples)
}

/// Returns a PNG file. A palette is red, green and blue of each colour, for the colour type 3.
fn file(bits: u8, width: usize, height: usize, color: u8, palette: &[u8], samples: &[u8]) -> Vec<u8> {
    let row = samples.len() / height;
    let rows: Vec<u8> = samples.chunks(row).flat_map(|row| [&[0], row].concat()).collect();
    let mut packed = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
    packed.write_all(&rows).unwrap();
    let mut header = Vec::new();
    header.extend((width as u32).to_be_bytes());
    header.extend((height as u32).to_be_bytes());
    header.extend([bits, color, 0, 0, 0]);
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    let chunks =
        [(b"IHDR", header), (b"PLTE", palette.to_vec()), (b"IDAT", packed.finish().unwrap()), (b"IEND", vec![])];
    for (name, data) in chunks.into_iter().filter(|(name, data)| *name != b"PLTE" || !data.is_empty()) {
        file.extend((data.len() as u32).to_be_bytes());
        let named = [&name[..], &data].concat();
        file.extend(&named);
        let mut sum = flate2::Crc::new();
        sum.update(&named);
        file.extend(sum.sum().to_be_bytes());
    }
    file
}

/// Converts 8-bit samples to numbers from 0 to 1.
fn parts(samples: &[u8]) -> Vec<f64> {
    samples.iter().map(|&x| f64::from(f32::from(x) / 255.0)).collect()
}

#[test]
fn folders_are_classes_and_pixels_are_numbers_from_0_to_1() {
    let folder = Folder::new("images");
    folder.file("dog/b.png", png(2, 1, 0, &[0, 255]));
    folder.file("dog/a.PNG", png(2, 1, 0, &[51, 102]));
    folder.file("cat/z.png", png(2, 1, 2, &[255, 0, 0, 0, 51, 255]));
    folder.file("cat/.hidden", "");
    folder.file(".cache/x.txt", "");
    let images = Images::new(&folder.0);
    let data = images.clone().grey().read().unwrap();
    assert_eq!(
        (data.shape(), data.labels(), data.class_names().concat()),
        (&[1, 1, 2][..], &[0, 1, 1][..], "catdog".into())
    );
    // By class, then by name. The luma of pure red is 0.299 of the maximum.
    let grey = inputs(&data);
    assert!((grey[0] - 0.299).abs() < 1e-7, "{grey:?}");
    assert_eq!(grey[2..], parts(&[51, 102, 0, 255]));

    let data = images.read().unwrap();
    assert_eq!(data.shape(), [3, 1, 2]);
    assert_eq!(inputs(&data)[..6], parts(&[255, 0, 0, 51, 0, 255]), "a channel after another");
    assert_eq!(inputs(&data)[6..12], parts(&[51, 102, 51, 102, 51, 102]), "grey in colour");
}

#[test]
fn images_are_resized_as_datasets_are() {
    let folder = Folder::new("resize");
    folder.file("a/small.png", png(1, 1, 0, &[51]));
    folder.file("a/wide.png", png(4, 2, 0, &[0, 51, 102, 153, 51, 102, 153, 204]));
    let images = Images::new(&folder.0).grey();
    let error = images.read().unwrap_err().to_string();
    assert!(
        error.contains("wide.png: 2 x 4 pixels;") && error.contains("small.png has 1 x 1, and `resize`"),
        "{error}"
    );
    let resized = inputs(&images.clone().resize(3, 5).read().unwrap());
    assert_eq!(resized[..15], parts(&[51; 15]));
    let alone = folder.0.join("a/wide.png");
    let whole = Images { folder: alone, ..images }.read_inputs().unwrap();
    assert_eq!(resized[15..], inputs(&whole.resize(3, 5).unwrap()));
}

#[test]
fn a_prediction_reads_a_folder_or_one_image() {
    let folder = Folder::new("image-prediction");
    let one = folder.file("new/1.png", png(1, 1, 6, &[255, 0, 51, 0]));
    folder.file("new/0.png", png(1, 1, 2, &[1, 2, 3]));
    let two = Images::new(folder.0.join("new")).read_inputs().unwrap();
    assert_eq!((inputs(&two), two.targets()), (parts(&[1, 2, 3, 255, 0, 51]), &Targets::None));
    assert_eq!(inputs(&Images::new(one).read_inputs().unwrap()), parts(&[255, 0, 51]), "transparency is left out");
}

#[test]
fn classes_keep_the_order_that_is_given() {
    let folder = Folder::new("image-classes");
    folder.file("dog/a.png", png(1, 1, 0, &[0]));
    let data = Images::new(&folder.0).class_names(["dog", "cat"]).read().unwrap();
    assert_eq!((data.labels(), data.classes()), (&[0][..], 2));
}

#[test]
fn samples_of_1_and_of_16_bits_are_numbers_from_0_to_1() {
    let grey = |bits, width, samples: &[u8]| {
        let file = png_of_bits(bits, width, 1, 0, samples);
        inputs(&Images::new("").grey().parse(&file, "a.png").unwrap())
    };
    assert_eq!(grey(1, 3, &[0b0110_0000]), [0.0, 1.0, 1.0]);
    let deep = grey(16, 2, &[0x33, 0x33, 0xff, 0xff]);
    assert!((deep[0] - 0.2).abs() < 1e-7 && deep[1] == 1.0, "{deep:?}");
}

/// The decoder would panic on other lengths.
#[test]
fn a_palette_has_three_bytes_for_each_colour() {
    let colours = [255, 0, 51, 0, 102, 153, 1, 2, 3];
    let read = |bytes| Images::new("").parse(&file(8, 2, 1, 3, &colours[..bytes], &[1, 0]), "a.png");
    for bytes in [6, 9] {
        assert_eq!(inputs(&read(bytes).unwrap()), parts(&[0, 255, 102, 0, 153, 51]));
    }
    for bytes in [4, 5, 7, 8] {
        let error = read(bytes).unwrap_err().to_string();
        assert!(error.contains(&format!("a.png: a palette of {bytes} bytes; allowed: three for each")), "{error}");
    }
}

/// Each JPEG file has a PNG file beside it with the pixels that Pillow 13.0 decodes of it. The standard leaves the rounding
/// of the inverse transform and the interpolation of halved colours to the decoder.
#[test]
fn jpeg_images_are_read_as_pillow_reads_them() {
    let file = |name: &str, ending: &str| {
        let path = format!("{}/tests/runs/readers/files/jpeg/{name}.{ending}", env!("CARGO_MANIFEST_DIR"));
        Images::new(path)
    };
    for (name, most) in [("grey", 1.0), ("colours", 2.0), ("halved", 3.0), ("progressive", 3.0), ("cmyk", 4.0)] {
        for images in [|images: Images| images.rgb(), |images: Images| images.grey()] {
            let [met, right] = ["jpg", "png"].map(|ending| images(file(name, ending)).read_inputs().unwrap());
            assert_eq!(met.shape(), right.shape(), "{name}");
            let (met, right) = (inputs(&met), inputs(&right));
            let far = met.iter().zip(&right).map(|(x, y)| 255.0 * (x - y).abs()).fold(0.0, f64::max);
            let mean = met.iter().zip(&right).map(|(x, y)| 255.0 * (x - y).abs()).sum::<f64>() / met.len() as f64;
            assert!(far < most + 0.1 && mean <= 0.6, "{name}: {far} and {mean} of 255");
        }
    }
    // The signature counts, and a file that is cut is an error.
    let bytes = std::fs::read(file("colours", "jpg").folder).unwrap();
    assert_eq!(Images::new("").parse(&bytes, "a.png").unwrap().shape(), [3, 19, 27]);
    for length in (0..bytes.len() - 2).step_by(7) {
        let error = Images::new("").parse(&bytes[..length], "a.jpg").unwrap_err();
        assert_eq!(error.kind(), precast::ErrorKind::Data, "{length}");
    }
}

/// Cameras write the orientation in either order of bytes. 1 is that of the pixels.
#[test]
fn pictures_that_a_camera_has_turned_are_noted() {
    let path = format!("{}/tests/runs/readers/files/jpeg/colours.jpg", env!("CARGO_MANIFEST_DIR"));
    let plain = std::fs::read(path).unwrap();
    let with = |tags: &[u8]| {
        let data = [b"Exif\0\0", tags].concat();
        let length = u16::try_from(data.len() + 2).unwrap().to_be_bytes();
        [&plain[..2], &[0xff, 0xe1], &length, &data, &plain[2..]].concat()
    };
    let little = |orientation: u8| {
        let tags =
            [[0x0f, 1, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0], [0x12, 1, 3, 0, 1, 0, 0, 0, orientation, 0, 0, 0]].concat();
        with(&[b"II*\0\x08\0\0\0\x02\0", &tags[..]].concat())
    };
    let big = with(b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x03\0\0");
    let read = |bytes: &[u8]| Images::new("").parse(bytes, "a.jpg").unwrap();
    for (bytes, is_turned) in [(plain.clone(), false), (little(1), false), (little(6), true), (big, true)] {
        let data = read(&bytes);
        let words =
            "a.jpg: by the orientation of its camera, the picture is not as its pixels, which are read as they are";
        assert_eq!(data.notes().iter().filter(|note| note.starts_with(words)).count(), usize::from(is_turned));
        assert_eq!(inputs(&data), inputs(&read(&plain)), "the pixels are read as they are stored");
    }
    // Images that are read while a run trains, by their beginnings.
    let folder = Folder::new("turned");
    std::fs::create_dir(folder.0.join("class")).unwrap();
    let files = [("a.jpg", &plain), ("b.jpg", &little(6)), ("c.jpg", &little(3))];
    files.iter().for_each(|(name, bytes)| std::fs::write(folder.0.join("class").join(name), bytes).unwrap());
    for data in [Images::new(&folder.0).read_within(0).unwrap(), Images::new(&folder.0).read().unwrap()] {
        let [note] = &data.notes()[..] else { panic!("{:?}", data.notes()) };
        assert!(note.contains("b.jpg: by the orientation") && note.contains("in 2 of "), "{note}");
    }
    // Tags that are cut are none.
    let whole = b"II*\0\x08\0\0\0\xff\xff\x12\x01\x03\0\x01\0\0\0\x06\0";
    (0..whole.len()).for_each(|length| assert!(read(&with(&whole[..length])).notes().is_empty(), "{length}"));
}

/// Damaged bytes give other pixels or an error.
#[test]
fn damaged_jpeg_images_are_errors_or_other_pixels() {
    for name in ["grey", "halved", "progressive", "cmyk"] {
        let path = format!("{}/tests/runs/readers/files/jpeg/{name}.jpg", env!("CARGO_MANIFEST_DIR"));
        let bytes = std::fs::read(path).unwrap();
        for (i, change) in (0..bytes.len()).flat_map(|i| [0x01, 0x80, 0xff].map(|change| (i, change))) {
            let mut damaged = bytes.clone();
            damaged[i] ^= change;
            if let Ok(data) = Images::new("").parse(&damaged, "a.jpg") {
                assert_eq!((data.len(), data.shape().len()), (1, 3), "{name} {i} {change}");
            }
        }
    }
}
