//! Images in folders.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::Read as _,
    path::{Path, PathBuf},
};

use precast::{
    error::{Error, Result},
    options::options,
};
use precast_base::{files, printable};

use super::{
    class_names::ClassNames,
    picture::{Picture, PixelFormat, is_turned, refused},
    rows::{CHANGED, State, state_of},
};
use crate::data::{
    Dataset, Inputs, Targets,
    origin::{Parts, Read},
    resize::{MOST_PIXELS, resize},
};

/// PNG and JPEG images in a folder with a subfolder for each class. Hidden entries, whose names begin with a dot, are skipped;
/// anything else that is not a class folder, or not an image in one, is an error.
#[options(written)]
#[derive(Clone, Debug, PartialEq)]
pub struct Images {
    /// The folder. The names of its subfolders are the classes.
    pub folder: PathBuf,
    /// Pixel format to which images are converted, without transparency. Profiles of colours and the orientation of a
    /// camera are not applied, as in torchvision; images that have such an orientation are noted.
    #[option(default = PixelFormat::Rgb, no_setter)]
    pub pixels: PixelFormat,
    /// Height and width to which each image is [resized](Dataset::resize), bilinearly and with filtering when
    /// downscaled.
    #[option(default = None, shown = "those of the images, which must all have the same size", at_least = 1, no_setter)]
    pub resize: Option<[usize; 2]>,
    /// Names of the classes in the order of their indices.
    #[option(default, shown = "those of the subfolders, sorted", left_out)]
    pub class_names: Vec<String>,
}

impl Images {
    /// Converts images to grey.
    pub fn grey(self) -> Self {
        Images { pixels: PixelFormat::Grey, ..self }
    }

    /// Converts images to red, green and blue.
    pub fn rgb(self) -> Self {
        Images { pixels: PixelFormat::Rgb, ..self }
    }

    /// Sets the height and width to which each image is resized.
    #[must_use]
    pub fn resize(self, height: usize, width: usize) -> Self {
        Images { resize: Some([height, width]), ..self }
    }

    /// Reads the images as examples of shape `[channels, height, width]`, with values from 0 to 1, sorted by class and
    /// name.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](precast::ErrorKind::Io) when a folder or a file cannot be read,
    /// [`ErrorKind::Data`](precast::ErrorKind::Data) with the file for one that is not a PNG or JPEG image, is broken, has a side
    /// of more than 4096 pixels or differs in size from the first; when there are no images or all are more than 1 GiB;
    /// and for a folder not among the [`class_names`](Images::class_names).
    pub fn read(&self) -> Result<Dataset> {
        self.within(None, true)
    }

    /// Reads the images as [`read`](Images::read) does. Images whose values take more than `memory` bytes, four for each
    /// channel of a pixel, are [stored](Dataset::stored): each is decoded when it is needed.
    ///
    /// # Errors
    /// As [`read`](Images::read), but for the memory of all images.
    pub fn read_within(&self, memory: u64) -> Result<Dataset> {
        self.within(Some(memory), true)
    }

    /// Reads the images directly in the folder and in its subfolders, whatever their names, or the one image that it
    /// names, sorted by name and without targets.
    ///
    /// # Errors
    /// As [`read`](Images::read).
    pub fn read_inputs(&self) -> Result<Dataset> {
        self.within(None, false)
    }

    /// Reads images as [`read_inputs`](Images::read_inputs) and [`read_within`](Images::read_within) do.
    ///
    /// # Errors
    /// As [`read_within`](Images::read_within).
    pub fn read_inputs_within(&self, memory: u64) -> Result<Dataset> {
        self.within(Some(memory), false)
    }

    fn within(&self, memory: Option<u64>, with_targets: bool) -> Result<Dataset> {
        let (files, targets, names) = if with_targets {
            let (files, values, names) = self.of_classes()?;
            (files, Targets::Classes { shape: vec![], values }, names)
        } else {
            (self.files()?, Targets::None, Vec::new())
        };
        let mut pixels = Pixels::of(self)?;
        if let (Some(memory), Some(first)) = (memory, files.first()) {
            pixels.most = usize::try_from(memory / size_of::<f32>() as u64).unwrap_or(usize::MAX).max(MOST_VALUES);
            pixels.add(first)?;
            if (pixels.values.len() * size_of::<f32>()) as u64 > memory / files.len() as u64 {
                let (options, size, len) = (self.clone(), pixels.size, files.len());
                let before = files.iter().map(|file| state(file)).collect::<Result<Vec<_>>>()?;
                let mut turned = Turned::default();
                let looked_at = files.iter().take(LOOKED_AT);
                looked_at.clone().try_for_each(|file| beginning(file).map(|bytes| turned.look(&bytes, file)))?;
                let found = turned.read(&format!("the first {}", looked_at.len()));
                let read = move |places: &[usize]| {
                    let mut pixels = Pixels { size: size.clone(), ..Pixels::of(&options)? };
                    for &place in places {
                        let file = &files[place];
                        if state(file)? != before[place] {
                            return Err(refused(file, CHANGED));
                        }
                        pixels.add(file)?;
                    }
                    pixels.dataset(&options.folder, Targets::None)
                };
                let dataset = Dataset::stored(len, targets, read)?.with_class_names(names)?;
                return Ok(dataset.with_origin(Parts::default(), found));
            }
        }
        files.iter().skip(pixels.count).try_for_each(|file| pixels.add(file))?;
        pixels.dataset(&self.folder, targets)?.with_class_names(names)
    }

    /// Lists the files of the images of all classes, with their classes and the names of these.
    fn of_classes(&self) -> Result<(Vec<PathBuf>, Vec<i64>, Vec<String>)> {
        let mut folders = Vec::new();
        for path in entries(&self.folder)? {
            let name = path.file_name().and_then(|name| name.to_str()).map(str::to_string);
            let name = name.ok_or_else(|| refused(&path, "the name of a class is not text in UTF-8"))?;
            if !path.is_dir() {
                return Err(refused(&path, "not a folder; the images of each class lie in a folder of its own"));
            }
            folders.push((path, name));
        }
        let met: BTreeSet<String> = folders.iter().map(|(_, name)| name.clone()).collect();
        let names = ClassNames::new(&self.class_names, met)?;
        let (mut files, mut labels) = (Vec::new(), Vec::new());
        for (folder, name) in &folders {
            let label = names.index(name).map_err(|words| refused(folder, words))?;
            let of_class = entries(folder)?;
            if of_class.is_empty() {
                return Err(refused(folder, "the folder of a class has no images"));
            }
            labels.resize(labels.len() + of_class.len(), label);
            files.extend(of_class);
        }
        Ok((files, labels, names.into_vec()))
    }

    /// Lists the files of the images in the order of [`read_inputs`](Images::read_inputs).
    ///
    /// # Errors
    /// [`ErrorKind::Io`](precast::ErrorKind::Io) when a folder cannot be read.
    pub fn files(&self) -> Result<Vec<PathBuf>> {
        if !self.folder.is_dir() {
            return Ok(vec![self.folder.clone()]);
        }
        let of_entry = |path: PathBuf| if path.is_dir() { entries(&path) } else { Ok(vec![path]) };
        let files = entries(&self.folder)?.into_iter().map(of_entry).collect::<Result<Vec<_>>>()?;
        Ok(files.concat())
    }

    /// Returns whether a file has the extension of an image that can be read.
    pub(super) fn is_image(file: &Path) -> bool {
        let is = |known: &str| file.extension().is_some_and(|extension| extension.eq_ignore_ascii_case(known));
        ["png", "jpg", "jpeg"].into_iter().any(is)
    }

    /// Parses one image from the bytes of its file, without a target; `origin` names it in errors.
    ///
    /// # Errors
    /// As [`read`](Images::read).
    pub fn parse(&self, bytes: &[u8], origin: &str) -> Result<Dataset> {
        let mut pixels = Pixels::of(self)?;
        pixels.add_bytes(bytes, Path::new(origin))?;
        pixels.dataset(Path::new(origin), Targets::None)
    }

    /// Returns these options with the class names that were found. `dataset` is the result of [`read`](Images::read),
    /// or a part of it.
    pub fn found(&self, dataset: &Dataset) -> Images {
        self.clone().class_names(dataset.class_names())
    }
}

/// Lists the visible entries of a folder, sorted by name.
fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let list = || -> std::io::Result<Vec<PathBuf>> {
        let mut paths = Vec::new();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            if !entry.file_name().as_encoded_bytes().starts_with(b".") {
                paths.push(entry.path());
            }
        }
        paths.sort();
        Ok(paths)
    };
    list().map_err(|error| Error::io(folder, &error))
}

/// Returns the state of a file, by which a change is found.
fn state(file: &Path) -> Result<State> {
    fs::metadata(file).map(|of| state_of(&of)).map_err(|error| Error::io(file, &error))
}

/// Number of images that are looked at for a camera's orientation before any is decoded.
const LOOKED_AT: usize = 1024;

/// Reads as much of a file as the first segments of a JPEG image take.
fn beginning(file: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = File::open(file).and_then(|file| file.take(1 << 17).read_to_end(&mut bytes));
    read.map(|_| bytes).map_err(|error| Error::io(file, &error))
}

/// Maximum length of an image file: 64 MiB.
const MOST_FILE_BYTES: usize = 64 << 20;

/// Maximum number of values of all images: 1 GiB.
const MOST_VALUES: usize = (1 << 30) / size_of::<f32>();

/// Pixels of images of one size, concatenated.
struct Pixels<'a> {
    options: &'a Images,
    /// Height and width, and the first file that has them, once there is an image.
    size: Option<([usize; 2], PathBuf)>,
    values: Vec<f32>,
    /// Number of images, and the most values of all.
    count: usize,
    most: usize,
    turned: Turned,
}

/// Images that a camera has turned.
#[derive(Default)]
struct Turned {
    count: usize,
    first: PathBuf,
}

impl Turned {
    /// Looks at an image, or at the beginning of one.
    fn look(&mut self, bytes: &[u8], file: &Path) {
        if is_turned(bytes) {
            if self.count == 0 {
                self.first = file.into();
            }
            self.count += 1;
        }
    }

    /// Returns a note, if there are any among so many images.
    fn read(&self, images: &str) -> Read {
        let note = (self.count > 0).then(|| {
            format!(
                "{}: by the orientation of its camera, the picture is not as its pixels, which are read as they are; so it is \
                 in {} of {images} images; `ImageOps.exif_transpose` of Pillow turns them",
                printable(&self.first.display().to_string()),
                self.count
            )
        });
        Read { notes: note.into_iter().collect(), ..Read::default() }
    }
}

impl<'a> Pixels<'a> {
    fn of(options: &'a Images) -> Result<Self> {
        match options.resize {
            Some([h, w]) if !(1..=MOST_PIXELS).contains(&h) || !(1..=MOST_PIXELS).contains(&w) => {
                Err(Error::value(format!("images cannot be resized to {h} x {w}; allowed: 1 to {MOST_PIXELS} pixels")))
            }
            _ => {
                let (values, turned) = (Vec::new(), Turned::default());
                Ok(Pixels { options, size: None, values, count: 0, most: MOST_VALUES, turned })
            }
        }
    }

    fn add(&mut self, file: &Path) -> Result<()> {
        if file.exists() && !Images::is_image(file) {
            let words = match file.is_dir() {
                true => "a folder in the folder of a class; `folder` is the one with the folders of the classes",
                false => "not a PNG or JPEG image",
            };
            return Err(refused(file, words));
        }
        self.add_bytes(&files::read_within(file, MOST_FILE_BYTES)?, file)
    }

    fn add_bytes(&mut self, bytes: &[u8], file: &Path) -> Result<()> {
        let image = Picture::decode(bytes, file)?;
        let met = image.size;
        let size = match (self.options.resize, &self.size) {
            (Some(size), _) => size,
            (None, None) => met,
            (None, Some((size, first))) if *size != met => {
                let first = first.display().to_string();
                let words = format!(
                    "{} x {} pixels; {} has {} x {}, and `resize` makes all alike",
                    met[0],
                    met[1],
                    printable(&first),
                    size[0],
                    size[1]
                );
                return Err(refused(file, words));
            }
            (None, Some((size, _))) => *size,
        };
        let [h, w] = size;
        if self.size.is_none() {
            self.size = Some((size, file.into()));
        }
        if self.values.len() + self.channels() * h * w > self.most {
            return Err(refused(file, "with this image, all take more than 1 GiB; `resize` makes them smaller"));
        }
        self.count += 1;
        self.turned.look(bytes, file);
        for channel in image.channels(self.options.pixels) {
            if met == size {
                self.values.extend(channel);
            } else {
                resize(&channel, met.into(), size.into(), &mut self.values);
            }
        }
        Ok(())
    }

    fn channels(&self) -> usize {
        match self.options.pixels {
            PixelFormat::Grey => 1,
            PixelFormat::Rgb => 3,
        }
    }

    fn dataset(self, folder: &Path, targets: Targets) -> Result<Dataset> {
        let channels = self.channels();
        let Some(([h, w], _)) = self.size else { return Err(refused(folder, "there are no images")) };
        let read = self.turned.read(&self.count.to_string());
        Ok(Dataset::of(Inputs::Numbers(self.values), &[channels, h, w], targets)?.with_origin(Parts::default(), read))
    }
}
